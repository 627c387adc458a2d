"""A user's table of patients: reading it, finding the outcome, guessing what columns hold, saying what will hurt."""

from dcsurv.cohort.card import ModelCard, read_cohort_for
from dcsurv.cohort.checks import check_cohort, require_features
from dcsurv.cohort.coding import EventCoding, guess_coding
from dcsurv.cohort.cohort import Cohort, make_cohort, read_cohort
from dcsurv.cohort.columns import Column, guess_columns
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.features import apply_columns
from dcsurv.cohort.findings import Finding
from dcsurv.cohort.formats import TableFormat
from dcsurv.cohort.horizons import UnusableHorizon, choose_horizons, usable_horizons
from dcsurv.cohort.outcome import OutcomeColumns, find_outcome
from dcsurv.cohort.parts import Counts, TablePart, find_parts, predict_folder, predict_part
from dcsurv.cohort.prediction_files import write_predictions
from dcsurv.cohort.predictions import Predictor
from dcsurv.cohort.reading import Table, inspect_table, read_chunks, read_table
from dcsurv.durations import Horizon, describe_time, parse_duration, parse_horizons
from dcsurv.nonparametric import last_usable_time

__all__ = [
    "Cohort",
    "CohortError",
    "Column",
    "Counts",
    "EventCoding",
    "Finding",
    "Horizon",
    "ModelCard",
    "OutcomeColumns",
    "Predictor",
    "Table",
    "TableFormat",
    "TablePart",
    "UnusableHorizon",
    "apply_columns",
    "check_cohort",
    "choose_horizons",
    "describe_time",
    "find_outcome",
    "find_parts",
    "guess_coding",
    "guess_columns",
    "inspect_table",
    "last_usable_time",
    "make_cohort",
    "parse_duration",
    "parse_horizons",
    "predict_folder",
    "predict_part",
    "read_chunks",
    "read_cohort",
    "read_cohort_for",
    "read_table",
    "require_features",
    "usable_horizons",
    "write_predictions",
]
