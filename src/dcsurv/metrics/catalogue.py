"""The metrics there are: one record each, declared beside its computation.

:func:`dcsurv.metrics.evaluate`, the criteria of tuning, the tables of the command line, the report and the
documentation read these records. A metric that a package outside brings is one more record, see
:func:`register_metric`.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from dcsurv._extensions import ExtensionError, load_extensions, where_from
from dcsurv.curves import SurvivalCurves
from dcsurv.grid import Convention, check_convention
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import FloatArray

Better: TypeAlias = Literal["higher", "lower", "one", "zero"]
Aspect: TypeAlias = Literal["discrimination", "error", "calibration"]

_DIRECTIONS: Final[dict[Better, str]] = {
    "higher": "higher is better",
    "lower": "lower is better",
    "one": "1 is perfect",
    "zero": "0 is perfect",
}


class MetricError(ExtensionError):
    """A metric that dcsurv did not bring failed, or returned what is no metric's value."""


@dataclass(frozen=True)
class Metric:
    """Everything that is to be known about a metric.

    Attributes
    ----------
    name : str
        What it is called in tables.
    aspect : {"discrimination", "error", "calibration"}
        What it judges.
    better : {"higher", "lower", "one", "zero"}
        Which way is better; ``"one"``: the nearer to 1, ``"zero"``: the nearer to 0.
    meaning : str
        What it says, in one sentence.
    convention : str
        How it is computed: ties, weights, integration.
    prepare : callable
        Takes a :class:`Setting` and returns the metric :class:`Prepared` for it. :func:`from_function` makes one from a
        plain function.
    paper : str or None, default None
        How it is computed in the paper's convention; None: it has no part in it.
    per_horizon : bool, default False
        Whether there is one value for each horizon.
    weighted : bool, default False
        Whether it weights patients by the inverse probability of being uncensored.
    null : bool, default False
        Whether a perfect model has a value other than the best one, because patients are few: :func:`evaluate` then
        simulates what it would score, and gives that instead of an interval.
    decides : bool, default False
        Whether :func:`dcsurv.validate` goes by it when it says which of two models is better. Every one that decides
        makes the intervals of all wider, which hold together.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import Metric, evaluate, from_function
    >>> def time_error(y, curves, sample_weight):
    ...     error = np.abs(curves.rmst() - y["time"])
    ...     return np.average(error[y["event"]], weights=sample_weight[y["event"]])
    >>> own = Metric(
    ...     name="Time error",
    ...     aspect="error",
    ...     better="lower",
    ...     meaning="Mean distance between the predicted mean survival time and the time of the event.",
    ...     convention="patients with the event; mean restricted to the last node",
    ...     prepare=from_function(time_error),
    ... )
    >>> cohort = simulate("independent", 200)
    >>> evaluate(cohort.y, cohort.truth, metrics=["C-td", own])["metric"].tolist()
    ['C-td', 'Time error']
    """

    name: str
    aspect: Aspect
    better: Better
    meaning: str
    convention: str
    prepare: Callable[[Setting], Prepared]
    paper: str | None = None
    per_horizon: bool = False
    weighted: bool = False
    null: bool = False
    decides: bool = False

    def __post_init__(self) -> None:
        if not _key(self.name):
            raise ValueError(f"name is {self.name!r}, but a metric needs a name with letters or digits.")
        for field, kind in (("aspect", Aspect), ("better", Better)):
            if getattr(self, field) not in get_args(kind):
                raise ValueError(
                    f"{field} of the metric {self.name!r} is {getattr(self, field)!r}, but one of "
                    f"{', '.join(get_args(kind))} is expected."
                )
        if self.decides and not (self.optimisable and self.aspect != "calibration"):
            raise ValueError(
                f"decides=True of the metric {self.name!r}: only discrimination and error can say which model is "
                "better, by one number without horizons of which higher or lower is better."
            )
        if self.per_horizon and isinstance(self.prepare, partial) and self.prepare.func is _prepare_function:
            raise ValueError(
                f"per_horizon=True of the metric {self.name!r}: from_function makes a metric of one number. Write a "
                "preparation that returns a Prepared with horizons, or leave per_horizon out."
            )

    @property
    def direction(self) -> str:
        """Which way is better, in words."""
        return _DIRECTIONS[self.better]

    @property
    def optimisable(self) -> bool:
        """Whether it is one number that can be as high or as low as possible, so that a search can optimise it."""
        return not self.per_horizon and self.better in ("higher", "lower")

    @property
    def module(self) -> str:
        """Where its computation is defined."""
        found: Any = self.prepare
        while isinstance(found, partial):
            found = found.args[0] if found.func is _prepare_function else found.func
        return str(getattr(found, "__module__", None) or type(found).__module__)

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Name the metric where its computation fails; those of dcsurv say themselves what is wrong with the data."""
        try:
            yield
        except MetricError:
            raise
        except Exception as error:
            if self.module.partition(".")[0] == "dcsurv":
                raise
            raise self.failed(f"failed with {type(error).__name__}: {str(error).rstrip('.')}") from error

    def failed(self, what: str) -> MetricError:
        """Return the error that names the metric, and where it comes from.

        Parameters
        ----------
        what : str
            What it did.
        """
        return MetricError(
            f"the metric {self.name!r} from {where_from(self.module)} {what}. Repair it, or leave this metric out."
        )


_RECORDS: dict[str, Metric] = {}


def register_metric(metric: Metric, *, replace: bool = False) -> Metric:
    """Add a metric to those that are computed, shown and searched for.

    Parameters
    ----------
    metric : Metric
        Its record.
    replace : bool, default False
        Whether it may take the place of another metric of the same name.

    Returns
    -------
    Metric
        The record.
    """
    key = _key(metric.name)
    if key in _RECORDS and not replace:
        raise ValueError(
            f"there is a metric {_RECORDS[key].name!r} already. Choose another name, or pass replace=True to take its "
            "place."
        )
    _RECORDS[key] = metric
    return metric


def list_metrics(convention: Convention = "default") -> tuple[Metric, ...]:
    """Return the metrics of a convention in the order of tables.

    Parameters
    ----------
    convention : {"default", "paper"}, default "default"
        Whether to list all, or those that the paper's convention defines.

    Returns
    -------
    tuple of Metric
        Those without horizons first; discrimination, then error, then calibration; then by name.

    Examples
    --------
    >>> from dcsurv.metrics import list_metrics
    >>> [metric.name for metric in list_metrics("paper")]
    ['C-td', 'CDAUC', 'DDC']
    """
    _load()
    return _in_order(metric for metric in _RECORDS.values() if _defined(metric, convention))


def find_metric(name: str) -> Metric:
    """Return a metric by its name, whatever its capitals and hyphens.

    Parameters
    ----------
    name : str
        Such as ``"C-td"``, ``"ctd"`` or ``"o/e"``.

    Returns
    -------
    Metric
        Its record.
    """
    _load()
    try:
        return _RECORDS[_key(str(name))]
    except KeyError:
        names = ", ".join(metric.name for metric in list_metrics())
        raise ValueError(f"there is no metric {name!r}; there are {names}.") from None


def choose_metrics(chosen: Sequence[str | Metric] | None, convention: Convention = "default") -> tuple[Metric, ...]:
    """Return the metrics that were asked for, in the order of tables.

    Parameters
    ----------
    chosen : sequence of str or Metric, or None
        Their names, or records, which need not be registered; None: all that are.
    convention : {"default", "paper"}, default "default"
        In which they must be defined.

    Returns
    -------
    tuple of Metric
        Their records.
    """
    check_convention(convention)
    possible = list_metrics(convention)
    if chosen is None:
        return possible
    known = [metric.name for metric in possible]
    if isinstance(chosen, str):
        raise ValueError(f"metrics is the text {chosen!r}; pass a list, such as [{chosen!r}].")
    if len(chosen) == 0:
        raise ValueError(f"metrics is empty; choose from {known}.")
    records = {_key(one.name): one for one in chosen if isinstance(one, Metric) and _defined(one, convention)}
    records |= {_key(metric.name): metric for metric in possible}
    asked: dict[str, Metric] = {}
    unknown = []
    for one in chosen:
        record = one if isinstance(one, Metric) else records.get(_key(str(one)))
        if record is None or not _defined(record, convention):
            unknown.append(getattr(one, "name", one))
        elif (other := asked.setdefault(_key(record.name), record)) != record:
            raise ValueError(
                f"metrics holds two metrics of one name, {other.name!r} and {record.name!r}: capitals and hyphens do "
                "not count. Rename one of them."
            )
    if unknown:
        raise ValueError(f"metrics holds {unknown}, but in the {convention} convention there are {known}.")
    return _in_order(asked.values())


def from_function(
    function: Callable[[npt.NDArray[np.void], SurvivalCurves, FloatArray], float],
) -> Callable[[Setting], Prepared]:
    """Return the preparation of a metric that is a plain function, which is called anew for every resample.

    Parameters
    ----------
    function : callable
        Takes the outcome, the curves and one weight per patient, of which some may be 0; returns one number, or NaN.

    Returns
    -------
    callable
        For :class:`Metric`'s ``prepare``.
    """
    return partial(_prepare_function, function)


def _prepare_function(function: Callable[..., float], setting: Setting) -> Prepared:
    def values(weighting: Weighting) -> FloatArray:
        weight = np.empty_like(weighting.weight)
        weight[:, setting.cohort.order] = weighting.weight
        return np.array([function(setting.y, setting.curves, row) for row in weight], dtype=np.float64)

    return Prepared(values)


def _defined(metric: Metric, convention: Convention) -> bool:
    return convention == "default" or metric.paper is not None


def _in_order(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    order = get_args(Aspect)
    return tuple(sorted(metrics, key=lambda metric: (metric.per_horizon, order.index(metric.aspect), metric.name)))


def _load() -> None:
    _import_room()
    load_extensions()


@cache
def _import_room() -> None:
    """Import every module of this room, so that a new file with a metric needs to be named nowhere."""
    for module in pkgutil.iter_modules(import_module("dcsurv.metrics").__path__):
        if not module.name.startswith("_"):
            import_module(f"dcsurv.metrics.{module.name}")


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
