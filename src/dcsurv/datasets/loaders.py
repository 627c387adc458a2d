"""Read the embedded cohorts."""

from __future__ import annotations

import io
from importlib import resources
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from dcsurv.datasets.descriptions import Description, describe
from dcsurv.target import Outcome, make_outcome

Labels: TypeAlias = Literal["usual", "measured"]


def load(name: str, *, labels: Labels = "usual") -> tuple[pd.DataFrame, Outcome]:
    """Load one of the embedded cohorts.

    Parameters
    ----------
    name : str
        ``"support"``, ``"metabric"`` or ``"flchain"``; see :func:`dcsurv.datasets.describe`.
    labels : {"usual", "measured"}, default "usual"
        ``"usual"`` names the columns as the literature on these copies and the paper do. ``"measured"`` names
        them after what their values are and chooses their types accordingly; it differs for four columns of
        SUPPORT and four of METABRIC, whose usual names are exchanged (the evidence is in the description).

    Returns
    -------
    X : DataFrame
        One row per patient in the order of the source: floats, and categories with labels. Missing is NaN.
    y : structured array
        The outcome with the fields ``event`` and ``time``, the time in days.

    Examples
    --------
    >>> from dcsurv.datasets import load
    >>> X, y = load("metabric")
    >>> X.shape, int(y["event"].sum())
    ((1904, 9), 1103)
    """
    description = describe(name)
    if labels not in get_args(Labels):
        raise ValueError(f"labels is {labels!r}, but 'usual' or 'measured' is expected.")
    columns = description.columns if labels == "usual" else description.measured_columns
    stored = _read(description)
    features: dict[str, pd.Series] = {}
    for column in columns:
        values = stored[column.source]
        if column.levels:
            codes = pd.CategoricalDtype([code for code, _ in column.levels])
            features[column.name] = values.astype(codes).cat.rename_categories(dict(column.levels))
        else:
            numbers = _numbers(values, description)
            features[column.name] = numbers.mask(numbers == 0) if column.zero_is_missing else numbers
    days = np.rint(_numbers(stored[description.time_source], description) * description.days_per_unit)
    event = stored[description.event_source] == "1"
    return pd.DataFrame(features), make_outcome(days.to_numpy(), event.to_numpy())


def load_support(*, labels: Labels = "usual") -> tuple[pd.DataFrame, Outcome]:
    """Load SUPPORT: 8,873 seriously ill adults in hospital, 14 features, 68 % events.

    Parameters
    ----------
    labels : {"usual", "measured"}, default "usual"
        How the columns are named, see :func:`load`.

    Returns
    -------
    X : DataFrame
        One row per patient.
    y : structured array
        The outcome with the fields ``event`` and ``time``, the time in days.
    """
    return load("support", labels=labels)


def load_metabric(*, labels: Labels = "usual") -> tuple[pd.DataFrame, Outcome]:
    """Load METABRIC: 1,904 patients with breast cancer, 9 features, 58 % events.

    Parameters
    ----------
    labels : {"usual", "measured"}, default "usual"
        How the columns are named, see :func:`load`.

    Returns
    -------
    X : DataFrame
        One row per patient.
    y : structured array
        The outcome with the fields ``event`` and ``time``, the time in days.
    """
    return load("metabric", labels=labels)


def load_flchain() -> tuple[pd.DataFrame, Outcome]:
    """Load FLCHAIN: 7,874 residents aged 50 or more, 8 features, 28 % events.

    Returns
    -------
    X : DataFrame
        One row per patient.
    y : structured array
        The outcome with the fields ``event`` and ``time``, the time in days.
    """
    return load("flchain")


def _numbers(values: pd.Series, description: Description) -> pd.Series:
    """Return the source's own numbers, to the bit, as float64."""
    return values.astype(np.float32 if description.float32 else np.float64).astype(np.float64)


def _read(description: Description) -> pd.DataFrame:
    """Return the embedded file as strings, with NaN where a field is empty."""
    file = resources.files("dcsurv.datasets") / "data" / f"{description.name}.csv.gz"
    return pd.read_csv(io.BytesIO(file.read_bytes()), compression="gzip", dtype=str)
