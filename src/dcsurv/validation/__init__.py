"""Validation of a way of fitting: optimism, cross-validation, other centres, instability, and a verdict.

>>> import dcsurv  # doctest: +SKIP
>>> found = dcsurv.validate(dcsurv.CalibratedEnsemble(), X, y, workers=2, folder="validation")
>>> found.verdict, found.summary()
"""

from dcsurv.validation.comparison import Verdict
from dcsurv.validation.instability import Instability
from dcsurv.validation.refits import ValidationError
from dcsurv.validation.running import validate
from dcsurv.validation.validation import Validation

__all__ = ["Instability", "Validation", "ValidationError", "Verdict", "validate"]
