"""Which features the predictions rest on: permutation importance at the horizons."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dcsurv.explanation import Importance, explain, permutation_importance
from dcsurv.figures import evaluation as draw
from dcsurv.report.blocks import Picture, Section, number, records, with_interval
from dcsurv.report.study import Study

FEATURES_SHOWN = 12
_REPEATS = 5
# Made-up patients of the figure, those that they are compared with, and sampled orders of the features of each.
_MADE_UP, _COMPARED, _ORDERS = 60, 30, 16


def importance(study: Study) -> tuple[Section, list[str]]:
    """Permutation importance at the horizons; also return the features, the most important first."""
    section = Section("importance", "What the predictions rest on")
    names = [str(name) for name in study.X.columns]
    section.say(
        "Each feature in turn is shuffled among the patients, so that it tells nothing any more, and the model "
        "predicts again. The more the ranking suffers, the more the model relied on that feature. This says what the "
        "model uses, not what would change the outcome. Features that say nearly the same are shuffled together."
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
                + ("; lines: range over the repeats." if used.repeats > 1 else "."),
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
    orders = f"Mean (lowest to highest) over {used.repeats} random orders" if used.repeats > 1 else "One random order"
    section.convention(
        f"{orders} of {used.patients:,} patients; AUC and Brier score with the "
        "conventions of the sections above. Negative values are chance."
    )
    section.numbers["importance"] = records(table)
    section.numbers["patients"] = used.patients
    _beeswarm(section, study)
    return section, [feature for name in order for feature in used.groups[name]]


def _permuted(study: Study) -> tuple[pd.DataFrame, Importance]:
    """Return what shuffling costs, a row per feature and horizon."""
    found = permutation_importance(
        study.model, study.features(study.X), study.y, horizons=study.horizons, metrics=("AUC", "Brier"),
        n_repeats=_REPEATS, n_bootstrap=0, censoring=study.follow_up, random_state=study.random_state,
    )  # fmt: skip
    table = found.table[["feature", "horizon"]].drop_duplicates().reset_index(drop=True)
    for metric, name in (("AUC", "auc_drop"), ("Brier", "brier_rise")):
        own = found.table[found.table["metric"] == metric].reset_index(drop=True)
        table = table.assign(**{name: own["value"], f"{name}_low": own["lower"], f"{name}_high": own["upper"]})
    return table, found


def _beeswarm(section: Section, study: Study) -> None:
    """Show what the features make of the risk of made-up patients."""
    at = study.middle_horizon
    if at is None or study.model.population_ is None:
        return
    with section.trying("What the features make of the risk"):
        table = study.model.population_.draw(_MADE_UP, study.random_state + 1)
        found = explain(
            study.model, study.features(table), times=[at], n_background=_COMPARED, n_pairs=_ORDERS,
            random_state=study.random_state,
        )  # fmt: skip
        change = np.abs(found.at(at).values).mean(axis=0)
        order = np.argsort(-change, kind="stable")
        words = ", ".join(f"{found.features[k]} {100 * change[k]:.1f}" for k in order[:3])
        section.show(
            Picture(
                "beeswarm",
                found.plot("beeswarm", time=at),
                f"What each feature makes of the risk by {study.when(at)} of made-up patients; largest mean change in "
                f"percentage points: {words}.",
                f"What each feature makes of the predicted risk by {study.when(at)}: a dot is one of {_MADE_UP} "
                "made-up patients, and its place how far the feature moves the risk from the average (Shapley value).",
            )
        )
        section.numbers["mean_risk_change"] = {found.features[k]: float(change[k]) for k in order}


def _cell(table: pd.DataFrame, name: str, t: float) -> str:
    row = table[(table["feature"] == name) & (table["horizon"] == t)].iloc[0]
    low, high = row["auc_drop_low"], row["auc_drop_high"]
    return with_interval(row["auc_drop"], low, high) if low < high else number(row["auc_drop"])
