"""What it takes to explain one patient somewhere else than in Python, such as in a page, with the same values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from dcsurv.explanation.background import background_for
from dcsurv.explanation.explaining import exact_in_words, may_enumerate, pairs_for, sampled_in_words
from dcsurv.explanation.mixing import feature_names
from dcsurv.explanation.shapley import drawn_orders
from dcsurv.models import SurvivalModel
from dcsurv.target import IntArray


class ExplainingPlan(NamedTuple):
    """Whom one patient is compared with, and in which orders features join.

    Attributes
    ----------
    table : DataFrame
        The background of :func:`dcsurv.explain`: made-up patients, in the form that the model takes.
    background : str
        Who they are, in words.
    method : str
        How the values are computed, in words.
    partners : array of int or None
        Of each sampled order, the patient of the background; None where all coalitions are gone through.
    orders : array of int or None
        The sampled orders of the features, one row each.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.explanation.elsewhere import plan_for_one
    >>> X, y = load_metabric()
    >>> plan_for_one(dcsurv.CoxPH().fit(X, y)).method
    'exact: all 512 coalitions of 9 features'
    """

    table: pd.DataFrame
    background: str
    method: str
    partners: IntArray | None
    orders: IntArray | None


def plan_for_one(model: SurvivalModel, *, n_background: int = 100, random_state: int = 0) -> ExplainingPlan:
    """Return what :func:`dcsurv.explain` goes by when it explains one patient.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    n_background : int, default 100
        How many patients to make up.
    random_state : int, default 0
        Seed of made-up patients and orders.

    Returns
    -------
    ExplainingPlan
        Background, and orders where not all coalitions are gone through.
    """
    names = feature_names(model)
    compared = background_for(model, None, n_background, random_state)
    table = pd.DataFrame(compared.table, columns=names)
    if may_enumerate("auto", len(names), len(table), 1):
        return ExplainingPlan(table, compared.words, exact_in_words(len(names)), None, None)
    pairs = pairs_for(1, len(table))
    partners, orders = drawn_orders(1, len(table), len(names), pairs, np.random.default_rng(random_state))
    return ExplainingPlan(table, compared.words, sampled_in_words(pairs), partners[0], orders[0])
