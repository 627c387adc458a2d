"""The neutral benchmark: cohorts, folds and scores of others (Burk et al., 2024), and our models among theirs."""

from dcsurv.experiments.neutral.folder import SCORES, NeutralCohort, NeutralFolder
from dcsurv.experiments.neutral.ranks import Field, critical_difference, differences_to, field_of
from dcsurv.experiments.neutral.scores import harrell, isbs, predicted_risk
from dcsurv.experiments.neutral.tasks import REFERENCE, neutral_tasks, run_neutral, scores_of

__all__ = [
    "REFERENCE",
    "SCORES",
    "Field",
    "NeutralCohort",
    "NeutralFolder",
    "critical_difference",
    "differences_to",
    "field_of",
    "harrell",
    "isbs",
    "neutral_tasks",
    "predicted_risk",
    "run_neutral",
    "scores_of",
]
