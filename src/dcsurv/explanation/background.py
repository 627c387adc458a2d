"""Whom a prediction is compared with: made-up patients like those of training, or a table of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.messages import plural
from dcsurv.models import SurvivalModel
from dcsurv.preprocessing import Preprocessor

# Standard deviations within which numbers are made up where nothing but mean and deviation is known.
_REACH = 2.0


@dataclass(frozen=True)
class Background:
    """The patients that predictions are compared with, and in words who they are.

    Parameters
    ----------
    table : DataFrame or array
        One row per patient, in the form that the model takes.
    words : str
        Who they are.
    """

    table: Any
    words: str

    def __len__(self) -> int:
        return len(self.table)


def background_for(model: SurvivalModel, given: Any, n_patients: int, random_state: int) -> Background:
    """Return the background of a model: what was given, or made-up patients from what the model knows.

    Parameters
    ----------
    model
        A fitted model.
    given
        A table with the features of the model, or None.
    n_patients
        How many patients to make up.
    random_state
        Seed of those.
    """
    if given is not None:
        if len(given) == 0:
            raise ValueError("background has no rows. Pass patients to compare with, or None for made-up ones.")
        return Background(given, f"the {plural(len(given), 'patient')} that were passed as background")
    if n_patients < 2:
        raise ValueError(f"n_background is {n_patients}, but at least 2 made-up patients are expected.")
    named = getattr(model, "feature_names_in_", None) is not None
    if model.population_ is not None:
        together = "" if model.population_.correlation is None else ", and features that go together as in training"
        table = model.population_.draw(n_patients, random_state)
        words = f"{n_patients} made-up patients with the training patients' distribution of every feature{together}"
        return Background(table if named else table.to_numpy(), words)
    if not isinstance(model.preprocessor_, Preprocessor):
        raise ValueError(
            "this model does not know what its training patients looked like: it was saved by an older version, or "
            "makes no use of dcsurv's preprocessing. Pass a table of patients as background."
        )
    table = _independent(model.preprocessor_, n_patients, random_state)
    words = (
        f"{n_patients} made-up patients from means, standard deviations and levels alone, features independent of each "
        "other, because the model was saved by an older version: fit it again for a background like its patients"
    )
    return Background(table if named else table.to_numpy(), words)


def _independent(preprocessor: Preprocessor, n: int, random_state: int) -> pd.DataFrame:
    """Make up patients from what the preprocessing alone knows."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    columns = preprocessor.get_state()["columns"]
    shares = qmc.LatinHypercube(len(columns), rng=np.random.default_rng(random_state)).random(n)
    out: dict[str, Any] = {}
    for column, share in zip(columns, shares.T, strict=True):
        levels = column["levels"]
        if column["kind"] == "number":
            value = column["mean"] + column["scale"] * np.clip(ndtri(share), -_REACH, _REACH)
            if levels is not None:  # a category that enters as the position of its level
                place = np.clip(np.rint(value), 0, len(levels) - 1).astype(np.int64)
                value = np.array(levels, dtype=object)[place]
        else:
            # How many patients had each level is not known, except which one was the most frequent.
            weight = np.ones(len(levels))
            weight[column["most_frequent"]] = max(1, len(levels) - 1)
            place = np.searchsorted(np.cumsum(weight) / weight.sum(), share)
            value = np.array(levels, dtype=object)[np.minimum(place, len(levels) - 1)]
        out[column["name"]] = value
    return pd.DataFrame(out)
