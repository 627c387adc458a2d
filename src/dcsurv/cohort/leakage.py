"""Columns that have seen the outcome."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.cohort.cohort import Cohort
from dcsurv.cohort.findings import Finding
from dcsurv.messages import Message, Parameter
from dcsurv.target import FloatArray, make_outcome

# A column that alone ranks patients this well, or tells so surely who has the event, has most likely seen the outcome.
_SUSPICIOUS_C, _SUSPICIOUS_AUC, _SUSPICIOUS_RANK = 0.9, 0.95, 0.95
# A column known for one kind of patients and not for the other, by this much.
_ONE_SIDED = 0.5
# Patients that the search for leaks looks at, which is plenty.
_LOOKED_AT = 3000
# A level's event rate counts as if this many average patients were in it as well.
_PRIOR, _LEAST_LEVEL = 5.0, 5


def leaks(cohort: Cohort) -> Iterator[Finding]:
    """Find columns that alone rank patients, or tell who has the event, too well to be true."""
    if cohort.events < 10 or len(cohort) < 20 or (cohort.time < 0).any():
        return
    from scipy.stats import rankdata

    from dcsurv.metrics import concordance_index_harrell

    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(cohort))[:_LOOKED_AT])
    part = cohort.take(rows)
    for name in part.features.columns:
        score = _scores(part.features[name], part.event)
        known = ~np.isnan(score)
        event, time = part.event[known], part.time[known]
        if known.sum() < 20 or event.sum() < 5 or len(np.unique(score[known])) < 2:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            c = concordance_index_harrell(make_outcome(time, event), score[known])
        c = max(c, 1 - c)
        auc = _auc(score[known], event)
        rank = abs(float(np.corrcoef(rankdata(score[known]), rankdata(time))[0, 1]))
        reasons = []
        if c >= _SUSPICIOUS_C:
            reasons.append(f"ranks patients with C = {c:.3f}")
        if auc >= _SUSPICIOUS_AUC:
            reasons.append(f"tells events from censored patients with AUC = {auc:.3f}")
        if rank >= _SUSPICIOUS_RANK and not reasons:
            reasons.append(f"runs along with the time under observation (rank correlation {rank:.3f})")
        if reasons:
            yield Finding(
                "warning", "leakage", f"{name!r} alone {' and '.join(reasons)}, which is too good to be true.",
                Message(
                    "If it was not known at time 0 (a date of death, a follow-up, another form of the outcome), use "
                    "{drop}.", drop=Parameter("drop", [name]),
                ), "drop",
                (name,), {"c": c, "auc": auc, "rank_correlation": rank},
            )  # fmt: skip


def _scores(column: pd.Series, event: Any) -> FloatArray:
    """Return a number per patient: the value, or the event rate of the patient's level, drawn to that of all."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64)
    codes = pd.factorize(column)[0]
    out = np.full(len(codes), np.nan)
    known = codes >= 0
    if known.any():
        happened = np.asarray(event, dtype=np.float64)[known]
        size, total = np.bincount(codes[known]), np.bincount(codes[known], weights=happened)
        rate = (total + _PRIOR * happened.mean()) / (size + _PRIOR)
        # Small levels together say nothing about one column, but their rates would seem to.
        out[known] = np.where(size >= _LEAST_LEVEL, rate, np.nan)[codes[known]]
    return out


def _auc(score: FloatArray, event: Any) -> float:
    n_events, n_censored = int(event.sum()), int((~event).sum())
    if n_censored < 5:
        return 0.5
    from scipy.stats import rankdata

    ranks = rankdata(score)
    auc = (ranks[event].sum() - n_events * (n_events + 1) / 2) / (n_events * n_censored)
    return float(max(auc, 1 - auc))


def one_sided(cohort: Cohort) -> Iterator[Finding]:
    """Find columns that only patients with the event have, or only those without."""
    event = cohort.event
    if event.sum() < 5 or (~event).sum() < 5:
        return
    for name in cohort.features.columns:
        known = cohort.features[name].notna().to_numpy()
        with_event, without = float(known[event].mean()), float(known[~event].mean())
        if abs(with_event - without) >= _ONE_SIDED:
            who = "patients with the event" if with_event > without else "censored patients"
            yield Finding(
                "warning", "known-for-one-side",
                f"{name!r} is known mostly for {who} ({with_event:.0%} of those with the event, {without:.0%} of the "
                "others).",
                Message(
                    "What is written down because of the outcome gives it away: use {drop}.",
                    drop=Parameter("drop", [name]),
                ), "drop",
                (name,), {"known_with_event": with_event, "known_censored": without},
            )  # fmt: skip
