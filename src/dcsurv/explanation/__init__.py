"""Why this patient, why this model: Shapley values over time, what-if curves, importance over time, the nomogram."""

from dcsurv.explanation.explaining import explain
from dcsurv.explanation.explanation import Explanation, RiskExplanation
from dcsurv.explanation.importance import Importance, permutation_importance
from dcsurv.explanation.nomogram import Nomogram, nomogram
from dcsurv.explanation.what_if import WhatIf, what_if

__all__ = [
    "Explanation",
    "Importance",
    "Nomogram",
    "RiskExplanation",
    "WhatIf",
    "explain",
    "nomogram",
    "permutation_importance",
    "what_if",
]
