"""What a fitted CoxPH says in words and tables: hazard ratios per original unit, the test, effects over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.models.cox_inference import (
    EffectCurves,
    RiskSets,
    effects_over_time,
    proportional_hazards_test,
    robust_variance,
)
from dcsurv.persistence import Arrays, read_array
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import FloatArray, IntArray

GLOBAL = "GLOBAL"
LEVEL = 0.95
SIGNIFICANT = 0.05
_NAMED = 5
_ENDLESS = 1e6  # a hazard ratio of a level in which nobody, or everybody, had the event
_PREFIX = "summary."
# Columns come in single precision: a step has no more digits, and closer values are the same.
_DIGITS, _NOISE = 6, 1e-5


@dataclass(frozen=True)
class ModelColumn:
    """Where a column after preprocessing comes from.

    Attributes
    ----------
    name
        As the preprocessing calls it.
    feature
        The original column.
    level, reference
        Of a category: the level whose patients have a 1, and the level that it is compared with.
    scale
        How many original units one unit of the column is.
    """

    name: str
    feature: str
    level: str | None = None
    reference: str | None = None
    scale: float = 1.0


def model_columns(preprocessor: Any, names_in: Sequence[str] | None, n_columns: int) -> list[ModelColumn]:
    """Return where each column of a model comes from, as far as the preprocessing tells."""
    if preprocessor is None:
        names = [str(name) for name in names_in] if names_in is not None else [f"x{k}" for k in range(n_columns)]
        return [ModelColumn(name, name) for name in names]
    if not isinstance(preprocessor, Preprocessor):
        named = hasattr(preprocessor, "get_feature_names_out")
        names = list(preprocessor.get_feature_names_out()) if named else [f"column {k}" for k in range(n_columns)]
        return [ModelColumn(str(name), str(name)) for name in names]
    out: list[ModelColumn] = []
    for column in preprocessor.get_state()["columns"]:
        feature, levels = column["name"], column["levels"]
        if column["kind"] == "number":
            out.append(ModelColumn(feature, feature, scale=column["scale"] or 1.0))
        elif len(levels) == 1:
            out.append(ModelColumn(feature, feature))
        else:
            out += [ModelColumn(f"{feature}_{level}", feature, level, levels[0]) for level in levels[1:]]
    return out


@dataclass(frozen=True)
class CoxInference:
    """What is kept of a fit besides β: small, and nothing of any patient.

    Attributes
    ----------
    standard_error
        Of β, in the units of the columns after preprocessing, NaN for a constant, (p,).
    step
        A change of each column that is easy to picture, in original units, (p,).
    test
        χ² and degrees of freedom of the proportional-hazards test of each feature, then of all, (features + 1, 2);
        None with sample weights.
    curves
        β(t); None with sample weights or few events.
    """

    standard_error: FloatArray
    step: FloatArray
    test: FloatArray | None = None
    curves: EffectCurves | None = None

    def to_arrays(self) -> Arrays:
        """Return it as arrays for a model file."""
        out: Arrays = {"standard_error": self.standard_error, "step": self.step}
        if self.test is not None:
            out["test"] = self.test
        if self.curves is not None:
            out |= {
                "curve_times": self.curves.times,
                "curve_effect": self.curves.effect,
                "curve_spread": self.curves.spread,
            }
        return {f"{_PREFIX}{name}": array for name, array in out.items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_columns: int) -> CoxInference | None:
        """Return what :meth:`to_arrays` made; None for a file of version 0.1, which has nothing of it."""
        own = {name[len(_PREFIX) :]: array for name, array in arrays.items() if name.startswith(_PREFIX)}
        if not own:
            return None
        curves = None
        if "curve_times" in own:
            times = read_array(own, "curve_times", (None,))
            effect = read_array(own, "curve_effect", (n_columns, len(times)))
            curves = EffectCurves(times, effect, read_array(own, "curve_spread", times.shape))
        test = read_array(own, "test", (None, 2), finite=False) if "test" in own else None
        standard_error = read_array(own, "standard_error", (n_columns,), finite=False)
        return cls(standard_error, read_array(own, "step", (n_columns,)), test, curves)


def infer(
    X: FloatArray,
    y: Any,
    coef: FloatArray,
    variance: FloatArray | None,
    weight: FloatArray | None,
    varying: IntArray,
    columns: Sequence[ModelColumn],
) -> CoxInference:
    """Say how sure β is and whether hazards are proportional.

    Parameters
    ----------
    X
        All columns after preprocessing, (n, p).
    coef
        β of the varying columns, which are numbered in ``varying``, as is their ``variance``, the inverse of the
        information; None if there are none.
    """
    p = X.shape[1]
    standard_error, step = np.full(p, np.nan), np.ones(p)
    if variance is None or not np.isfinite(variance).all():
        return CoxInference(standard_error, step)
    time, event = np.ascontiguousarray(y["time"]), np.ascontiguousarray(y["event"])
    sets = RiskSets.of(X[:, varying], time, event, coef, weight)
    step[varying] = [_easy_step(sets.X[:, k], columns[j].scale) for k, j in enumerate(varying)]
    if weight is not None:
        standard_error[varying] = np.sqrt(np.diag(robust_variance(sets, variance)))
        return CoxInference(standard_error, step)
    # Where columns determine each other a variance may come out below zero: that is not known, and said so.
    diagonal = np.diag(variance)
    standard_error[varying] = np.sqrt(np.where(diagonal > 0, diagonal, np.nan))
    feature = np.array([column.feature for column in columns], dtype=object)
    groups = [np.flatnonzero(feature[varying] == name) for name in dict.fromkeys(feature)]
    test = proportional_hazards_test(sets, variance, [*groups, np.arange(len(varying))])
    curves = effects_over_time(sets, coef, variance)
    if curves is not None and len(varying) < p:
        effect = np.zeros((p, len(curves.times)))
        effect[varying] = curves.effect
        curves = EffectCurves(curves.times, effect, curves.spread)
    return CoxInference(standard_error, step, np.array(test, dtype=np.float64), curves)


def _easy_step(values: FloatArray, scale: float) -> float:
    """Return the power of ten nearest to the standard deviation in original units, but no less than what is measured.

    So an age counts per 10 years, a score of 0 to 3 or a 0/1 column per 1.
    """
    spread = float(values.std())
    gaps = np.diff(np.unique(values))
    smallest = float(gaps[gaps > _NOISE * spread].min(initial=np.inf)) * scale
    smallest = smallest if np.isfinite(smallest) else 0.0  # so many values that all are close
    step = 10.0 ** float(np.rint(np.log10(spread * scale))) if spread * scale > 0 else 0.0
    return float(f"{max(step, smallest):.{_DIGITS}g}")


def summary_table(columns: Sequence[ModelColumn], coef: FloatArray, inference: CoxInference | None) -> pd.DataFrame:
    """Return a row per column: coefficient and hazard ratio per original unit with what is known of their error."""
    from scipy.stats import norm

    scale = np.array([column.scale for column in columns])
    unknown = np.full(len(columns), np.nan)
    beta = coef / scale
    error = (unknown if inference is None else inference.standard_error) / scale
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = beta / error
        width = norm.isf((1 - LEVEL) / 2) * error
        table = {
            "feature": [column.feature for column in columns],
            "level": [column.level for column in columns],
            "reference": [column.reference for column in columns],
            "coef": beta,
            "se": error,
            "z": z,
            "p": 2 * norm.sf(np.abs(z)),
            "hazard_ratio": np.exp(beta),
            "lower": np.exp(beta - width),
            "upper": np.exp(beta + width),
            "step": unknown if inference is None else inference.step,
        }
    return pd.DataFrame(table, index=pd.Index([column.name for column in columns], name="column"))


def proportionality_table(columns: Sequence[ModelColumn], inference: CoxInference | None) -> pd.DataFrame:
    """Return a row per feature, and one for all: χ², degrees of freedom and p of the proportional-hazards test."""
    from scipy.stats import chi2

    features = list(dict.fromkeys(column.feature for column in columns))
    if inference is None or inference.test is None:
        statistic, degrees = np.full(len(features) + 1, np.nan), np.zeros(len(features) + 1)
    else:
        statistic, degrees = inference.test.T
    tested = degrees > 0
    p = np.full(len(statistic), np.nan)
    p[tested] = chi2.sf(statistic[tested], degrees[tested])
    return pd.DataFrame(
        {"chi2": np.where(tested, statistic, np.nan), "df": degrees.astype(int), "p": p},
        index=pd.Index([*features, GLOBAL], name="feature"),
    )


def ratio_text(ratio: float, lower: float, upper: float) -> tuple[str, str]:
    """Print a hazard ratio and its interval with as many digits as tell its ends apart; an empty one if unknown."""
    width = upper - lower if np.isfinite(upper - lower) else abs(ratio - 1)
    digits = int(np.clip(1 - np.floor(np.log10(width)), 2, _DIGITS)) if width > 0 else 2
    if np.isnan(lower):
        return f"{ratio:.{digits}f}", ""
    ends = [f"{end:.{digits}f}" if end < _ENDLESS else "∞" for end in (lower, upper)]
    return f"{ratio:.{digits}f}" if ratio < _ENDLESS else "∞", " to ".join(ends)


def p_text(p: float) -> str:
    """Print a p value; an empty one if it is not known."""
    return "" if np.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def describe_test(table: pd.DataFrame) -> str:
    """Say what a table of :func:`proportionality_table` says."""
    single = table.drop(index=GLOBAL)
    chi2, df, overall = table[["chi2", "df", "p"]].to_numpy()[-1]
    if np.isnan(overall):
        return "Whether hazards are proportional was not tested."
    p = p_text(overall)
    p = p.replace("<", "< ") if p.startswith("<") else f"= {p}"
    text = f"Proportional hazards, all features together: χ² = {chi2:.1f} on {df:.0f} df, p {p}."
    changing = single[single["p"] < SIGNIFICANT].sort_values("p", kind="stable").index.astype(str).tolist()
    if not changing:
        return f"{text} No feature's effect changes notably over time."
    more = f" and {len(changing) - _NAMED} more" if len(changing) > _NAMED else ""
    return (
        f"{text} Effects change over time (p < {SIGNIFICANT}): {', '.join(changing[:_NAMED])}{more}. Their hazard "
        "ratios are means over time; with many events even a small change is significant."
    )


def effect_table(columns: Sequence[ModelColumn], coef: FloatArray, inference: CoxInference | None) -> pd.DataFrame:
    """Return a row per column and time: β(t) per original unit with a pointwise 95 % band, beside the constant β."""
    from scipy.stats import norm

    names = ["column", "feature", "level", "reference", "step", "coef", "time", "effect", "lower", "upper"]
    if inference is None or inference.curves is None:
        return pd.DataFrame(columns=names)
    curves, parts = inference.curves, []
    for k, column in enumerate(columns):
        if np.isnan(inference.standard_error[k]):
            continue
        width = norm.isf((1 - LEVEL) / 2) * inference.standard_error[k] * curves.spread
        parts.append(
            pd.DataFrame(
                {
                    "column": column.name,
                    "feature": column.feature,
                    "level": column.level,
                    "reference": column.reference,
                    "step": inference.step[k],
                    "coef": coef[k] / column.scale,
                    "time": curves.times,
                    "effect": curves.effect[k] / column.scale,
                    "lower": (curves.effect[k] - width) / column.scale,
                    "upper": (curves.effect[k] + width) / column.scale,
                }
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)
