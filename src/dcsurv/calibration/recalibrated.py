"""A fitted model whose probabilities were refitted to other patients, and which says so."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from dcsurv._learn import check_is_fitted
from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.calibration.map_base import MappedCurves
from dcsurv.calibration.maps import MapSequence, make_maps, map_from_state
from dcsurv.curves import SurvivalCurves
from dcsurv.kinds import ModelKind, register
from dcsurv.metrics.censoring import resolve_follow_up
from dcsurv.models import CurveParts, SurvivalModel
from dcsurv.models.bands import Backing, BandArithmetic, BandSources
from dcsurv.models.base import Features
from dcsurv.models.saved_model import versions
from dcsurv.models.time_bounds import TimeBounds
from dcsurv.persistence import Arrays, Header, MeasuredRow, ModelFileError, from_saved
from dcsurv.plain import Count, declared
from dcsurv.preprocessing import Population
from dcsurv.target import FloatArray, check_outcome

_INSIDE = "model."
# Maps learn a level and a slope for each time.
_NUMBERS_OF_MAPS = 2.0


@dataclass(frozen=True)
class FittedOn:
    """On whom maps were fitted.

    Parameters
    ----------
    patients : int
        How many patients.
    events : int
        How many of them had the event.
    name : str or None, default None
        Name of their table, such as a file.
    digest : str or None, default None
        SHA-256 of the file, its fingerprint.
    date : str, default ""
        When, in UTC.

    Examples
    --------
    >>> from dcsurv.calibration import FittedOn
    >>> print(FittedOn(317, 181, "hospital-b.csv", date="2026-11-17T10:00:00+00:00"))
    317 patients (181 events) of hospital-b.csv, 2026-11-17
    """

    patients: Count
    events: Count
    name: str | None = None
    digest: str | None = None
    date: str = ""

    def __str__(self) -> str:
        size = f"{self.patients:,} patient{'' if self.patients == 1 else 's'}"
        events = f"{self.events:,} event{'' if self.events == 1 else 's'}"
        return f"{size} ({events})" + (f" of {self.name}" if self.name else "") + (f", {self.date[:10]}"[:12])


class _Evaluation(msgspec.Struct):
    before: list[MeasuredRow]
    after: list[MeasuredRow] | None


class _Inside(msgspec.Struct):
    kind: str


class _Document(msgspec.Struct):
    """What the header of a recalibrated model holds; the model inside and the maps declare themselves."""

    model: _Inside
    maps: list[str]
    map: dict[str, Any]
    fitted_on: FittedOn
    evaluation: _Evaluation | None
    versions: dict[str, str]
    backing: dict[str, Any] | None = None
    time_bounds: dict[str, Any] | None = None


@dataclass(repr=False, eq=False)
class Recalibrated(SurvivalModel):
    """A fitted model of dcsurv, of any kind, with maps after it that were fitted to other patients.

    Fitting refits the maps and nothing else: the model inside keeps what it has learnt. So a clone keeps the fitted
    model too, and forgets the maps. Parameters of the model inside are none of this one: they had their effect when it
    was fitted.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model. It is not changed, and to fit it again later changes nothing here.
    maps : sequence of str, default ("horizon", "rank")
        Names of the maps in the order in which they are applied; see :class:`CalibratedEnsemble`.
    fitted_on : str or None, default None
        Name of the patients that the maps are fitted to, such as a file. Only kept, in the model and its file.

    Attributes
    ----------
    model_ : SurvivalModel
        The model as it was when the maps were fitted.
    map_ : MapSequence
        The fitted maps.
    fitted_on_ : FittedOn
        On whom they were fitted.
    evaluation_ : dict or None
        How good the curves were before and after on those patients, the maps cross-fitted; see :func:`recalibrate`.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> model = dcsurv.CoxPH().fit(X[:1000], y[:1000])
    >>> local = dcsurv.Recalibrated(model, maps=("rank",), fitted_on="hospital B").fit(X[1000:], y[1000:])
    >>> local.fitted_on_.patients
    904
    """

    model: Any
    maps: Sequence[str] = ("horizon", "rank")
    fitted_on: str | None = None

    # --- fitting ------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Fit the maps, and only them.

        Parameters
        ----------
        X : DataFrame or array-like
            Features of patients that the model was not trained on.
        y : outcome
            Their outcomes; see :func:`dcsurv.make_outcome`.
        sample_weight : array-like or None, default None
            One non-negative weight per patient.
        """
        if not isinstance(self.model, SurvivalModel):
            raise ValueError(
                f"model is a {type(self.model).__name__}, but a fitted model of dcsurv is expected. Curves of other "
                "models can be recalibrated with HorizonMap and RankPreservingMap."
            )
        check_is_fitted(self.model)
        # What is fitted again gets new attributes: a copy of the old ones keeps what belongs to the maps.
        model = copy.copy(self.model)
        curves = model.curves_for(X)
        outcome = check_outcome(y, n_rows=len(curves), min_events=1)
        follow_up = resolve_follow_up("auto", X, outcome, [curves])
        self.map_ = make_maps(self.maps).fit(outcome, curves, sample_weight, censoring=follow_up or "marginal")
        self._wrapped, self.model_ = self.model, model
        self.backing_ = Backing.of(outcome, None if sample_weight is None else np.asarray(sample_weight))
        self.fitted_on_ = FittedOn(len(outcome), int(outcome["event"].sum()), self.fitted_on, date=_now())
        self.evaluation_: dict[str, Any] | None = None
        return self.calibrate_interval(X, outcome, sample_weight)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "map_")

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.model, self.maps, self.fitted_on)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, without those of the model inside.

        Parameters
        ----------
        deep : bool, default True
            Makes no difference: the model inside is fitted, and its parameters are not to be set.
        """
        own: dict[str, Any] = super().get_params(deep=False)
        return own

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of the model inside are refused.

        Parameters
        ----------
        **params : object
            ``model``, ``maps`` and ``fitted_on``.
        """
        inside = [name for name in params if name.startswith("model__")]
        if inside:
            raise ValueError(
                f"{inside[0]} is a parameter of the model inside, which is fitted before it is wrapped and not again "
                "here. Set it on that model, fit that, and wrap it anew."
            )
        out: Self = super().set_params(**params)
        return out

    def __repr__(self) -> str:
        if not hasattr(self, "map_"):
            return f"Recalibrated({self.model!r}, maps={tuple(self.maps)!r}), not fitted"
        changed = f"; {' and '.join(self._changed())} changed since" if self._changed() else ""
        return f"Recalibrated({self.model_!r}, maps={self.map_.names!r}), fitted on {self.fitted_on_}{changed}"

    def _changed(self) -> list[str]:
        """Return the parameters that are no longer those of the fit."""
        maps = [] if tuple(self.maps) == self.map_.names else ["maps"]
        return maps if self.model is self._wrapped else ["model", *maps]

    @property
    def _inside(self) -> Any:
        """The model that the maps were fitted to; before that, the one to fit them to."""
        return vars(self).get("model_", self.model)

    # --- what it has from the model inside ----------------------------------------------------------------

    @property
    def display_name(self) -> str:
        """What to call the model in a sentence: by what was trained."""
        return f"{self.innermost.display_name}, recalibrated"

    @property
    def innermost(self) -> SurvivalModel:
        """The model that was trained, without any recalibration."""
        inside: SurvivalModel = self._inside.innermost
        return inside

    @property
    def recalibrations(self) -> list[Any]:
        """All recalibrations of the model, oldest first."""
        return [*self._inside.recalibrations, self]

    def before_recalibration(self) -> SurvivalModel:
        """Return the model inside."""
        inside: SurvivalModel = self._inside
        return inside

    def __getattr__(self, name: str) -> Any:
        # What was learnt in training, and how the features are read, is the model's.
        if name in _FROM_MODEL and "model" in vars(self):
            return getattr(self._inside, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def nodes(self) -> FloatArray:
        """The times at which the model inside predicts."""
        return self._inside.nodes

    @property
    def has_band(self) -> bool:
        """Whether :meth:`predict_band` can be asked."""
        return bool(self._inside.has_band)

    @property
    def population_(self) -> Population | None:  # type: ignore[override]
        """What the patients that the model inside was trained on look like."""
        inside: Population | None = self._inside.population_
        return inside

    def check_features(self, X: Any) -> Any:
        """Return the features, checked by the model inside."""
        return self._inside.check_features(X)

    def encode(self, features: Any) -> Features:
        """Return checked features as the numbers that the model inside computes with."""
        encoded: Features = self._inside.encode(features)
        return encoded

    def numbers_per_row(self) -> int:
        """Return how many numbers a prediction holds in memory for each patient."""
        # The maps hold a few copies of curves with some hundred nodes more.
        return max(16 * len(self.nodes) + 4096, self._inside.numbers_per_row())

    def curve_parts(self, prepared: Features) -> CurveParts:
        """Return the curves of the model inside, mapped."""
        return parts_of(self.map_.transform(self.model_.curves_of(prepared)))

    def band_sources(self, prepared: Features) -> BandSources:
        """Return what the bands of the model inside are made from, mapped, and that the maps were learnt, too."""
        inside = self.model_.band_sources(prepared)
        return BandSources(
            [MappedCurves(curves, self.map_) for curves in inside.replicates],
            inside.factor,
            [(share, MappedCurves(curves, self.map_)) for share, curves in inside.families],
            [*inside.fitted_on, (_NUMBERS_OF_MAPS, self.backing_)],
            self.map_.transform(inside.center),
        )

    def curve_arithmetic(self, prepared: Value) -> ReadableCurves:
        """Return the curves of the model inside, mapped, as arithmetic."""
        return self.map_.transform_arithmetic(self.model_.curve_arithmetic(prepared))

    def band_arithmetic(self, prepared: Value) -> BandArithmetic:
        """Return what the bands are made from as arithmetic."""
        inside = self.model_.band_arithmetic(prepared)
        return BandArithmetic(
            [self.map_.transform_arithmetic(curves) for curves in inside.replicates],
            inside.factor,
            [(share, self.map_.transform_arithmetic(curves)) for share, curves in inside.families],
            [*inside.fitted_on, (_NUMBERS_OF_MAPS, self.backing_)],
        )

    # --- files --------------------------------------------------------------------------------------------

    def to_saved(self) -> tuple[Header, Arrays]:
        """Return the model inside and the maps for a file."""
        if changed := self._changed():
            raise ModelFileError(
                f"{', '.join(changed)} changed since the maps were fitted. Fit them again, or set back."
            )
        header, arrays = self.model_.to_saved()
        card = getattr(self.model_, "card_", None)
        inside = {"kind": type(self.model_).__name__, **header, **({} if card is None else {"card": card})}
        document = {
            "model": inside,
            "maps": list(self.maps),
            "map": self.map_.get_state(),
            "fitted_on": asdict(self.fitted_on_),
            "backing": self.backing_.get_state(),
            "time_bounds": None if self.time_bounds_ is None else self.time_bounds_.get_state(),
            "evaluation": self.evaluation_,
            "versions": versions(),
        }
        return document, {_INSIDE + name: array for name, array in arrays.items()}

    @classmethod
    def from_saved(cls, header: Header, arrays: Arrays) -> Self:
        """Rebuild model and maps from the contents of a file."""
        declared(header, _Document)
        own = {name[len(_INSIDE) :]: array for name, array in arrays.items() if name.startswith(_INSIDE)}
        model = from_saved(header["model"], own)
        if not isinstance(model, SurvivalModel):
            raise ValueError("there is no model inside.")
        out = cls(model, tuple(header["maps"]))
        make_maps(out.maps)  # refuses names that there are not
        out._restore(header["map"], FittedOn(**header["fitted_on"]), header["evaluation"], header.get("backing"))
        bounds = header.get("time_bounds")  # files before 0.2 have none
        out.time_bounds_ = None if bounds is None else TimeBounds.from_state(bounds, model.n_groups)
        return out

    def _restore(
        self, state: Header, fitted_on: FittedOn, evaluation: dict[str, Any] | None, backing: Header | None = None
    ) -> None:
        restored = map_from_state(state)
        if not isinstance(restored, MapSequence):
            raise ValueError("the maps of a recalibrated model must be a sequence.")
        if restored.names != self.maps:
            raise ValueError(f"its maps are {restored.names!r}, but it says {self.maps!r}.")
        self._wrapped = self.model_ = self.model
        self.map_, self.fitted_on_, self.evaluation_ = restored, fitted_on, evaluation
        self.backing_ = Backing.unknown(fitted_on.patients) if backing is None else Backing.from_state(backing)


_FROM_MODEL = (
    "follow_up_",
    "preprocessor_",
    "n_features_in_",
    "feature_names_in_",
    "training_summary_",
    "time_unit",
    "card_",
)


def parts_of(curves: SurvivalCurves) -> CurveParts:
    """Return what curves are made of; a map that they carry stays one."""
    return CurveParts(curves.times, curves.rows.T, curves.interpolation, curves.transform)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


register(
    ModelKind(
        name="recalibrated",
        model=Recalibrated,
        meaning="a fitted model with maps that were fitted to other patients",
        by_name=False,
    )
)
