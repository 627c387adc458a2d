"""The neutral benchmark: cohorts, folds and scores of others (Burk et al., 2024), and our models among theirs."""

from dcsurv.experiments.neutral.check import check_table as check_table
from dcsurv.experiments.neutral.folder import SCORES as SCORES
from dcsurv.experiments.neutral.folder import NeutralCohort as NeutralCohort
from dcsurv.experiments.neutral.folder import NeutralFolder as NeutralFolder
from dcsurv.experiments.neutral.page import NeutralReport as NeutralReport
from dcsurv.experiments.neutral.ranks import CriticalDifference as CriticalDifference
from dcsurv.experiments.neutral.ranks import Field as Field
from dcsurv.experiments.neutral.ranks import critical_difference, differences_to, field_of
from dcsurv.experiments.neutral.scores import harrell, isbs, predicted_risk
from dcsurv.experiments.neutral.tasks import REFERENCE as REFERENCE
from dcsurv.experiments.neutral.tasks import neutral_tasks as neutral_tasks
from dcsurv.experiments.neutral.tasks import run_neutral as run_neutral
from dcsurv.experiments.neutral.tasks import scores_of as scores_of

# What is of use beyond the benchmark itself; the other names are for benchmarks/neutral.py.
__all__ = [
    "critical_difference",
    "differences_to",
    "field_of",
    "harrell",
    "isbs",
    "predicted_risk",
]
