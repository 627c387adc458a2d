"""What the paper shows of the data alone: Tables I and II, Fig. 3, supplement Figs. 1 and 2.

Fuhlert et al., Deep Learning-Based Discrete Calibrated Survival Prediction, 2022. Every function computes from the
embedded cohorts; none holds a printed number, except :data:`MISPRINTS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.datasets import NAMES, describe, load
from dcsurv.grid import Spacing, TimeGrid
from dcsurv.metrics.pairs import pair_counts
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import make_outcome, unpack

# Months as the paper counts them for the median survival.
_MONTHS_PER_DAY = 12 / 365
_SIGNIFICANT = 0.05
# Enough for lifelines to converge on FLCHAIN, too little to change a test.
_PENALIZER = 1e-4
CENSORING_RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_UNIFORM_PATIENTS = 5_000


class Misprint(NamedTuple):
    """A figure that the paper prints and that is not right."""

    where: str
    printed: float
    correct: float
    reason: str


MISPRINTS = (
    Misprint(
        "Table I, METABRIC, F", 2.0, 2.1, "|B| / |A| of the same table's data is 2.06; the other two rows are rounded."
    ),
    Misprint(
        "text on Table III, DCS-linear, SUPPORT, C-td",
        0.628,
        0.623,
        "The table is right; .628 is the figure of DCS-quant in the next row but one.",
    ),
)


def paper_preprocessor(dataset: str) -> Preprocessor:
    """Return the preprocessing of the paper for a cohort: 23 inputs for SUPPORT, 9 for METABRIC, 16 for FLCHAIN.

    It is the default one, except that the authors standardise the sex of FLCHAIN as a number. They fill SUPPORT's
    zeros before standardising, which moves the mean and the standard deviation of four columns by less than a
    hundredth of a standard deviation and no reported figure by 1e-6; here the order is the same for all cohorts.
    """
    describe(dataset)  # refuses an unknown name
    return Preprocessor(ordinal=("sex",) if dataset == "flchain" else (), least_patients=1)


def table_1() -> pd.DataFrame:
    """Table I: patients, censoring rate, comparable pairs |A| and |B| and F = |B| / |A| of every cohort.

    Returns
    -------
    One row per cohort; ``A`` and ``B`` count pairs of raw times on the full data, see
    :func:`dcsurv.metrics.pairs.pair_counts`.
    """
    rows = {}
    for name in NAMES:
        _, y = load(name)
        pairs = pair_counts(y)
        rows[name] = {
            "patients": len(y),
            "censoring_rate": _censoring_rate(y),
            "A": pairs.event_event,
            "B": pairs.event_any,
            "F": pairs.factor,
        }
    return _frame(rows)


def table_2() -> pd.DataFrame:
    """Table II: size, censoring, missing values, survival and proportional hazards of every cohort.

    Returns
    -------
    One row per cohort. ``missing_share`` has the two columns of the outcome in its denominator, as in the paper.
    ``median_survival_days`` is the median of the event times (not that of Kaplan-Meier), in months x 12/365.
    ``non_proportional`` counts the features that :func:`proportional_hazards_p_values` rejects at 5 %.
    """
    rows = {}
    for name in NAMES:
        X, y = load(name)
        time, event = unpack(y)
        median = float(np.median(time[event]))
        violations = int((proportional_hazards_p_values(X, y) < _SIGNIFICANT).sum())
        rows[name] = {
            "patients": len(y),
            "features": X.shape[1],
            "censoring_rate": _censoring_rate(y),
            "missing_share": int(X.isna().sum().sum()) / (len(X) * (X.shape[1] + 2)),
            "median_survival_days": median,
            "median_survival_months": median * _MONTHS_PER_DAY,
            "non_proportional": violations,
            "non_proportional_share": violations / X.shape[1],
        }
    return _frame(rows)


def proportional_hazards_p_values(X: pd.DataFrame, y: Any) -> pd.Series:
    """Test every feature for proportional hazards, as for Table II.

    A Cox model with one coefficient per feature (a category enters as the position of its level, a missing value
    as the median) is tested by the correlation of its scaled Schoenfeld residuals with the rank of time.

    Returns
    -------
    One p value per feature.

    References
    ----------
    Grambsch and Therneau, Proportional hazards tests and diagnostics based on weighted residuals, Biometrika 1994.
    """
    from lifelines import CoxPHFitter
    from lifelines.statistics import proportional_hazard_test

    time, event = unpack(y, n_rows=len(X))
    categories = X.select_dtypes(exclude="number").columns
    # A column may be called like the outcome: number the columns, and put their names back in the end.
    inputs = Preprocessor(ordinal=list(categories), least_patients=1).fit_transform(X)
    frame = pd.DataFrame(inputs).assign(time=time, event=event)
    model = CoxPHFitter(penalizer=_PENALIZER).fit(frame, "time", "event")
    test = proportional_hazard_test(model, frame, time_transform="rank")
    return pd.Series(np.ravel(test.p_value), index=X.columns, name="p_value")


def figure_3(dataset: str = "support", *, n_nodes: int = 10) -> pd.DataFrame:
    """Fig. 3 (SUPPORT) and supplement Fig. 2 (METABRIC and FLCHAIN): how many events fall to each output node.

    The grids are the paper's, laid over the whole cohort. Node l stands for the bucket (g_{l-1}, g_l]; the first
    one includes time 0.

    Returns
    -------
    One row per spacing and node: ``spacing``, ``node`` (from 1), ``time`` (days), ``events`` and ``censored``.
    """
    _, y = load(dataset)
    time, event = unpack(y)
    parts = []
    for spacing in get_args(Spacing):
        grid = TimeGrid.make(y, spacing=spacing, n_nodes=n_nodes, convention="paper")
        bucket = grid.bucket(time)
        parts.append(
            pd.DataFrame(
                {
                    "spacing": spacing,
                    "node": np.arange(1, grid.size + 1),
                    "time": grid.nodes,
                    "events": np.bincount(bucket[event], minlength=grid.size),
                    "censored": np.bincount(bucket[~event], minlength=grid.size),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def supplement_figure_1(
    *, rates: Sequence[float] = CENSORING_RATES, n_repeats: int = 1, random_state: int = 0
) -> pd.DataFrame:
    """Supplement Fig. 1: comparable pairs against the censoring rate c, observed and estimated.

    If censoring does not depend on time, a random pair is one of two events in the right order with probability
    (1-c)^2 / 2 and one of B with (1-c) / 2, so that F = 1 / (1-c).

    Every cohort appears as it is and resampled to the given rates: the largest part of it, drawn without
    replacement, that has the rate. The synthetic cohort ``uniform`` has uniform times of which a random share c is
    censored; it has no rate of its own.

    Parameters
    ----------
    rates
        The censoring rates to resample to, each between 0 and 1.
    n_repeats
        How many resamples to draw per rate.
    random_state
        Seed of the resamples and of the synthetic cohort.

    Returns
    -------
    One row per cohort and (re)sample: ``dataset``, ``resampled``, ``patients``, ``censoring_rate``; ``A`` and
    ``B``, the pairs divided by n^2, and ``F``; and ``A_estimate``, ``B_estimate`` and ``F_estimate``.
    """
    wrong = [rate for rate in rates if not 0 < rate < 1]
    if wrong:
        raise ValueError(f"rates must lie between 0 and 1, both left out; got {wrong}.")
    rng = np.random.default_rng(random_state)
    rows = []
    for name in NAMES:
        _, y = load(name)
        rows.append(_pair_row(name, False, y))
        for rate in np.repeat(rates, n_repeats):
            rows.append(_pair_row(name, True, y[_rows_with_rate(y["event"], float(rate), rng)]))
    for rate in np.repeat(rates, n_repeats):
        time = rng.uniform(size=_UNIFORM_PATIENTS)
        event = rng.permutation(_UNIFORM_PATIENTS) >= round(_UNIFORM_PATIENTS * float(rate))
        rows.append(_pair_row("uniform", True, make_outcome(time, event)))
    return pd.DataFrame(rows)


def _rows_with_rate(event: npt.NDArray[np.bool_], rate: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw the largest set of rows of which the share ``rate`` is censored."""
    events, censored = np.flatnonzero(event), np.flatnonzero(~event)
    size = min(len(events) / (1 - rate), len(censored) / rate)
    kept_events = rng.choice(events, round(size * (1 - rate)), replace=False)
    kept_censored = rng.choice(censored, round(size * rate), replace=False)
    return np.concatenate([kept_events, kept_censored])


def _pair_row(name: str, resampled: bool, y: npt.NDArray[np.void]) -> dict[str, Any]:
    pairs, c = pair_counts(y), _censoring_rate(y)
    return {
        "dataset": name,
        "resampled": resampled,
        "patients": len(y),
        "censoring_rate": c,
        "A": pairs.event_event / len(y) ** 2,
        "B": pairs.event_any / len(y) ** 2,
        "F": pairs.factor,
        "A_estimate": (1 - c) ** 2 / 2,
        "B_estimate": (1 - c) / 2,
        "F_estimate": 1 / (1 - c),
    }


def _censoring_rate(y: npt.NDArray[np.void]) -> float:
    return float(1 - y["event"].mean())


def _frame(rows: dict[str, dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows.values()), index=pd.Index(rows, name="dataset"))
