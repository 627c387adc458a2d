"""Columns that say who a patient is, and nothing about how the patient will do."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from dcsurv.cohort.formats import UNNAMED
from dcsurv.target import FloatArray

# Words of names, of several languages.
_NUMBER = r"ids?|no|nos|nr|num|number|nummer|numer|numero|numéro|número|code|key|kennung|identifier|identifiant"
_WHO = (
    r"patient|patients|patienten|pat|pt|subject|subj|participant|person|personal|proband|probanden|case|record|chart|"
    r"dossier|paciente|paziente|patiënt|medical|insurance|nhs|study"
)
_ALONE = (
    r"id|pid|mrn|uid|uuid|nhc|nip|usubjid|subjid|subjectid|patid|patientid|caseid|recordid|participantid|patient|"
    r"subject|participant|proband|paciente|paziente|patiënt|identifiant|identifier|kennung|(?:patienten|fall|"
    r"probanden|kranken)(?:nummer|nr|id)|patientn(?:umber|o|r)|patientnummer"
)
_HOSPITAL = r"(?:hospital|hosp|krankenhaus) ?(?:no|nr|num|number|nummer|numero|numéro|número)"
# Names of a patient's own number: where it repeats, several rows belong to one patient.
_PATIENT = re.compile(rf"(?:{_ALONE})|{_HOSPITAL}|(?:.* )?(?:{_WHO}) (?:{_NUMBER})(?: .*)?|(?:{_NUMBER}) (?:{_WHO})")
# Names that say "number" of something, which may be a patient.
_ANYTHING = re.compile(rf"(?:.* )?(?:{_NUMBER}|mrn|pid|uid|uuid|index|patient|subject|row|rownames)(?: .*)?")
# More different values than this are needed to call a column an identifier.
FEW_VALUES = 20
# A patient's own number: on average at most so many rows share one; fewer where a number may be that of a hospital.
_ROWS_OF_ONE, _ROWS_OF_ONE_AT_MOST = 20, 2
# Without a name that says so: numbers of this many digits that are spread evenly over all numbers of as many digits.
_DIGITS, _MANY, _FILLED, _EVEN = 5, 50, 0.9, 0.01


def is_patient_number(name: str) -> bool:
    """Whether a column is called like the number of a patient, in one of several languages."""
    return _PATIENT.fullmatch(_words(name)) is not None


def looks_like_identifier(values: pd.Series) -> bool:
    """Whether numbers, none of them missing, are identifiers: by their name, or because only drawn lots look so.

    Ages in days, counts and measurements are whole numbers that differ from patient to patient, too; but they are not
    spread evenly from 100000 to 999999.

    Parameters
    ----------
    values
        Numbers, under the name of their column.
    """
    name, n = str(values.name), len(values)
    if n < FEW_VALUES or (values % 1 != 0).any():
        return False
    distinct = int(values.nunique())
    if is_patient_number(name):
        return _are_patients(name, distinct, n)
    if (name.startswith(UNNAMED) or _ANYTHING.fullmatch(_words(name))) and distinct == n:
        return True
    return distinct >= _MANY and _are_lots(values.to_numpy(np.float64), distinct)


def looks_like_patient_codes(texts: pd.Series) -> bool:
    """Whether words under the name of a patient's number are such numbers, possibly several rows of each.

    Parameters
    ----------
    texts
        Levels as text, under the name of their column.
    """
    name = str(texts.name)
    return is_patient_number(name) and _are_patients(name, int(texts.nunique()), len(texts))


def _are_patients(name: str, distinct: int, n: int) -> bool:
    """Whether so many different values in n rows can be patients, of whom some may have several rows."""
    rows = _ROWS_OF_ONE_AT_MOST if re.fullmatch(_HOSPITAL, _words(name)) else _ROWS_OF_ONE
    return distinct > FEW_VALUES and distinct * rows >= n


def _are_lots(values: FloatArray, distinct: int) -> bool:
    """Whether numbers look like drawn from all with as many digits: nearly all different, and evenly spread."""
    low, high = float(values.min()), float(values.max())
    digits = len(f"{high:.0f}")
    first, last = 10.0 ** (digits - 1), 10.0**digits
    if low < first or digits < _DIGITS or digits > 15 or high - low < _FILLED * (last - first):
        return False
    room = last - first
    expected = room * -np.expm1(len(values) * np.log1p(-1 / room))
    if distinct < 0.98 * expected:
        return False
    from scipy.stats import kstest

    return bool(kstest((values - first) / room, "uniform").pvalue >= _EVEN)


def _words(name: str) -> str:
    """Return a name in lower case, its words apart: PatientID, patient_id and Patient-Id are patient id."""
    apart = re.sub(r"(?<=[a-zäöüß])(?=[A-Z])", " ", name)
    return " ".join(re.sub(r"[\W_]+", " ", apart).casefold().split())
