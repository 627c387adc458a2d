"""Which features the predictions rest on: permutation importance at the horizons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dcsurv.figures import evaluation as draw
from dcsurv.metrics import brier_score, cumulative_dynamic_auc
from dcsurv.report.blocks import Picture, Section, number, records, with_interval
from dcsurv.report.study import Study
from dcsurv.target import FloatArray, IntArray, Outcome

FEATURES_SHOWN = 12
# Rows that may be predicted in all; more features get fewer repeats, then fewer patients.
_BUDGET, _REPEATS, _LEAST_PATIENTS, _MOST_PATIENTS = 40_000, 5, 100, 1000
_ROWS_PER_CALL = 20_000


def importance(study: Study) -> tuple[Section, list[str]]:
    """Permutation importance at the horizons; also return the features, the most important first."""
    section = Section("importance", "What the predictions rest on")
    names = [str(name) for name in study.X.columns]
    section.say(
        "Each feature in turn is shuffled among the patients, so that it tells nothing any more, and the model "
        "predicts again. The more the ranking suffers, the more the model relied on that feature. This says what the "
        "model uses, not what causes the event, and features that say the same share their importance."
    )
    if not study.horizons:
        section.warn("Importance needs a horizon with events before and patients after it, and there is none.")
        return section, names
    table = None
    with section.trying("Permutation importance"):
        table, used = _permuted(study)
    if table is None:
        return section, names
    best = table.groupby("feature", sort=False)["auc_drop"].max().sort_values(ascending=False, kind="stable")
    order = [str(name) for name in best.index]
    top = order[:FEATURES_SHOWN]
    drawn = table[table["feature"].isin(top)].copy()
    drawn["place"] = drawn["feature"].map(top.index)
    drawn = drawn.sort_values(["place", "horizon"], kind="stable")
    drawn["horizon"] = [f"by {study.when(t, brief=True)}" for t in drawn["horizon"]]
    pictures = []
    for value, title, name in (
        ("auc_drop", "Drop of AUC", "importance-auc"),
        ("brier_rise", "Rise of the Brier score", "importance-brier"),
    ):
        shown = drawn.rename(columns={value: "value", f"{value}_low": "lower", f"{value}_high": "upper"})
        leaders = shown.sort_values("value", ascending=False).head(3)
        pictures.append(
            Picture(
                name,
                draw.importance_at_horizons(shown, xlabel=f"{title[0].lower()}{title[1:]} when shuffled"),
                f"{title} at the horizons when a feature is shuffled; largest: "
                + ", ".join(f"{r['feature']} {r['value']:.3f}" for r in records(leaders))
                + ".",
                f"{title} when the feature is shuffled"
                + ("; lines: range over the repeats." if used["repeats"] > 1 else "."),
            )
        )
    section.show(*pictures)
    with section.folded("The numbers"):
        section.table(
            "Importance at the horizons"
            + (f", the first {len(top)} of {len(order)} features" if len(top) < len(order) else ""),
            ["", *(f"drop of AUC by {study.when(t)}" for t in study.horizons)],
            [[name, *(_cell(table, name, t) for t in study.horizons)] for name in top],
        )
    orders = (
        f"Mean (lowest to highest) over {used['repeats']} random orders" if used["repeats"] > 1 else "One random order"
    )
    section.convention(
        f"{orders} of {used['patients']:,} patients; AUC and Brier score with the "
        "conventions of the sections above. Negative values are chance."
    )
    section.numbers["importance"] = records(table)
    section.numbers["patients"] = used["patients"]
    return section, order


def _permuted(study: Study) -> tuple[pd.DataFrame, dict[str, int]]:
    """Predict all features' shuffled tables in few calls, and score each."""
    n, p = study.X.shape
    rng = np.random.default_rng(study.random_state)
    size = min(n, _MOST_PATIENTS, max(_LEAST_PATIENTS, _BUDGET // p))
    repeats = int(np.clip(_BUDGET // (p * size), 1, _REPEATS))
    rows = np.arange(n) if size == n else np.sort(rng.choice(n, size, replace=False))
    X, y = study.X.iloc[rows].reset_index(drop=True), study.y[rows]
    orders = [rng.permutation(size) for _ in range(repeats)]
    weighting = study.weighting(rows)
    auc, brier = _scores(study, y, study.predict(X, study.horizons).values, weighting)
    out: list[dict[str, object]] = []
    per_call = max(1, _ROWS_PER_CALL // (size * repeats))
    for start in range(0, p, per_call):
        some = X.columns[start : start + per_call]
        tables: list[pd.DataFrame] = [_shuffled(X, name, order) for name in some for order in orders]
        shuffled = pd.concat(tables, ignore_index=True)
        predicted = study.predict(shuffled, study.horizons).values.reshape(len(some), repeats, size, -1)
        for name, versions in zip(some, predicted, strict=True):
            scores = np.array([_scores(study, y, version, weighting) for version in versions])  # (repeats, 2, horizons)
            changes = {"auc_drop": auc - scores[:, 0], "brier_rise": scores[:, 1] - brier}
            for k, t in enumerate(study.horizons):
                row: dict[str, object] = {"feature": str(name), "horizon": t}
                for key, change in changes.items():
                    at = change[:, k]
                    row |= {key: at.mean(), f"{key}_low": at.min(), f"{key}_high": at.max()}
                out.append(row)
    return pd.DataFrame(out), {"repeats": repeats, "patients": size}


def _shuffled(X: pd.DataFrame, name: Any, order: IntArray) -> pd.DataFrame:
    out = X.copy()
    out[name] = X[name].array[order]
    return out


def _scores(study: Study, y: Outcome, survival: FloatArray, weighting: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return AUC and Brier score at every horizon; NaN where one is undefined for these patients."""
    curves = (survival, study.horizons)
    auc = cumulative_dynamic_auc(y, curves, times=study.horizons, **weighting)
    times, brier = brier_score(y, curves, study.horizons, **weighting)
    found = (dict(zip(auc.times, auc.auc, strict=True)), dict(zip(times, brier, strict=True)))
    of_auc, of_brier = (np.array([part.get(t, np.nan) for t in study.horizons]) for part in found)
    return of_auc, of_brier


def _cell(table: pd.DataFrame, name: str, t: float) -> str:
    row = table[(table["feature"] == name) & (table["horizon"] == t)].iloc[0]
    low, high = row["auc_drop_low"], row["auc_drop_high"]
    return with_interval(row["auc_drop"], low, high) if low < high else number(row["auc_drop"])
