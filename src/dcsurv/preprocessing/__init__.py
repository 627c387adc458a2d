"""From a table of patients to numbers: scale, impute, encode; with a state of plain numbers and strings."""

from dcsurv.preprocessing.population import FeatureSummary, Population
from dcsurv.preprocessing.preprocessor import Preprocessor, UnknownLevelsWarning

__all__ = ["FeatureSummary", "Population", "Preprocessor", "UnknownLevelsWarning"]
