"""What a validation has found: tables, figures and the verdict, all from stored refits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.durations import describe_time
from dcsurv.experiments.store import Row
from dcsurv.metrics import calibration_at_horizon
from dcsurv.target import FloatArray
from dcsurv.validation.centres import Centre, measure_centre, summarise
from dcsurv.validation.comparison import Verdict, compared, judge
from dcsurv.validation.estimates import Pooled, by_key, optimism
from dcsurv.validation.instability import Instability
from dcsurv.validation.refits import MetricKey, Patients, Role

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Resamples of the out-of-fold predictions behind intervals, and of each centre's patients.
_DRAWS, _CENTRE_DRAWS = 400, 200


@dataclass(frozen=True)
class Found:
    """What the refits of one model gave."""

    pooled: Pooled
    whole: Row | None
    resamples: Sequence[Row]
    instability: Instability | None
    by_centre: Sequence[SurvivalCurves]


class Validation:
    """What :func:`dcsurv.validate` has found.

    Parameters
    ----------
    patients : Patients
        Whom it was found on.
    names : mapping
        What the model and the reference are called.
    model : Found
        What the refits of the model gave.
    reference : Found or None
        Those of the reference.
    centres : sequence of Centre
        The centres of the internal-external validation.
    design : str
        What was done, in words.
    notes : tuple of str
        What went wrong or was left out.
    confidence : float
        Of the intervals.
    random_state : int
        Seed of the resamples.
    unit : str or None, default None
        What times are measured in.

    Attributes
    ----------
    design : str
        What was done, in words.
    notes : tuple of str
        What went wrong or was left out.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 200)
    >>> found = dcsurv.validate(dcsurv.CoxPH(), cohort.X, cohort.y, resamples=3, repeats=1, metrics=["C-td", "IBS"])
    >>> found.performance["metric"].tolist()
    ['C-td', 'IBS']
    >>> found.verdict is None  # CoxPH is not compared with itself
    True
    >>> len(found.instability.patients())
    200
    """

    def __init__(
        self,
        *,
        patients: Patients,
        names: Mapping[Role, str],
        model: Found,
        reference: Found | None,
        centres: Sequence[Centre],
        design: str,
        notes: tuple[str, ...],
        confidence: float,
        random_state: int,
        unit: str | None = None,
    ) -> None:
        self.patients, self.names, self.design, self.notes, self.unit = patients, names, design, notes, unit
        self.confidence, self.random_state = confidence, random_state
        self._found: dict[Role, Found] = {"model": model}
        if reference is not None:
            self._found["reference"] = reference
        self._centres = centres

    # --- how good it is -----------------------------------------------------------------------------------

    @cached_property
    def performance(self) -> pd.DataFrame:
        """How good the model is on new patients.

        Columns ``metric, horizon``; ``cross_validated``, the number to report: the metric of the out-of-fold
        predictions, of ranking within folds, otherwise of all patients together, mean over the repeats, with ``lower``
        and ``upper``, and for metrics that no model brings to 0 ``floor``, ``null_95`` and ``p_value``, as
        :func:`dcsurv.metrics.evaluate` has them, like ``counted`` and ``convention``; ``apparent``, on the patients
        that it was fitted to; ``optimism_corrected``, by the bootstrap, and ``monte_carlo``, its standard error from
        the number of resamples.
        """
        return self._performance("model")

    @cached_property
    def reference_performance(self) -> pd.DataFrame | None:
        """The same of the reference, or None."""
        return self._performance("reference") if "reference" in self._found else None

    def _performance(self, role: Role) -> pd.DataFrame:
        found = self._found[role]
        first = found.pooled.tables[0]
        out = first[["metric", "horizon"]].copy()
        keys = list(by_key(first, "value"))
        mean = {key: float(values.mean()) for key, values in found.pooled.values.items()}
        out["cross_validated"] = [mean.get(key, np.nan) for key in keys]
        limits = [self._limits(role, key) for key in keys]
        out["lower"], out["upper"] = (np.array(side) for side in zip(*limits, strict=True))
        for column, over_repeats in (("floor", np.mean), ("null_95", np.mean), ("p_value", np.median)):
            tables = [by_key(table, column) for table in found.pooled.tables]
            out[column] = [over_repeats([one.get(key, np.nan) for one in tables]) for key in keys]
        out[["counted", "convention"]] = first[["counted", "convention"]]
        bootstrap = self.bootstrap if role == "model" else self.reference_bootstrap
        if bootstrap is not None:
            for column, name in (("apparent", "apparent"), ("corrected", "optimism_corrected"), ("monte_carlo",) * 2):
                known = by_key(bootstrap, column)
                out[name] = [known.get(key, np.nan) for key in keys]
        return out

    @cached_property
    def bootstrap(self) -> pd.DataFrame | None:
        """What the bootstrap samples say about optimism, Harrell's estimate and the .632+ one; None without any.

        Columns ``metric, horizon, apparent``; ``training``, ``original`` and ``out_of_bag``, means over the refits of
        the metric on the patients of the resample, on all and on those who were not drawn; ``optimism`` = training -
        original and ``harrell`` = apparent - optimism; ``no_information``, the metric if predictions belong to other
        patients; ``corrected``, the .632+ estimate of discrimination and error, Harrell's of calibration, and
        ``monte_carlo``, its standard error from the number of resamples.
        """
        return self._bootstrap("model")

    @cached_property
    def reference_bootstrap(self) -> pd.DataFrame | None:
        """The same of the reference, or None."""
        return self._bootstrap("reference") if "reference" in self._found else None

    def _bootstrap(self, role: Role) -> pd.DataFrame | None:
        found = self._found[role]
        return None if found.whole is None else optimism(found.whole, found.resamples, self.patients.metrics)

    def _limits(self, role: Role, key: MetricKey) -> tuple[float, float]:
        draws = self._draws[role].get(key)
        if draws is None or not np.isfinite(draws).any():
            return np.nan, np.nan
        low, high = np.nanquantile(draws, [(1 - self.confidence) / 2, (1 + self.confidence) / 2])
        return float(low), float(high)

    @cached_property
    def _draws(self) -> dict[Role, dict[MetricKey, FloatArray]]:
        """The metrics in the same resamples of the out-of-fold predictions of every model."""
        return {role: found.pooled.drawn(_DRAWS, self.random_state) for role, found in self._found.items()}

    def summary(self) -> pd.DataFrame:
        """Return the numbers to report, those of the reference beside them.

        Returns
        -------
        DataFrame
            :attr:`performance`, with ``reference`` (cross-validated), and from :attr:`comparison` the ``difference``
            and its interval, where there is a reference.
        """
        out = self.performance.copy()
        if self.comparison is None:
            return out
        for column, name in (("reference_value", "reference"), ("difference",) * 2, ("lower", "difference_lower"),
                             ("upper", "difference_upper")):  # fmt: skip
            known = by_key(self.comparison, column)
            out[name] = [known.get(key, np.nan) for key in by_key(self.performance, "cross_validated")]
        return out

    # --- against the reference ----------------------------------------------------------------------------

    @cached_property
    def comparison(self) -> pd.DataFrame | None:
        """Paired differences between the model and the reference, or None.

        Columns ``metric, horizon, value, reference_value, difference, se, lower, upper, decides``; the intervals of the
        metrics that decide hold together.
        """
        if "reference" not in self._found:
            return None
        return compared(self._found["model"].pooled, self._found["reference"].pooled, self.confidence)

    @cached_property
    def verdict(self) -> Verdict | None:
        """What the comparison comes to, in plain words; None without a reference."""
        if self.comparison is None:
            return None
        return judge(
            self.comparison, self.patients, self.names["model"], self.names["reference"], self.confidence
        )  # fmt: skip

    # --- how stable it is ---------------------------------------------------------------------------------

    @property
    def instability(self) -> Instability | None:
        """How much the prediction for one patient varies between the refits; None without bootstrap samples."""
        return self._found["model"].instability

    @property
    def reference_instability(self) -> Instability | None:
        """The same of the reference, or None."""
        return self._found["reference"].instability if "reference" in self._found else None

    def calibration_instability(self, horizon: float | None = None) -> list[pd.DataFrame]:
        """Return the calibration curves of the refits on all patients.

        Parameters
        ----------
        horizon : float or None, default None
            The time by which the risk is; None: the middle one.

        Returns
        -------
        list of DataFrame
            ``predicted`` and ``observed`` risk, on a grid; the first is the model's own, the others its refits'.
        """
        unstable = self._unstable()
        at = unstable.position(horizon)
        t = float(unstable.horizons[at])
        follow_up = self.patients.follow_up
        out = []
        for risk in (unstable.risk[:, at], *unstable.refits[:, :, at]):
            curves = SurvivalCurves([t], 1 - risk[:, None])
            found = calibration_at_horizon(
                self.patients.y, curves, t, censoring="marginal" if follow_up is None else follow_up
            )
            grid = np.quantile(found.predicted, np.linspace(0.01, 0.99, 60))
            out.append(pd.DataFrame({"predicted": grid, "observed": np.interp(grid, found.predicted, found.observed)}))
        return out

    def _unstable(self) -> Instability:
        if self.instability is None:
            raise ValueError(
                "there are no bootstrap samples to see instability in; validate with resamples=20 or more."
            )
        return self.instability

    # --- elsewhere ----------------------------------------------------------------------------------------

    @cached_property
    def centres(self) -> pd.DataFrame | None:
        """The metrics of each centre, predicted by a model fitted to the others; None without centres."""
        if not self._centres:
            return None
        tables = [
            measure_centre(centre, self.patients, curves, _CENTRE_DRAWS, self.confidence, self.random_state)
            for centre, curves in zip(self._centres, self._found["model"].by_centre, strict=True)
        ]
        return pd.concat(tables, ignore_index=True)

    @cached_property
    def centres_summary(self) -> pd.DataFrame | None:
        """Each metric over the centres, by random effects; None without centres.

        Columns ``metric, horizon, centres, mean, lower, upper``; ``new_lower`` and ``new_upper``, where the true value
        of another centre is expected; ``i2``, the share of the variance that lies between centres.
        """
        return None if self.centres is None else summarise(self.centres, self.confidence)

    # --- pictures and plain data --------------------------------------------------------------------------

    def plot_instability(self, horizon: float | None = None) -> Figure:
        """Draw the refits' predictions against the model's own, with the range of 95 % of them.

        Parameters
        ----------
        horizon : float or None, default None
            The time by which the risk is; None: the middle one.

        Returns
        -------
        matplotlib.figure.Figure
            The prediction instability plot.
        """
        from dcsurv.figures.instability import prediction_instability

        unstable = self._unstable()
        found = unstable.patients(horizon)
        at = unstable.position(horizon)
        return prediction_instability(
            found["risk"].to_numpy(), unstable.refits[:, :, at], label=self._by(unstable.horizons[at])
        )

    def plot_calibration_instability(self, horizon: float | None = None) -> Figure:
        """Draw the calibration curves of the refits on all patients behind the model's own.

        Parameters
        ----------
        horizon : float or None, default None
            The time by which the risk is; None: the middle one.

        Returns
        -------
        matplotlib.figure.Figure
            The calibration instability plot.
        """
        from dcsurv.figures.instability import calibration_instability

        own, *others = self.calibration_instability(horizon)
        unstable = self._unstable()
        label = self._by(unstable.horizons[unstable.position(horizon)])
        return calibration_instability(own, others, label=label)

    def _by(self, horizon: float) -> str:
        return f"by {describe_time(float(horizon), self.unit)}"

    def plot_centres(self, metric: str = "C-td", horizon: float | None = None) -> Figure:
        """Draw a metric of every centre with its interval, and their random-effects mean.

        Parameters
        ----------
        metric : str, default "C-td"
            Which one.
        horizon : float or None, default None
            Its horizon, for a metric that has some.

        Returns
        -------
        matplotlib.figure.Figure
            A forest plot.
        """
        from dcsurv.figures.instability import forest

        if self.centres is None or self.centres_summary is None:
            raise ValueError("there are no centres to draw; validate with by=, a label per patient.")
        rows, mean = (_of(table, metric, horizon) for table in (self.centres, self.centres_summary))
        if rows.empty:
            raise ValueError(f"there is no {metric} {'' if horizon is None else f'at {horizon:g} '}of the centres.")
        return forest(rows, mean, label=metric)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return all tables that there are.

        Returns
        -------
        dict of str to DataFrame
            By name, as they are called here.
        """
        unstable = {"instability": self.instability, "reference_instability": self.reference_instability}
        every: dict[str, pd.DataFrame | None] = {
            "performance": self.performance,
            "reference_performance": self.reference_performance,
            "bootstrap": self.bootstrap,
            "reference_bootstrap": self.reference_bootstrap,
            "comparison": self.comparison,
            **{name: None if one is None else one.table() for name, one in unstable.items()},
            "centres": self.centres,
            "centres_summary": self.centres_summary,
        }
        return {name: table for name, table in every.items() if table is not None}

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write tables, figures and a short page in plain language.

        Parameters
        ----------
        folder : str or path-like
            Where; made if it is not there.

        Returns
        -------
        list of Path
            The files: ``index.html``, ``validation.json``, ``tables/*.csv`` and ``figures/*``.
        """
        from dcsurv.validation.page import write

        return write(self, Path(folder))

    def to_dict(self) -> dict[str, Any]:
        """Return the tables and the verdict as plain data.

        Returns
        -------
        dict
            For JSON.
        """
        verdict = self.verdict
        return {
            "model": self.names["model"],
            "reference": self.names["reference"] or None,
            "patients": len(self.patients.y),
            "events": int(self.patients.y["event"].sum()),
            "design": self.design,
            "notes": list(self.notes),
            "verdict": None if verdict is None else verdict.text,
            "rests_on": None if verdict is None else verdict.rests_on,
            **{name: table.to_dict("records") for name, table in self.tables().items()},
        }


def _of(table: pd.DataFrame, metric: str, horizon: float | None) -> pd.DataFrame:
    own = table["metric"] == metric
    return table[own & (table["horizon"].isna() if horizon is None else np.isclose(table["horizon"], horizon))]
