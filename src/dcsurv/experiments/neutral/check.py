"""Whether the harness gives the published Cox model the scores that were published for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from dcsurv.experiments.neutral.folder import SCORES, NeutralFolder, Score
from dcsurv.experiments.neutral.tasks import REFERENCE

PUBLISHED_COX: Final = "CPH"
# How far a fold may be away. On the 17 cohorts that were seen none was a twentieth of it.
TOLERANCE: Final[dict[Score, float]] = {"harrell_c": 1e-3, "isbs": 3e-4}
MET, UNCHECKED, FAILED = "met", "unchecked", "not met"


def check_table(
    rows: pd.DataFrame, failures: pd.DataFrame, folder: NeutralFolder, cohorts: Sequence[str]
) -> pd.DataFrame:
    """Compare the Cox model of the harness with the published one.

    Parameters
    ----------
    rows : DataFrame
        What :func:`dcsurv.experiments.neutral.run_neutral` returned for ``REFERENCE``.
    failures : DataFrame
        Its failures.
    folder : NeutralFolder
        The published scores.
    cohorts : sequence of str
        Which cohorts to speak of.

    Returns
    -------
    DataFrame
        By cohort: ``folds`` compared, the largest absolute difference in ``harrell_c`` and ``isbs`` over them, the
        ``verdict`` ("met", "not met", "unchecked") and ``why``. Folds on which the published pipeline drew at random or
        in an unknown order are reported, but not decisive. With categories, Harrell's C is not decisive either.
    """
    ours = rows[rows["model"] == REFERENCE].set_index(["cohort", "fold"])
    theirs = {}
    for score in SCORES:
        table = folder.published_scores(score)
        theirs[score] = table[table["learner"] == PUBLISHED_COX].set_index(["cohort", "fold"])["value"]
    gap = pd.DataFrame({score: (ours[score] - theirs[score].reindex(ours.index)).abs() for score in SCORES})
    out = []
    for name in cohorts:
        lost = failures[(failures["cohort"] == name) & (failures["model"] == REFERENCE)]
        part = gap[gap.index.get_level_values("cohort") == name].dropna(how="all")
        reasons = ours.loc[part.index, "not_comparable"]
        sure = part[reasons == ""]
        decisive = [score for score in SCORES if score == "isbs" or not folder.cohort(name).categories]
        far = [score for score in decisive if (sure[score] > TOLERANCE[score]).any()]
        if len(lost):
            verdict, why = FAILED, str(lost["cause"].iloc[0])
        elif part.empty:
            verdict, why = UNCHECKED, f"no published {PUBLISHED_COX}"
        elif far:
            verdict, why = FAILED, f"{' and '.join(far)} too far away"
        elif sure.empty:
            verdict, why = UNCHECKED, "; ".join(dict.fromkeys(reasons))
        else:
            verdict, why = MET, "; ".join(dict.fromkeys(one for one in reasons if one))
        out.append({"cohort": name, "folds": len(part), **part.max(), "verdict": verdict, "why": why})
    return pd.DataFrame(out)
