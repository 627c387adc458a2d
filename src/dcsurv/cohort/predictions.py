"""Predictions for a table of any length, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pandas as pd

from dcsurv.cohort.card import ModelCard, levels_of
from dcsurv.cohort.errors import CohortError, no_such_column
from dcsurv.cohort.features import Odd, apply_columns, require_columns
from dcsurv.cohort.formats import TableFormat
from dcsurv.cohort.reading import read_chunks
from dcsurv.curves import SurvivalCurves
from dcsurv.durations import Horizon
from dcsurv.messages import needs_extra
from dcsurv.persistence import written_atomically
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from dcsurv.models import SurvivalModel

# Patients are predicted in pieces whose curves hold about this many numbers (32 MB, and some copies).
_NUMBERS, _LEAST_ROWS = 4_000_000, 256
# Intervals of the trapezoid rule for the mean time survived, which recalibrated curves need: within 0.2 per mille
# of the library's own rmst, in a tenth of the time.
_INTERVALS = 256
_DECIMALS = 6


@dataclass
class Predictor:
    """A model that predicts tables: survival and risk at horizons, median, restricted mean, bands and reach.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    card : ModelCard
        What its columns hold.
    horizons : sequence of Horizon
        Times of interest, the earliest first.
    keep : sequence of str, default ()
        Columns of the table, such as an identifier, that are copied to the predictions.
    bands : float or None, default None
        Level of the bands around survival, or None for none. It is part of the columns' names: ``survival_5y_lower90``.
    interval : float or None, default None
        Confidence of the lower bound of the time, ``time_lower90``, or None for none.

    Attributes
    ----------
    rows : int
        Patients predicted so far.
    odd : dict
        Values that had to be taken for missing, by column and reason.
    beyond : dict of str to int
        Of these patients, for how many each horizon lies beyond what training patients like them were followed.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.cohort import ModelCard, Predictor, parse_horizons
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> model = dcsurv.CoxPH(time_unit="days").fit(X, y)
    >>> predictor = Predictor(model, ModelCard.of(model), parse_horizons("5y", "days"))
    >>> predictor.predict(X.head(2))[["row", "survival_5y", "risk_5y"]].round(2)
       row  survival_5y  risk_5y
    0    1         0.87     0.13
    1    2         0.63     0.37
    """

    model: SurvivalModel
    card: ModelCard
    horizons: Sequence[Horizon]
    keep: Sequence[str] = ()
    bands: float | None = None
    interval: float | None = None
    rows: int = field(default=0, init=False)
    odd: dict[tuple[str, str], Odd] = field(default_factory=dict, init=False)
    beyond: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._levels = levels_of(self.model)
        self._piece = max(_LEAST_ROWS, _NUMBERS // len(self.model.nodes))

    def names(self) -> list[str]:
        """Return the names of the predictions, in order."""
        names = ["row"]
        for horizon in self.horizons:
            name = f"survival_{horizon.label}"
            names += [name] if self.bands is None else [name, *_ends(name, self.bands)]
        names += [f"risk_{horizon.label}" for horizon in self.horizons]
        names += [] if self.interval is None else [_ends("time", self.interval)[0]]
        return [*names, "median", f"mean_to_{self.horizons[-1].label}", "followed_to"]

    def chunks(self, form: TableFormat) -> Iterator[pd.DataFrame]:
        """Yield the predictions of a file, in its order.

        Parameters
        ----------
        form : TableFormat
            How the file is read, from :func:`inspect_table`.

        Yields
        ------
        DataFrame
            The predictions of the next patients.
        """
        for name in self.keep:
            if name not in form.columns:
                raise no_such_column(name, "keep", list(form.columns))
        require_columns(self.card.columns, form.columns)
        needed = [column.name for column in self.card.columns if column.kind != "left out"]
        form = replace(form, verbatim=tuple(name for name in self.keep if name not in needed))
        for chunk in read_chunks(form, columns=[*needed, *self.keep]):
            for start in range(0, len(chunk), self._piece):
                yield self.predict(chunk.iloc[start : start + self._piece])
        if self.rows == 0:
            raise CohortError(
                f"{form.path.name} has column names but no rows.", remedy="Name a file with patients to predict."
            )

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Predict the patients of a table.

        Parameters
        ----------
        frame : DataFrame
            One row per patient, with the columns of the model.

        Returns
        -------
        DataFrame
            One row of predictions per row.
        """
        features, odd = apply_columns(frame, self.card.columns, self._levels)
        for one in odd:
            key = (one.column, one.what)
            self.odd[key] = self.odd[key] + one if key in self.odd else one
        times = np.array([horizon.time for horizon in self.horizons])
        curves = self.model.predict_survival_function(features)
        out: dict[str, Any] = {"row": np.arange(self.rows + 1, self.rows + len(frame) + 1)}
        out |= {name: frame[name].to_numpy() for name in self.keep}
        survival = curves.evaluate(times)
        if self.bands is not None:
            _, lower, survival, upper = self._band(features, times)
        for k, horizon in enumerate(self.horizons):
            out[f"survival_{horizon.label}"] = survival[:, k]
            if self.bands is not None:
                ends = _ends(f"survival_{horizon.label}", self.bands)
                out |= {ends[0]: lower[:, k], ends[1]: upper[:, k]}
        for k, horizon in enumerate(self.horizons):
            out[f"risk_{horizon.label}"] = 1 - survival[:, k]
        if self.interval is not None:
            out[_ends("time", self.interval)[0]] = self.model.predict_interval(features, self.interval).lower
        out["median"] = curves.median()
        last = self.horizons[-1]
        out[f"mean_to_{last.label}"] = _restricted_mean(curves, last.time)
        until = curves.followed_to
        assert until is not None  # predicted by a model
        out["followed_to"] = until
        for horizon in self.horizons:
            self.beyond[horizon.label] = self.beyond.get(horizon.label, 0) + int((until < horizon.time).sum())
        self.rows += len(frame)
        return pd.DataFrame(out).round(dict.fromkeys(self.names(), _DECIMALS))

    def _band(self, features: pd.DataFrame, times: Any) -> Any:
        import warnings

        assert self.bands is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a horizon lies beyond the last node is said once, for all chunks
            return self.model.predict_band(features, times, level=self.bands)


