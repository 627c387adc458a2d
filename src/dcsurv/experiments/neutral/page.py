"""What a run of the neutral benchmark writes: rows, tables, figures and the page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from dcsurv import figures
from dcsurv.experiments.neutral.check import FAILED, PUBLISHED_COX, TOLERANCE, UNCHECKED
from dcsurv.experiments.neutral.folder import SCORES, NeutralFolder, Score
from dcsurv.experiments.neutral.ranks import HIGHER_IS_BETTER, Field, critical_difference, differences_to, field_of
from dcsurv.experiments.tables import PublishedTable
from dcsurv.figures.ranks import mean_ranks
from dcsurv.messages import plural
from dcsurv.writing import make_folder, remove_file, together, write_atomically

NAMES: Final[dict[Score, str]] = {"harrell_c": "Harrell's C", "isbs": "ISBS"}
# An ISBS that is worse than the Cox model's by more than this share counts as harm.
HARM: Final = 0.02
_BEST: Final = 3  # published learners that differences are shown to


@dataclass(frozen=True)
class NeutralReport:
    """The results of a run, as they are written.

    Attributes
    ----------
    folder : NeutralFolder
        The published scores.
    models : list of str
        Ours; the first one is drawn.
    rows, failures : DataFrame
        What ``run_neutral`` returned for them.
    check : DataFrame
        What ``check_table`` returned.
    command : str
        What makes the same again.
    """

    folder: NeutralFolder
    models: Sequence[str]
    rows: pd.DataFrame
    failures: pd.DataFrame
    check: pd.DataFrame
    command: str
    fields: dict[tuple[str, Score], Field] = field(init=False)

    def __post_init__(self) -> None:
        fields = {
            (model, score): field_of(self.rows, self.folder.published_scores(score), model, score)
            for model in self.models
            for score in SCORES
        }
        object.__setattr__(self, "fields", fields)

    def write(self, out: Path) -> None:
        """Write ``rows.csv``, ``check.csv``, ``README.md`` and a figure for each score into a folder."""
        with together(out):
            self._write(out)

    def _write(self, out: Path) -> None:
        make_folder(out)
        rows = self.rows.drop(columns="not_comparable")
        write_atomically(out / "rows.csv", rows.to_csv(index=False, float_format="%.6g").encode())
        write_atomically(out / "check.csv", self.check.to_csv(index=False, float_format="%.3g").encode())
        pictures = []
        for score in SCORES:
            for old in out.glob(f"ranks-{score}.*"):
                remove_file(old)
            found = critical_difference(self.fields[self.models[0], score])
            if found is not None:
                drawn = mean_ranks(found.mean_ranks, found.groups(), found.difference, highlight=self.models[0])
                figures.save(drawn, out / f"ranks-{score}")
                text = (
                    f"Mean ranks by {NAMES[score]} over {found.cohorts} cohorts. Learners under one bar cannot be told "
                    f"apart (Nemenyi's test at 5 %; Friedman's p {_p_text(found.p_value)})."
                )
                if found.left_out:
                    text += f" Without {', '.join(found.left_out)}, which lack cohorts."
                pictures += [f"![Mean ranks by {NAMES[score]}](ranks-{score}.svg)", "", text, ""]
        write_atomically(out / "README.md", "\n".join(self._page(pictures)).encode())

    def _page(self, pictures: list[str]) -> list[str]:
        lines = ["# The neutral benchmark", "", f"Made by `{self.command}`. {self._what_ran()}", ""]
        if len(self.failures):
            lines += ["**Failed, and therefore left out of the means:**", ""]
            lines += [f"- {f.model} on {f.cohort}, fold {f.fold}: {f.cause}" for f in self.failures.itertuples()]
            lines += [""]
        lines += ["## Ranks", "", _markdown(self._models()), "", *pictures]
        lines += [f"Mean ranks of all learners, `{self.models[0]}` among them:", "", _markdown(self._all_ranks()), ""]
        lines += ["## Differences to the best published learners", ""]
        lines += [
            "Ours minus theirs, means over cohorts with 95 % Student intervals that take the cohorts for a sample. The "
            "best were found on these very folds, which flatters them. Higher is better in Harrell's C, lower in ISBS.",
            "",
            _markdown(self._differences()),
            "",
            "## Cohorts",
            "",
        ]
        for (model, score), one in self.fields.items():
            if len(one.ranks):
                lines += [f"`{model}`, {NAMES[score]}:", "", _markdown(self._cohorts(one)), ""]
        lines += ["## The check", "", *self._check_lines(), _markdown(self._check_cells()), ""]
        return [*lines, "Every fold: [rows.csv](rows.csv). CPU seconds are those of one fit, for information.", ""]

    def _what_ran(self) -> str:
        folds = self.rows.groupby("cohort")["fold"].nunique()
        out = f"{plural(len(folds), 'cohort')}, {plural(int(folds.sum()), 'fold')}."
        unranked = [name for name in folds.index if name not in set(self.folder.published["cohort"])]
        if unranked:
            out += f" Without published scores, and so without ranks: {', '.join(unranked)}."
        few = folds[folds < folds.max()]
        if len(few):
            out += f" Fewer folds than the others: {', '.join(few.index)}."
        return out

    def _models(self) -> pd.DataFrame:
        out = []
        for model in self.models:
            row: dict[str, Any] = {"model": f"`{model}`"}
            for score in SCORES:
                one = self.fields[model, score]
                row[f"mean rank, {NAMES[score]}"] = "–"
                if len(one.ranks):
                    k, place = one.ranks.shape[1], one.place
                    row[f"mean rank, {NAMES[score]}"] = f"{one.ranks[model].mean():.2f} (place {place:g} of {k})"
            harmed = self.harmed(model)
            row[f"ISBS worse than {PUBLISHED_COX}'s by more than {HARM:.0%}"] = (
                "–" if harmed is None else f"{plural(len(harmed), 'cohort')}{': ' if harmed else ''}{', '.join(harmed)}"
            )
            own = self.rows[self.rows["model"] == model]
            row["CPU seconds per fit"] = f"{own['cpu_seconds'].mean():.1f}" if len(own) else "–"
            out.append(row)
        return pd.DataFrame(out)

    def harmed(self, model: str) -> list[str] | None:
        """Return the cohorts on which a model's ISBS is clearly worse than the published Cox model's."""
        one = self.fields[model, "isbs"]
        if PUBLISHED_COX not in one.means:
            return None
        worse = one.ours[PUBLISHED_COX] > (1 + HARM) * one.means[PUBLISHED_COX]
        return [str(name) for name in worse.index[worse]]

    def _all_ranks(self) -> pd.DataFrame:
        columns = {f"{NAMES[score]}": self.fields[self.models[0], score].ranks.mean() for score in SCORES}
        table = pd.DataFrame(columns).sort_values(NAMES["isbs"], kind="stable")
        names = [f"**{name}**" if name == self.models[0] else str(name) for name in table.index]
        cells = {score: ["–" if pd.isna(x) else f"{x:.2f}" for x in table[score]] for score in table}
        return pd.DataFrame({"learner": names, **cells})

    def _differences(self) -> pd.DataFrame:
        out = []
        for (model, score), one in self.fields.items():
            best = [str(name) for name in one.mean_ranks.index if name != model][:_BEST]
            best += [PUBLISHED_COX] if PUBLISHED_COX in one.means and PUBLISHED_COX not in best else []
            for row in differences_to(one, best).to_dict("records"):
                interval = "–" if pd.isna(row["lower"]) else f"{row['lower']:+.4f} to {row['upper']:+.4f}"
                out.append(
                    {
                        "model": f"`{model}`",
                        "score": NAMES[score],
                        "against": row["learner"],
                        "difference": f"{row['difference']:+.4f}",
                        "95 % interval": interval,
                        "better in": f"{row['better']} of {row['cohorts']} cohorts",
                    }
                )
        return pd.DataFrame(out)

    def _cohorts(self, one: Field) -> pd.DataFrame:
        sizes = self.rows.drop_duplicates("cohort").set_index("cohort")
        folds = self.rows[self.rows["model"] == one.model].groupby("cohort")["fold"].nunique()
        out = []
        for cohort in one.ranks.index:
            theirs = one.means.loc[cohort].drop(one.model).dropna()
            best = theirs.idxmax() if HIGHER_IS_BETTER[one.score] else theirs.idxmin()
            cox = theirs.get(PUBLISHED_COX)
            out.append(
                {
                    "cohort": cohort,
                    "rows": f"{sizes.loc[cohort, 'rows']:,}",
                    "events": f"{sizes.loc[cohort, 'events']:,}",
                    "folds": folds[cohort],
                    "ours": f"{one.means.loc[cohort, one.model]:.4f}",
                    "rank": f"{one.ranks.loc[cohort, one.model]:g} of {one.ranks.loc[cohort].count()}",
                    "best published": f"{theirs[best]:.4f} ({best})",
                    PUBLISHED_COX: "–" if cox is None else f"{cox:.4f}",
                }
            )
        return pd.DataFrame(out)

    def _check_lines(self) -> list[str]:
        lines = [
            f"The published Cox model ({PUBLISHED_COX}), fitted and scored by this harness, and how far it is at most "
            f"from the published scores. Harrell's C must be met to {TOLERANCE['harrell_c']:g} where features are all "
            f"numbers, ISBS to {TOLERANCE['isbs']:g}, on every fold. To meet it, the rare levels of a category are "
            "pooled as the published pipeline did (the five most frequent are kept, and those of at least 5 % of the "
            "training patients; the others join the rarest of these), there is no penalty, and tied events follow "
            "Efron's rule in the baseline hazard, too. The models above get the levels as they are.",
            "",
        ]
        if (self.check["verdict"] == FAILED).any():
            lines += ["**The check failed, and was passed over: these ranks compare scores of two kinds.**", ""]
        unchecked = self.check.loc[self.check["verdict"] == UNCHECKED, "cohort"]
        return lines + ([f"Unchecked: {', '.join(unchecked)}.", ""] if len(unchecked) else [])

    def _check_cells(self) -> pd.DataFrame:
        return check_cells(self.check)


def check_cells(check: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the check for readers."""
    cells = check[["cohort", "folds"]].copy()
    for score in SCORES:
        cells[f"difference, {NAMES[score]}"] = ["–" if pd.isna(x) else f"{x:.1e}" for x in check[score]]
    reasons = zip(check["verdict"], check["why"], strict=True)
    cells["verdict"] = [f"{verdict} ({why})" if why else verdict for verdict, why in reasons]
    return cells


def _markdown(cells: pd.DataFrame) -> str:
    if cells.empty:
        return "None."
    return PublishedTable("", "", cells, cells).markdown().strip()


def _p_text(p: float) -> str:
    return "below 0.001" if p < 0.001 else f"{p:.3f}"
