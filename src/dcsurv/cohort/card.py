"""What travels with a model file besides the model: where its columns came from, horizons, and how good it was."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dcsurv.cohort.cohort import Cohort, cohort_from
from dcsurv.cohort.columns import Column
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.features import Odd
from dcsurv.cohort.formats import clean_name
from dcsurv.cohort.horizons import choose_horizons
from dcsurv.cohort.outcome import OutcomeColumns, find_outcome
from dcsurv.cohort.reading import read_table
from dcsurv.durations import Horizon, find_unit
from dcsurv.messages import Message
from dcsurv.persistence import MeasuredRow, ModelFileError
from dcsurv.plain import Count, declared

if TYPE_CHECKING:
    from dcsurv.calibration import FittedOn
    from dcsurv.models import SurvivalModel

_VERSION = 1


class _Reference(msgspec.Struct):
    model: str
    metrics: list[MeasuredRow]


class _Evaluation(msgspec.Struct):
    patients: Count
    events: Count
    how: str
    notes: list[str]
    metrics: list[MeasuredRow]
    reference: _Reference | None


class _Data(msgspec.Struct):
    file: str | None
    sha256: str | None
    patients: Count
    events: Count


class _Card(msgspec.Struct):
    """What a file has to say as a card."""

    version: Count
    columns: list[Column]
    horizons: Annotated[list[Horizon], msgspec.Meta(min_length=1)]
    outcome: OutcomeColumns | None
    unit: str | None
    data: dict[str, Any]
    trained_on: str
    created: str
    evaluation: _Evaluation | None

    def __post_init__(self) -> None:
        times = [horizon.time for horizon in self.horizons]
        if times != sorted(set(times)) or len({horizon.label for horizon in self.horizons}) < len(times):
            raise ValueError("horizons ascend, and each has a label of its own")
        if self.data:
            declared(self.data, _Data)

    def refuse_other_columns(self, model: SurvivalModel) -> None:
        """Refuse columns that are not those of the model."""
        names = getattr(model, "feature_names_in_", None)
        used = [column for column in self.columns if column.kind != "left out"]
        if names is None or [column.name for column in used] != names.tolist():
            raise ValueError("its columns are not those of the model")
        levels = levels_of(model)
        if any((column.kind == "number") == (column.name in levels) for column in used):
            raise ValueError("its columns are of other kinds than those of the model")


@dataclass
class ModelCard:
    """Facts about a model in plain data; no rows of patients.

    Parameters
    ----------
    columns : list of Column
        The features, in the order of the model.
    horizons : list of Horizon
        Times of interest.
    outcome : OutcomeColumns or None, default None
        Where the training table kept the outcome; None for a model that was fitted in Python.
    unit : str or None, default None
        What times are measured in.
    data : dict, default {}
        The training table: name, fingerprint, sizes.
    trained_on : str, default ""
        In words, which patients the model in the file was fitted to.
    created : str, default ""
        When it was made.
    evaluation : dict or None, default None
        What was measured when it was fitted, with which patients.
    recalibrated_on : list of FittedOn, default []
        On whom the model was recalibrated later, oldest first; the model says it, not the card.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.cohort import ModelCard
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> card = ModelCard.of(dcsurv.CoxPH(time_unit="days").fit(X, y))
    >>> len(card.columns), [horizon.label for horizon in card.horizons]
    (9, ['3y', '7y', '10y'])
    """

    columns: list[Column]
    horizons: list[Horizon]
    outcome: OutcomeColumns | None = None
    unit: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    trained_on: str = ""
    created: str = ""
    evaluation: dict[str, Any] | None = None
    recalibrated_on: list[FittedOn] = field(default_factory=list)

    def attach(self, model: SurvivalModel) -> None:
        """Let the card travel with a fitted model.

        Parameters
        ----------
        model : SurvivalModel
            The model; it keeps the card as ``card_``, also in its file.
        """
        model.card_ = {
            "version": _VERSION,
            "columns": [column.to_dict() for column in self.columns],
            "horizons": [horizon.to_dict() for horizon in self.horizons],
            "outcome": None if self.outcome is None else self.outcome.to_dict(),
            "unit": self.unit,
            "data": self.data,
            "trained_on": self.trained_on,
            "created": self.created,
            "evaluation": self.evaluation,
        }

    def seen(self, digest: str | None) -> str | None:
        """Tell whether the model has seen a file.

        Parameters
        ----------
        digest : str or None
            SHA-256 of its bytes.

        Returns
        -------
        str or None
            What it was used for, "fitted to" or "recalibrated with", or None.
        """
        if digest is None:
            return None
        if self.data.get("sha256") == digest:
            return "fitted to"
        used = any(one.digest == digest for one in self.recalibrated_on)
        return "recalibrated with" if used else None

    @classmethod
    def of(cls, model: SurvivalModel) -> ModelCard:
        """Return the card of a model.

        Parameters
        ----------
        model : SurvivalModel
            A fitted model.

        Returns
        -------
        ModelCard
            The card, or what can be said about a model that has none.
        """
        recalibrated_on = [one.fitted_on_ for one in model.recalibrations]
        saved = getattr(model, "card_", None)
        if saved is None:
            return cls(
                columns=_columns(model), horizons=_horizons(model), unit=model.time_unit,
                recalibrated_on=recalibrated_on,
            )  # fmt: skip
        try:
            found = declared(saved, _Card)
            if found.version > _VERSION:
                raise ModelFileError("the model's card was written by a newer version of dcsurv. Update dcsurv.")
            found.refuse_other_columns(model)
        except ModelFileError:
            raise
        except ValueError as error:
            raise ModelFileError(f"the model's card cannot be read ({error}). Fit the model again.") from None
        return cls(
            columns=found.columns, horizons=found.horizons, outcome=found.outcome, recalibrated_on=recalibrated_on,
            **{name: saved[name] for name in ("unit", "data", "trained_on", "created", "evaluation")},
        )  # fmt: skip

    @staticmethod
    def outcome_of(model: SurvivalModel) -> OutcomeColumns | None:
        """Return where the table that a model was fitted to kept the outcome.

        Parameters
        ----------
        model : SurvivalModel
            A fitted model, with or without a card.

        Returns
        -------
        OutcomeColumns or None
            None if it was fitted in Python.
        """
        return None if getattr(model, "card_", None) is None else ModelCard.of(model).outcome


def read_cohort_for(
    model: SurvivalModel,
    path: str | Path,
    *,
    time: str | None = None,
    event: str | None = None,
    event_values: Sequence[str] = (),
    start: str | None = None,
    date_format: str | None = None,
    **options: Any,
) -> tuple[Cohort, list[Odd]]:
    """Read patients with known outcomes for a fitted model: its columns, and its coding of events unless told.

    Parameters
    ----------
    model : SurvivalModel
        The fitted model.
    path : str or Path
        The file: CSV, Parquet or Excel.
    time : str or None, default None
        The time column, if it is called otherwise than in the table that the model was fitted to.
    event : str or None, default None
        The event column, if it is called otherwise.
    event_values : sequence of str, default ()
        Values of the event column that mean the event, if they are others.
    start : str or None, default None
        The column of start dates, if it is called otherwise.
    date_format : str or None, default None
        How dates are written, such as ``%d/%m/%Y``, if otherwise.
    **options : dict
        ``delimiter``, ``decimal``, ``encoding`` and ``sheet``, see :func:`read_table`.

    Returns
    -------
    cohort : Cohort
        The patients who have an outcome.
    odd : list of Odd
        Values that the model does not know and that count as missing.
    """
    card = ModelCard.of(model)
    table = read_table(path, **options)
    saved = card.outcome
    if saved is None and (time is None or event is None):
        raise CohortError(
            "the model does not say which columns hold the outcome.",
            parameter="time",
            remedy=Message("Name them with {time} and {event}."),
        )
    if saved is not None and not event_values and (event is None or clean_name(event) == saved.event):
        outcome = replace(
            saved, time=clean_name(time or saved.time), start=clean_name(start) if start else saved.start,
            date_format=date_format or saved.date_format,
        )  # fmt: skip
    else:
        outcome = find_outcome(
            table.frame, time=clean_name(time or saved.time), event=clean_name(event or saved.event),  # type: ignore[union-attr]
            start=start or (saved.start if saved else None), event_values=event_values, unit=find_unit(card.unit),
            date_format=date_format or (saved.date_format if saved else None),
        )  # fmt: skip
    return cohort_from(table, outcome, card.columns, levels_of(model))


def levels_of(model: SurvivalModel) -> dict[str, list[str]]:
    """Return the known levels of each category of a fitted model."""
    if model.preprocessor_ is None:
        return {}
    state = model.preprocessor_.get_state()
    return {column["name"]: column["levels"] for column in state["columns"] if column["levels"] is not None}


def now() -> str:
    """Return the present in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _columns(model: SurvivalModel) -> list[Column]:
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise CohortError(
            "the model was fitted without column names, so the columns of a file cannot be matched to it.",
            remedy="Fit it with a DataFrame.",
        )
    categories = levels_of(model)
    return [Column(str(name), "category" if name in categories else "number") for name in names]


def _horizons(model: SurvivalModel) -> list[Horizon]:
    """Choose horizons from the nodes of a model whose training outcome is not known."""
    nodes = model.nodes
    return choose_horizons((nodes, [1] * len(nodes)), model.time_unit, float(nodes[-1]))
