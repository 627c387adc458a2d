"""Why a model predicts what it predicts: how much each feature moves survival away from the average, over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dcsurv.explanation.background import background_for
from dcsurv.explanation.explanation import Explanation
from dcsurv.explanation.mixing import SCALES, Mixture, Scale, feature_names, grouped, on_scale
from dcsurv.explanation.shapley import MOST_ENUMERATED, ShapleyValues, exact, sampled
from dcsurv.messages import plural
from dcsurv.models import SurvivalModel
from dcsurv.target import FloatArray

Method: TypeAlias = Literal["auto", "exact", "sampled"]

# Mixtures that enumeration may take; more are sampled.
_MOST_MIXTURES = 250_000
# Pairs of permutations of all patients together, and the least of each.
_PAIRS, _LEAST_PAIRS = 24_000, 16
_N_TIMES = 40
# Numbers that describe a patient in the regression of sampled values, and the columns among them that are bent.
_TRAITS, _COLUMNS, _BENT = 16, 9, 5


def explain(
    model: SurvivalModel,
    X: Any,
    *,
    times: npt.ArrayLike | None = None,
    background: Any = None,
    n_background: int = 100,
    groups: Mapping[str, Sequence[str]] | None = None,
    scale: Scale = "survival",
    method: Method = "auto",
    n_pairs: int | None = None,
    random_state: int = 0,
) -> Explanation:
    r"""Say how much each feature of each patient moves the predicted survival away from the average, over time.

    The values are Shapley values of S(t | x) (SurvSHAP(t)): of all orders in which the features of a patient can
    replace those of others, the mean change that a feature makes when its turn comes. They add up:

    .. math:: S(t | x) = \text{base}(t) + \sum_j \phi_j(t, x), \qquad \text{base}(t) = \frac{1}{B} \sum_b S(t | x_b)

    Parameters
    ----------
    model : SurvivalModel
        Any fitted model of dcsurv.
    X : DataFrame or array-like
        The patients to explain, as the model takes them.
    times : array-like or None, default None
        Ascending times; None: 40 of them, up to the last node of the model.
    background : DataFrame, array or None, default None
        Patients to compare with. None: patients made up from the summary of the training patients that travels with
        the model; no model holds rows of patients.
    n_background : int, default 100
        How many patients to make up.
    groups : mapping of str to sequence of str, or None, default None
        Features that are to move together, such as measurements of the same thing, by the name of their group.
        None: every feature by itself; all columns that are made of one feature always move together.
    scale : {"survival", "log-hazard"}, default "survival"
        What to explain: S(t | x), or log(-log S(t | x)), which for a Cox model is the log-risk.
    method : {"auto", "exact", "sampled"}, default "auto"
        ``"exact"``: all coalitions of features, 2 to the power of their number for each pair of patient and background.
        ``"sampled"``: random orders, each also backwards, with a standard error. ``"auto"``: exact where that takes at
        most a quarter of a million predictions, such as for 9 patients with 8 features, otherwise sampled.
    n_pairs : int or None, default None
        Orders (each also backwards) to sample for every patient, at least 2. None: two with everybody of the
        background for few patients, fewer for many, and never below 16.
    random_state : int, default 0
        Seed of made-up patients and orders.

    Returns
    -------
    Explanation
        Values, base and standard errors, with tables and figures.

    Notes
    -----
    The values describe the model, not what an intervention would change. They are marginal (interventional): a feature
    is replaced without regard to the others, so that mixtures may be unlikely patients where features are strongly
    correlated, and correlated features share nothing but what the model makes of each. Put features that go together
    into ``groups`` to see what they make together.

    Sampled values differ from the exact ones by the standard error that comes with them; their sum does not. What
    depends on the background patients that an order was tried with is taken out by regression over all patients.

    References
    ----------
    M. Krzyziński, M. Spytek, H. Baniecki and P. Biecek: SurvSHAP(t): Time-dependent explanations of machine learning
    survival models. Knowledge-Based Systems 262 (2023).

    R. Mitchell, J. Cooper, E. Frank and G. Holmes: Sampling permutations for Shapley value estimation. Journal of
    Machine Learning Research 23 (2022).

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> X = X[["age", "chemotherapy", "er_positive"]]
    >>> model = dcsurv.CoxPH(time_unit="days").fit(X, y)
    >>> explanation = dcsurv.explain(model, X.head(3))
    >>> explanation.values.shape
    (3, 3, 40)
    >>> explanation.at(5 * 365).to_frame().loc[0, ["feature", "feature_value"]].tolist()
    ['age', '56.8']
    """
    check_is_fitted(model)
    _check(scale, method, n_pairs)
    grid = _times(model, times)
    names = feature_names(model)
    players = grouped(names, groups)
    features = model.check_features(X)
    compared = background_for(model, background, n_background, random_state)
    mixture = Mixture(model, [features, compared.table], players, grid, scale)
    whole = on_scale(model.predict_survival_function(X, grid).values.astype(np.float64), scale)
    alone = mixture.predict(model.prepare(compared.table))
    base = alone.mean(axis=0)
    if may_enumerate(method, len(players), len(compared), len(whole)):
        found = exact(mixture, whole, base, len(compared), len(players))
        words = exact_in_words(len(players))
    else:
        pairs = n_pairs or pairs_for(len(whole), len(compared))
        found = _sampled(model, mixture, features, compared.table, whole, alone, len(players), pairs, random_state)
        words = sampled_in_words(pairs)
    data = features if isinstance(features, pd.DataFrame) else pd.DataFrame(features, columns=names)
    return Explanation(
        values=found.values,
        base=base,
        times=grid,
        features=list(players),
        predicted=whole,
        error=found.error,
        data=data,
        groups={name: list(members) for name, members in players.items()},
        scale=scale,
        unit=getattr(model, "time_unit", None),
        background=compared.words,
        method=words,
    )


def _check(scale: Any, method: Any, n_pairs: int | None) -> None:
    if scale not in SCALES:
        raise ValueError(f"scale is {scale!r}, but one of {', '.join(map(repr, SCALES))} is expected.")
    if method not in get_args(Method):
        raise ValueError(f"method is {method!r}, but one of {', '.join(map(repr, get_args(Method)))} is expected.")
    if n_pairs is not None and n_pairs < 2:
        raise ValueError(f"n_pairs is {n_pairs!r}, but at least 2 orders are needed to know the error.")


def _times(model: SurvivalModel, times: npt.ArrayLike | None) -> FloatArray:
    if times is None:
        end = float(model.nodes[-1])
        return np.linspace(end / _N_TIMES, end, _N_TIMES)
    out = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if out.ndim != 1 or len(out) == 0 or not np.isfinite(out).all() or (out < 0).any() or (np.diff(out) <= 0).any():
        raise ValueError(f"times is {times!r}, but finite, ascending times from 0 on are expected.")
    return out


def may_enumerate(method: Method, n_players: int, n_background: int, n_patients: int) -> bool:
    """Whether all coalitions of features are gone through; refuse more than can be."""
    affordable = 2.0**n_players * n_background * n_patients <= _MOST_MIXTURES
    if not (method == "exact" or n_players < 2 or (method == "auto" and affordable)):
        return False
    if n_players > MOST_ENUMERATED:
        raise ValueError(
            f"method is 'exact', but {n_players} features have too many coalitions; at most {MOST_ENUMERATED} can "
            "be enumerated. Use method='sampled', or put features into groups."
        )
    return True


def exact_in_words(n_players: int) -> str:
    """Say how exact values are computed."""
    return f"exact: all {2**n_players:,} coalitions of {plural(n_players, 'feature')}"


def sampled_in_words(n_pairs: int) -> str:
    """Say how sampled values are computed."""
    return f"sampled: {n_pairs} orders of the features, each also backwards, for every patient"


def pairs_for(n_patients: int, n_background: int) -> int:
    """Return how many orders to sample for each patient: all of the background twice, or what is affordable."""
    if 2 * n_patients * n_background <= _PAIRS:
        return 2 * n_background
    return int(np.clip(_PAIRS // n_patients, _LEAST_PAIRS, max(_LEAST_PAIRS, n_background)))


def _sampled(
    model: SurvivalModel,
    mixture: Mixture,
    features: Any,
    background: Any,
    whole: FloatArray,
    alone: FloatArray,
    n_players: int,
    n_pairs: int,
    random_state: int,
) -> ShapleyValues:
    prepared = [model.encode(features).astype(np.float64), model.prepare(background).astype(np.float64)]
    traits = _traits(np.concatenate(prepared), np.concatenate([whole, alone])[:, whole.shape[1] // 2])
    both = traits[: len(whole)], traits[len(whole) :]
    return sampled(mixture, whole, alone, both, n_players, n_pairs, np.random.default_rng(random_state))


def _traits(prepared: FloatArray, said: FloatArray) -> FloatArray:
    """Return what describes patients best in few numbers: the prediction, the columns that it follows, and bends."""
    centred = prepared - prepared.mean(axis=0)
    spread = centred.std(axis=0)
    strength = np.abs(centred.T @ (said - said.mean())) / np.where(spread > 0, spread, np.inf)
    order = np.argsort(-strength, kind="stable")[:_COLUMNS]
    order = order[spread[order] > 0]
    unit = np.clip(centred[:, order] / spread[order], -3, 3)
    bent = [k for k in range(len(order)) if len(np.unique(unit[:, k])) > 2][:_BENT]
    parts = [said[:, None], unit, unit[:, bent] ** 2, unit[:, bent[:1]] ** 3]
    out: FloatArray = np.concatenate(parts, axis=1)[:, :_TRAITS]
    return out