def _ends(name: str, level: float) -> tuple[str, str]:
    """Return the names of the columns with the two ends of a band or interval, which say of what level."""
    return f"{name}_lower{100 * level:g}", f"{name}_upper{100 * level:g}"


def _restricted_mean(curves: SurvivalCurves, end: float) -> FloatArray:
    """Return the mean time survived up to ``end``, the area under each curve."""
    if curves.transform is None:
        return curves.rmst(end)
    rows = curves.evaluate_rows(np.linspace(0, end, _INTERVALS + 1))
    return (rows.sum(axis=0) - (rows[0] + rows[-1]) / 2) * (end / _INTERVALS)


def write_predictions(predictor: Predictor, form: TableFormat, path: Path) -> Iterator[int]:
    """Write the predictions of a file to CSV or Parquet, all or nothing.

    Parameters
    ----------
    predictor : Predictor
        The model and what is predicted.
    form : TableFormat
        How the file with the patients is read, from :func:`inspect_table`.
    path : Path
        The file to write, ``.csv`` or ``.parquet``.

    Yields
    ------
    int
        The number of rows so far; the file is there when there are no more.
    """
    writer = _parquet_writer if path.suffix.lower() == ".parquet" else _csv_writer
    with written_atomically(path) as stream, writer(stream, predictor, form) as write:
        for predicted in predictor.chunks(form):
            write(predicted)
            yield predictor.rows


@contextmanager
def _csv_writer(stream: BinaryIO, predictor: Predictor, form: TableFormat) -> Iterator[Callable[[pd.DataFrame], None]]:
    header = True

    def write(predicted: pd.DataFrame) -> None:
        nonlocal header
        for name in predictor.keep:  # dates are written alike in every chunk
            predicted[name] = predicted[name].map(str, na_action="ignore")
        predicted.to_csv(stream, index=False, header=header)
        header = False

    yield write


@contextmanager
def _parquet_writer(
    stream: BinaryIO, predictor: Predictor, form: TableFormat
) -> Iterator[Callable[[pd.DataFrame], None]]:
    with needs_extra("A Parquet file", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    kept = _kept_types(form, predictor.keep)
    texts = [name for name in predictor.keep if pa.types.is_string(kept[name])]
    numbers = {name: pa.float64() for name in predictor.names()[1:]}
    schema = pa.schema({"row": pa.int64(), **{name: kept[name] for name in predictor.keep}, **numbers})

    def write(predicted: pd.DataFrame) -> None:
        for name in texts:
            predicted[name] = predicted[name].map(str, na_action="ignore").astype(object)
        file.write_table(pa.Table.from_pandas(predicted, schema=schema, preserve_index=False))

    with pq.ParquetWriter(stream, schema) as file:
        yield write


def _kept_types(form: TableFormat, keep: Sequence[str]) -> dict[str, Any]:
    """Return the types of columns that are copied: their own if each has one, else text, which can be anything."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = {name: pa.string() for name in keep}
    present = [name for name in keep if name in form.columns]
    if form.kind == "parquet":
        schema = pq.ParquetFile(form.path).schema_arrow
        for name in present:
            own = schema.field(form.columns.index(name)).type
            if pa.types.is_primitive(own):  # numbers, truth values, dates and times
                out[name] = own
    elif form.kind == "excel" and present:
        chunks = list(read_chunks(form, columns=present))
        for name in present:
            cells = [cell for chunk in chunks for cell in chunk[name].dropna()]
            if len({type(cell) for cell in cells}) == 1 and not isinstance(cells[0], str):
                out[name] = pa.array(cells).type
    return out
