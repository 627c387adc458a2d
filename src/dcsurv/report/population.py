"""The patients: who they are, how long they were followed, what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.figures import evaluation as draw
from dcsurv.nonparametric import StepFunction, censoring_curve, kaplan_meier
from dcsurv.report.blocks import NOT_COMPUTED, Picture, Section, number, percent, short, with_interval
from dcsurv.report.study import Study

# A count of this many patients or more says nothing about one of them.
SMALL_CELL = 5
_MAX_FEATURES = 40
_MAX_LEVELS = 8
# A number with at most this many different values is shown by its values, such as 0 and 1.
FEW_VALUES = 6
_HIDDEN = "hidden"


def cohort(study: Study) -> Section:
    """Describe the features, for all patients and by event status."""
    section = Section("cohort", "The patients")
    X, event = study.X, study.y["event"]
    n, n_events = len(X), study.n_events
    groups = {"all": np.ones(n, dtype=bool), "event": event, "censored": ~event}
    header = [
        "",
        f"all\nn\u00a0=\u00a0{n:,}",
        f"event\nn\u00a0=\u00a0{n_events:,}",
        f"censored\nn\u00a0=\u00a0{n - n_events:,}",
        "missing",
    ]
    if study.X_train is not None:
        header.append(f"training\nn\u00a0=\u00a0{len(study.X_train):,}")
    rows: list[list[str]] = []
    indented: set[int] = set()
    described: dict[str, Any] = {}
    for name in X.columns[:_MAX_FEATURES]:
        column = X[name]
        train = None if study.X_train is None else study.X_train[name]
        missing = int(column.isna().sum())
        missing_text = f"{missing:,} ({percent(missing / n)})" if missing else "0"
        if is_number(column):
            digits = _digits(column)
            cells = [_quartiles(column[rows_of], digits) for rows_of in groups.values()] + [missing_text]
            rows.append(
                [f"{name}, median (quartiles)", *cells, *([] if train is None else [_quartiles(train, digits)])]
            )
            described[str(name)] = {"all": cells[0], "event": cells[1], "censored": cells[2], "missing": missing}
        else:
            pooled = pooled_levels(column)
            rows.append([f"{name}, n (%)", "", "", "", missing_text, *([] if train is None else [""])])
            levels = _levels(pooled, groups, None if train is None else train)
            for level, texts in levels.items():
                indented.add(len(rows))
                rows.append([level, *texts[:3], "", *texts[3:]])
            described[str(name)] = {"levels": levels, "missing": missing}
    section.say(
        f"{n:,} patients whom the model was {'' if study.seen else 'not '}trained on are what every number below rests "
        f"on{f', from {study.data_name}' if study.data_name else ''}; {n_events:,} of them had the event."
    )
    section.table("Features by event status", header, rows, indented=frozenset(indented))
    if X.shape[1] > _MAX_FEATURES:
        section.note(f"The table shows the first {_MAX_FEATURES} of {X.shape[1]} features.")
    section.convention(
        "Numbers: median (lower and upper quartile) of the known values. Categories: patients (share of the known "
        f"values). Levels with fewer than {SMALL_CELL} patients are pooled as “other”, and where a cell by event "
        f"status would count 1 to {SMALL_CELL - 1} patients, the split by status of that feature is hidden, so that "
        "nobody can be recognised; beside a hidden count of training patients another one is hidden. Check what your "
        "own rules on disclosure ask for before you share this page. Event "
        "and censored patients differ in follow-up; no test is made between them."
    )
    section.numbers |= {"patients": n, "events": n_events, "features": described}
    return section


def follow_up(study: Study) -> Section:
    """Describe censoring and follow-up."""
    section = Section("follow-up", "Censoring and follow-up")
    y = study.y
    n, last = len(y), float(y["time"].max())
    survival, watched = kaplan_meier(y), censoring_curve(y, events_first=False)
    median_follow_up, median_survival = _median(watched), _median(survival)
    censored = 1 - study.n_events / n
    section.say(
        f"{study.n_events:,} of {n:,} patients had the event; {percent(censored)} were censored. Median follow-up was "
        f"{_when(study, median_follow_up)}, the longest {study.when(last)}. "
        + (
            f"Half of the patients had had the event by {study.when(median_survival)}."
            if median_survival is not None
            else "Survival stayed above one half during follow-up, so that there is no median survival time."
        )
    )
    for t, reason in study.left_out:
        section.warn(f"The horizon {study.when(t)} is left out of this report: {reason}.")
    last_node = float(study.curves.times[-1])
    if last_node < last:
        section.note(
            f"The model predicts up to {study.when(last_node)}; beyond that its curves are held constant, and the few "
            "patients seen for longer are judged by that value."
        )
    interval = None
    with section.trying("The interval of the Kaplan-Meier curve"):
        interval = _interval(y)
    section.show(
        Picture(
            "follow-up",
            draw.follow_up(y, unit=study.unit, interval=interval),
            f"Kaplan-Meier curve of the {n} patients, falling to {number(float(survival.values[-1]), 2)} at the end "
            "of follow-up, with the curve of follow-up and the numbers at risk below.",
            "Kaplan-Meier curve with 95% interval, follow-up (reverse Kaplan-Meier) and numbers at risk.",
        )
    )
    at_horizons = []
    for t in study.horizons:
        value = float(survival(t))
        low, high = (None, None) if interval is None else _read_interval(interval, t)
        at_horizons.append(
            {
                "horizon": t,
                "at_risk": int((y["time"] >= t).sum()),
                "events": int((y["event"] & (y["time"] <= t)).sum()),
                "survival": value,
                "lower": low,
                "upper": high,
            }
        )
    if at_horizons:
        section.table(
            "Survival of the cohort at the horizons",
            ["horizon", "at risk", "events so far", "survival (95% interval)"],
            [
                [
                    study.when(r["horizon"]),
                    f"{r['at_risk']:,}",
                    f"{r['events']:,}",
                    with_interval(r["survival"], r["lower"], r["upper"]),
                ]
                for r in at_horizons
            ],
        )
    section.numbers |= _reach(section, study)
    section.convention(
        "Median follow-up: reverse Kaplan-Meier, in which censoring is the event and patients with an event count as "
        "censored. Survival: Kaplan-Meier; interval: Greenwood’s variance on the log(−log) scale, pointwise. At "
        "risk: still under observation just before the time. Horizons (chosen by the user or, without a choice, the "
        "quartiles of the event times), exactly: "
        f"{', '.join(f'{t:g}' for t in study.horizons) or 'none could be used'}."
    )
    section.numbers |= {
        "median_follow_up": median_follow_up,
        "median_survival": median_survival,
        "censored_share": censored,
        "last_time": last,
        "horizons": at_horizons,
        "left_out": [{"horizon": t, "reason": reason} for t, reason in study.left_out],
    }
    return section


def _reach(section: Section, study: Study) -> dict[str, Any]:
    """Say which features decide how long a patient could be followed, and what is predicted beyond that."""
    found = study.follow_up
    if found.depends:
        section.warn(
            f"{found.describe()} How long a patient could be followed depends on who it is; with one censoring curve "
            "for all, the Brier score, the AUC and the calibration at a horizon would be wrong, and would favour "
            "models that predict death where nobody could be followed. So the weights on this page follow the "
            "features, and patients count at times that at least 5% of those like them could reach."
        )
    elif not np.isnan(found.concordance):
        section.say(
            "The features hardly predict who is censored when (concordance "
            f"{number(found.concordance, 2)}; 0.5 is not at all), so one censoring curve serves for all."
        )
    until = study.curves.followed_to
    reach: list[dict[str, Any]] = []
    if until is not None and np.isfinite(until).all():
        reach = [{"horizon": t, "beyond": float((until < t).mean())} for t in study.horizons]
        counted = found.followed_until[found.groups]
        for row in reach:
            row["counted"] = float((counted >= row["horizon"]).mean()) if found.depends else 1.0
        low, high = float(until.min()), float(until.max())
        if low < high:
            section.table(
                "How far patients like these were followed in training",
                ["horizon", "patients for whom it lies beyond that", "patients who count in the metrics"],
                [[study.when(r["horizon"]), percent(r["beyond"]), percent(r["counted"])] for r in reach],
            )
            section.note(
                f"Patients like these were followed to {study.when(low)}, or to as late as {study.when(high)}, "
                "depending on their features. What is predicted for later was learnt from patients with other "
                "features; it is drawn dashed."
            )
    return {
        "censoring": {
            "depends_on_features": found.depends,
            "concordance": found.concordance,
            "p_value": found.p_value,
            "features": [{"feature": one.feature, "concordance": one.concordance} for one in found.features],
        },
        "reach": reach,
    }


def missing(study: Study) -> Section:
    """Describe missing values."""
    section = Section("missing", "Missing values")
    share = study.X.isna().mean()
    some = share[share > 0].sort_values(ascending=False)
    complete = float(study.X.notna().all(axis=1).mean())
    section.numbers |= {"complete_rows": complete, "share": {str(k): float(v) for k, v in some.items()}}
    if some.empty:
        section.say(f"No value is missing in the {study.X.shape[1]} features of these patients.")
    else:
        most = some.index[0]
        section.say(
            f"{len(some)} of {study.X.shape[1]} features have missing values, most of them {most} "
            f"({percent(some.iloc[0])}). {percent(complete)} of the patients have all values."
        )
        shown = some.head(25)
        caption = "Share of missing values" + (f", the 25 features with most of {len(some)}" if len(some) > 25 else "")
        listing = ", ".join(f"{name} {percent(value)}" for name, value in shown.head(5).items())
        section.show(
            Picture(
                "missing", draw.missing_values(shown), f"Bars of the share of missing values: {listing}.", caption + "."
            )
        )
        empty = [str(name) for name in share.index[share == 1]]
        if empty:
            section.warn(f"Without a single value here: {', '.join(empty)}.")
    preprocessor = getattr(study.model, "preprocessor_", None)
    section.convention(
        "How the model treats them: numbers get the median, categories the most frequent level of the training "
        "patients; levels that it has never seen count as missing."
        if type(preprocessor).__name__ == "Preprocessor"
        else "The model has no imputation of the library’s own; see its settings."
    )
    return section


def is_number(column: pd.Series) -> bool:
    """Whether a feature is summed up by quartiles rather than by its levels."""
    if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return False
    return int(column.nunique()) > FEW_VALUES


def level_text(value: Any) -> str:
    return short(float(value)) if isinstance(value, float | np.floating) else str(value)


def _quartiles(column: pd.Series, digits: int) -> str:
    known = pd.to_numeric(column, errors="coerce").dropna().to_numpy(dtype=np.float64)
    if len(known) < SMALL_CELL:
        return NOT_COMPUTED
    low, middle, high = (f"{value:,.{digits}f}" for value in np.quantile(known, [0.25, 0.5, 0.75]))
    return f"{middle} ({low}\u2060–\u2060{high})".replace("-", "−")  # word joiners: no line ends at the dash


def _digits(column: pd.Series) -> int:
    """Return how many digits after the point show the spread of a feature to two figures."""
    known = column.dropna().to_numpy(dtype=np.float64)
    spread = float(np.subtract(*np.quantile(known, [0.75, 0.25]))) if len(known) else 0.0
    if spread <= 0 or (known == np.round(known)).all():
        return 0 if len(known) and (known == np.round(known)).all() else 2
    return int(np.clip(1 - np.floor(np.log10(spread)), 0, 6))


def pooled_levels(column: pd.Series) -> pd.Series:
    """Return the levels as text, rare ones and those beyond the most frequent few as "other"."""
    texts = column.astype(object).map(level_text, na_action="ignore")
    counts = texts.value_counts()
    kept = counts[counts >= SMALL_CELL].head(_MAX_LEVELS)
    rest = int(counts.sum() - kept.sum())
    if 0 < rest < SMALL_CELL and len(kept):
        kept = kept.iloc[:-1]  # alone, the rest would be a small cell itself
    if rest == 0:
        return texts
    other = f"other ({len(counts) - len(kept)} levels)"
    return texts.where(texts.isin(kept.index) | texts.isna(), other)


def _levels(
    texts: pd.Series, groups: dict[str, npt.NDArray[np.bool_]], train: pd.Series | None
) -> dict[str, list[str]]:
    """Return by level the cells of the table: all, event, censored and, if there is one, training."""
    counts = pd.DataFrame({key: texts[rows].value_counts() for key, rows in groups.items()}).fillna(0).astype(int)
    counts = counts.loc[sorted(counts.index, key=lambda level: (level.startswith("other ("), _order(level)))]
    hide = small_cells(counts[["event", "censored"]])
    out: dict[str, list[str]] = {}
    trained = None if train is None else _training_cells(train, [str(level) for level in counts.index])
    for level, row in counts.iterrows():
        cells = []
        for key in groups:
            total = int(counts[key].sum())
            hidden = (hide and key != "all") or 0 < row[key] < SMALL_CELL
            cells.append(_HIDDEN if hidden else f"{row[key]:,} ({percent(row[key] / total)})" if total else "0")
        out[str(level)] = cells if trained is None else [*cells, trained[str(level)]]
    return out


def small_cells(counts: Any) -> bool:
    """Whether some counts are so small that they may point to a patient."""
    values = np.asarray(counts)
    return bool(((values > 0) & (values < SMALL_CELL)).any())


def _training_cells(train: pd.Series, levels: list[str]) -> dict[str, str]:
    """Count the levels of the training patients; beside a small cell, another one is hidden, or the sum would tell."""
    texts = train.astype(object).map(level_text, na_action="ignore").dropna()
    counts = {
        level: int((~texts.isin(levels) if level.startswith("other (") else texts == level).sum()) for level in levels
    }
    hidden = {level for level, count in counts.items() if 0 < count < SMALL_CELL}
    large = [level for level in levels if counts[level] >= SMALL_CELL]
    if hidden and large:
        hidden.add(min(large, key=lambda level: counts[level]))
    return {
        level: _HIDDEN if level in hidden else f"{count:,} ({percent(count / max(1, len(texts)))})"
        for level, count in counts.items()
    }


def _order(level: str) -> tuple[int, float, str]:
    try:
        return 0, float(level.replace(",", "")), level
    except ValueError:
        return 1, 0.0, level


def _median(curve: StepFunction) -> float | None:
    reached = np.flatnonzero(curve.values <= 0.5)
    return float(curve.times[reached[0]]) if len(reached) else None


def _when(study: Study, t: float | None) -> str:
    return "not reached" if t is None else study.when(t)


def _interval(y: npt.NDArray[np.void]) -> pd.DataFrame:
    from lifelines import KaplanMeierFitter

    fitted = KaplanMeierFitter().fit(y["time"], y["event"]).confidence_interval_survival_function_
    table = pd.DataFrame(
        {"time": fitted.index, "lower": fitted.iloc[:, 0].to_numpy(), "upper": fitted.iloc[:, 1].to_numpy()}
    )
    return table.fillna({"lower": 0.0, "upper": 1.0}) if table["lower"].isna().all() else table.ffill()


def _read_interval(interval: pd.DataFrame, t: float) -> tuple[float, float]:
    at = int(np.searchsorted(interval["time"].to_numpy(), t, side="right")) - 1
    return float(interval["lower"].iloc[at]), float(interval["upper"].iloc[at])
