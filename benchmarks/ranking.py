"""Whether anything would rank patients better where events are many: other members, other weights, another mean.

On cohorts with hundreds of events or more, of the neutral benchmark (FOLDER, as for ``benchmarks/neutral.py``) and of
``benchmarks/development.py``; none is one of the paper's three. Members are trained once by cross-fitting, as
``CalibratedEnsemble()`` does, and beside them larger trees and other networks; every way combines the same curves.
Writes the rows and the page of ``docs/results/ranking``. Curves and rows that are there already are not computed again:
delete them when a model has changed.

    python benchmarks/ranking.py FOLDER [--workers 1] [--cache reproduction/ranking]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit

import development
from dcsurv import CoxTime, DeepSurv
from dcsurv.calibration import default_member
from dcsurv.calibration.families import common_nodes, folds_for, templates_for
from dcsurv.calibration.horizon_fit import known_free, known_weights
from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.neutral import NeutralFolder
from dcsurv.follow_up import study_follow_up
from dcsurv.kinds import make_model
from dcsurv.target import fold_indices
from dcsurv.training import one_thread
from stacking import (
    CHOSEN,
    FAMILIES,
    IDENTITY,
    LEVELS,
    OWN_METRICS,
    Combiner,
    Curves,
    Way,
    against_chosen,
    by_cohort,
    combiner_of,
    data_of,
    mean_of,
    scores,
    train,
    weights_of,
)
from studies import RESULTS, Rows, markdown, run_missing

OUT = RESULTS / "ranking"
CACHE = RESULTS.parents[1] / "reproduction" / "ranking"
COHORTS = {
    "neutral": ("colrec", "gbsg", "nwtco", "rdata"),
    "packaged": ("framingham", "rotterdam", "seer", "smart"),
}
SPLITS = {"neutral": (1, 2, 3), "packaged": (100, 101, 102)}
_CHOICE = Way()

# --- other members ----------------------------------------------------------------------------------------------------

_ALL = {"subsample": 1.0, "folds": 3}
_DEEP = {"subsample": 0.632, "n_trees": 50}
# What takes the place of the boosted trees or of the forest.
TREES: dict[str, tuple[str, dict[str, Any]]] = {
    "boosting, all patients for every tree": ("boosted", _ALL),
    "boosting, all patients, 5 deep": ("boosted", _ALL | {"max_depth": 5, "min_leaf": 8.0}),
    "boosting, all patients, 4 deep, half the step, up to 400 rounds": (
        "boosted",
        _ALL | {"max_depth": 4, "min_leaf": 5.0, "learning_rate": 0.05, "max_rounds": 400},
    ),
    "forest, .632 of the patients for every tree": ("forest", _DEEP),
    "forest, .632 of the patients, 10 deep": ("forest", _DEEP | {"max_depth": 10}),
    "forest, .632 of the patients, 14 deep, smaller leaves, 100 trees": (
        "forest",
        _DEEP | {"max_depth": 14, "min_leaf": 2.0, "n_trees": 100},
    ),
    "forest, 10 deep, 150 trees": ("forest", {"max_depth": 10, "n_trees": 150}),
}
# What is added as a sixth family.
SIXTH: dict[str, Any] = {
    "networks 128 wide": lambda: default_member(encoder_size=128),
    "networks with the LSTM": lambda: default_member(decoder_layers=1),
    "networks without bins of the features": lambda: default_member(feature_bins=0),
    "networks without the kernel of the loss": lambda: default_member(lam=0.0),
    "CoxTime": CoxTime,
    "DeepSurv": DeepSurv,
}


def cross_fitted(F: Any, y: Any, T: Any, seed: int, keep: Any) -> dict[str, Curves]:
    """Return the curves of the five families, of larger trees and of other networks, all with the same folds."""
    nodes, events = common_nodes(y), int(y["event"].sum())
    n_folds = folds_for(events)
    on = events * (n_folds - 1) // n_folds
    folds = fold_indices(y, n_folds=n_folds, random_state=seed)
    templates = dict(zip(FAMILIES, templates_for(None, None, on)[0], strict=True))
    for name, (kind, settings) in TREES.items():
        [templates[name]], _ = templates_for(make_model(kind).set_params(**settings), None, on)
    for name, make in SIXTH.items():
        [templates[name]], _ = templates_for(make(), None, on)
    out = {}
    for k, (name, template) in enumerate(templates.items()):
        n_seeds = 2 if name == "dcs" else 1
        seeds = [seed + k * 100 + j for j in range(n_folds * n_seeds)]
        out[name] = mean_of(keep(name, partial(train, template, F, y, T, nodes, folds, seeds)))
    return out


# --- weights by the order of patients ---------------------------------------------------------------------------------

_PAIRS = 6000  # that are drawn at each horizon
_SOFTNESS = 0.1  # of the step from wrong to right order, in standard deviations of the predictions at a horizon


def order_weights(
    y: Any, nodes: np.ndarray, curves: Sequence[np.ndarray], start: np.ndarray, share: float, groups: Any
) -> np.ndarray:
    """Return weights by the Brier score and the order of patients out of fold.

    Parameters
    ----------
    start
        Where the search begins, and what weights are drawn to with half a patient's error.
    share
        How much one minus the AUC counts beside the Brier score by that of the mean for all; infinite: alone.
    """
    quantiles = np.quantile(y["time"][y["event"]], LEVELS)
    at = np.unique(np.minimum(np.searchsorted(nodes, quantiles), len(nodes) - 1))
    known = known_weights(y["time"], y["event"], nodes[at], np.ones(len(y)), groups)
    free = known_free(y["time"], y["event"], nodes[at]).astype(bool)
    survival = np.stack([curve[:, at].T for curve in curves])
    rng = np.random.RandomState(0)

    def drawn(h: int, who: np.ndarray) -> np.ndarray:
        mass = np.where(who, known[h], 0.0)
        return rng.choice(len(y), _PAIRS, p=mass / mass.sum())

    usable = [h for h in range(len(at)) if (known[h] * free[h]).sum() > 0 and (known[h] * ~free[h]).sum() > 0]
    gaps = {h: survival[:, h, drawn(h, free[h])] - survival[:, h, drawn(h, ~free[h])] for h in usable}
    total = known.sum(axis=1)
    alive = (known * free).sum(axis=1) / total
    of_all = float(np.mean(alive * (1 - alive)))

    def loss(logits: np.ndarray) -> float:
        weights = _softmax(logits)
        mean = np.tensordot(weights, survival, 1)
        brier = float(np.mean((known * (free - mean) ** 2).sum(axis=1) / total)) / of_all
        wrong = [expit(-(weights @ gap) / (_SOFTNESS * mean[h].std())).mean() for h, gap in gaps.items()]
        prior = 0.5 * np.sum((weights - start) ** 2) / (len(y) * of_all)
        return prior + (float(np.mean(wrong)) if np.isinf(share) else brier + share * float(np.mean(wrong)))

    return _softmax(minimize(loss, np.log(np.maximum(start, 1e-3)), method="L-BFGS-B").x)


def _softmax(logits: np.ndarray) -> np.ndarray:
    out = np.exp(logits - logits.max())
    return out / out.sum()


# --- ways -------------------------------------------------------------------------------------------------------------

SHARES = {"the order counts a third": 0.3, "the order counts as much": 1.0, "only the order": np.inf}
# Weights that change with time: found in so many parts of it, with such a strength of the prior.
IN_PARTS = {
    "early and late weights": (2, _CHOICE.strength),
    "weights in four parts of time": (4, _CHOICE.strength),
    "weights in four parts of time, stronger prior": (4, 3.0),
}
LOG_MEAN = "mean of log(-log S)"


def ways(combine: Combiner) -> dict[str, SurvivalCurves]:
    """Return the curves of the test patients by every way."""
    out = {CHOSEN: combine(_CHOICE)}
    for way, name in ALONE.items():
        out[way] = combine(Way((name,), after=(0, 0)))
    for name, (kind, _) in TREES.items():
        families = tuple(name if one == kind else one for one in FAMILIES)
        out[name] = combine(Way(families))  # with the same prior: that of boosted trees is 1, a forest keeps its name
    for name in SIXTH:
        out[name] = combine(Way((*FAMILIES, name)))
    curves = {name: found[0] for name, found in out.items() if found is not None}
    return curves | _other_means(combine)


def _other_means(combine: Combiner) -> dict[str, SurvivalCurves]:
    parts = [combine.family(name, _CHOICE.before) for name in FAMILIES]
    inside = [part.out_of_fold for part in parts]
    prior = np.asarray([_CHOICE.prior.get(name, 1.0) for name in FAMILIES])
    groups = combine.follow_up.groups if combine.follow_up.depends else None
    find = partial(weights_of, combine.y, combine.nodes, inside, prior, groups=groups)

    def over_time(n_parts: int, strength: float) -> SurvivalCurves:
        """Weigh by weights that run linearly between the middles of the parts."""
        quantiles = np.array_split(LEVELS, n_parts)
        middles = np.quantile(combine.y["time"][combine.y["event"]], [np.median(part) for part in quantiles])
        found = np.stack([find(strength, levels=part) for part in quantiles], axis=1)
        weights = np.stack([np.interp(combine.nodes, middles, own) for own in found])
        means = (np.einsum("ft,fnt->nt", weights, np.stack(each)) for each in zip(*parts, strict=True))
        return combine.finished(Curves(*(np.minimum.accumulate(mean, axis=1) for mean in means)), _CHOICE.after)

    def curves(weights: np.ndarray, there: Any, back: Any) -> SurvivalCurves:
        means = (back(np.tensordot(weights, there(np.stack(each)), 1)) for each in zip(*parts, strict=True))
        return combine.finished(Curves(*means), _CHOICE.after)

    out = {
        name: curves(order_weights(combine.y, combine.nodes, inside, prior / prior.sum(), share, groups), _same, _same)
        for name, share in SHARES.items()
    }
    out |= {name: over_time(*how) for name, how in IN_PARTS.items()}
    return out | {LOG_MEAN: curves(find(_CHOICE.strength), _log_log, _from_log_log)}


def _same(survival: np.ndarray) -> np.ndarray:
    return survival


def _log_log(survival: np.ndarray) -> np.ndarray:
    return np.log(-np.log(np.clip(survival, 1e-6, 1 - 1e-6)))


def _from_log_log(value: np.ndarray) -> np.ndarray:
    return np.exp(-np.exp(value))


def one(kind: str, cohort: str, split: int, source: Any, cache: Path) -> list[dict[str, Any]]:
    """Return the rows of one split: every way."""
    data = data_of(kind, cohort, split, source)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the last times of small test parts have no censoring weight
        found = ways(combiner_of(data, cross_fitted, cache, kind, cohort, split))
        follow_up = study_follow_up(data.X_test, data.y_test)
        scored = {name: scores("packaged", data, curves, follow_up) for name, curves in found.items()}
    identity = dict(zip(IDENTITY, (kind, cohort, split), strict=True))
    return [{**identity, "way": name, **{k: round(v, 5) for k, v in of.items()}} for name, of in scored.items()]


# --- the page ---------------------------------------------------------------------------------------------------------

ALONE = {f"{name} alone": name for name in FAMILIES}
TABLES = {
    "Other trees in place of the same": list(TREES),
    "A sixth family": list(SIXTH),
    "Other weights, another mean": [*SHARES, *IN_PARTS, LOG_MEAN],
    "For comparison: one family alone, with its horizon map": list(ALONE),
}


def page(rows: pd.DataFrame) -> str:
    """Return the page; before anything was run, it says so."""
    lines = ["# Would anything rank patients better where events are many?", ""]
    lines += ["Made by `make ranking FOLDER=...`; every number is in rows.csv beside this page.", ""]
    if not len(rows):
        return "\n".join([*lines, "Nothing was run yet.", ""])
    found = {metric: against_chosen(by_cohort(rows, metric)) for metric in OWN_METRICS}
    own = ", ".join(f"{metric} {table.loc[CHOSEN, 'mean']:.4f}" for metric, table in found.items())
    lines += [
        f"Differences to the default ensemble, means over {', '.join(dict.fromkeys(rows['cohort']))}, three splits of "
        "each; ±: standard error, cohort by cohort. C-td and CDAUC: higher is better; IBS, DDC and ICI: lower is "
        f"better. None of these cohorts is one of the paper's three. The default itself has {own}.",
        "",
        "Nothing was chosen by this: the default is as it was. The first of these changes were tried on the same "
        "splits before, in scripts that were not kept, with other seeds and the same outcome.",
        "",
        *(_most(metric, found[metric]) for metric in ("C-td", "CDAUC")),
        "",
    ]
    for title, names in TABLES.items():
        table = [
            [ALONE.get(name, name), *(_gap(of.loc[name]) for of in found.values())]
            for name in names
            if name in found["C-td"].index
        ]
        lines += [f"## {title}", "", *markdown(["what", *OWN_METRICS], table)]
    return "\n".join(lines)


def _gap(found: pd.Series) -> str:
    return f"{found['gap']:+.4f} ± {found['error']:.4f}".replace("-0.0000 ", "0.0000 ").replace("+0.0000 ", "0.0000 ")


def _most(metric: str, found: pd.DataFrame) -> str:
    """Say which change gained most."""
    tried = found.drop(index=[CHOSEN, *ALONE], errors="ignore")
    best = tried["gap"].idxmax()
    apart = int((tried["gap"] > 2 * tried["error"]).sum())
    return (
        f"- {metric}: gains beyond two standard errors in {apart} of {len(tried)} changes; with so many, some are "
        f"chance. Largest gain: {best}, {_gap(tried.loc[best])}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder with cohorts.json")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE, help="where curves are kept")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    folder, packaged = NeutralFolder(options.folder), dict(development.cohorts())
    tasks = [
        (kind, cohort, split, folder.path if kind == "neutral" else packaged[cohort], options.cache)
        for kind, cohorts in COHORTS.items()
        for cohort in cohorts
        for split in SPLITS[kind]
    ]
    rows = Rows(options.output / "rows.csv", IDENTITY)
    run_missing(rows, tasks, one, options.workers)
    rows.sort()
    rows.write()
    (options.output / "README.md").write_text(page(rows.frame), encoding="utf-8")


if __name__ == "__main__":
    main()
