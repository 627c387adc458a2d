"""From a table of patients to numbers: scale, impute, encode; with a state of plain numbers and strings."""

from dcsurv.preprocessing.outside import Outside, OutsideCounts, OutsideTrainingWarning
from dcsurv.preprocessing.population import FeatureSummary, Population
from dcsurv.preprocessing.preprocessor import Preprocessor, UnknownLevelsWarning
from dcsurv.preprocessing.ranges import Ranges

__all__ = [
    "FeatureSummary",
    "Outside",
    "OutsideCounts",
    "OutsideTrainingWarning",
    "Population",
    "Preprocessor",
    "Ranges",
    "UnknownLevelsWarning",
]
