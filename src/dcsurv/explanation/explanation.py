"""What an explanation holds, as tables and figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from dcsurv.explanation.mixing import Scale, said_time
from dcsurv.messages import short
from dcsurv.plain import level_text
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing: TypeAlias = Literal["waterfall", "bands", "beeswarm"]


@dataclass(frozen=True)
class RiskExplanation:
    """What the features make of the risk by one time; positive values raise the risk.

    Attributes
    ----------
    time : float
        The time.
    values : array of shape (n, p)
        How much each feature raises the risk of each patient, in shares (0.1 is 10 percentage points).
    base : float
        Mean risk of the background.
    predicted : array of shape (n,)
        The risk of each patient: the base and all values together.
    error : array of shape (n, p) or None
        Standard errors of sampled values.
    features : list of str
        Names of the features or groups.
    texts : list of list of str
        The value of each feature of each patient, as text.
    index : Index
        Of the patients.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> X = X[["age", "chemotherapy"]]
    >>> model = dcsurv.CoxPH().fit(X, y)
    >>> risk = dcsurv.explain(model, X.head(2), times=[1000, 2000]).at(1500)
    >>> bool(abs(risk.base + risk.values[0].sum() - risk.predicted[0]) < 1e-9)
    True
    """

    time: float
    values: FloatArray
    base: float
    predicted: FloatArray
    error: FloatArray | None
    features: list[str]
    texts: list[list[str]] = field(repr=False)
    index: pd.Index

    def to_frame(self) -> pd.DataFrame:
        """Return a row per patient and feature.

        Returns
        -------
        DataFrame
            Columns ``patient, feature, feature_value, risk_change``, and ``standard_error`` of sampled values.
        """
        n, p = self.values.shape
        out = {
            "patient": np.repeat(self.index.to_numpy(), p),
            "feature": np.tile(np.array(self.features, dtype=object), n),
            "feature_value": [text for row in self.texts for text in row],
            "risk_change": self.values.ravel(),
        }
        if self.error is not None:
            out["standard_error"] = self.error.ravel()
        return pd.DataFrame(out)


@dataclass(frozen=True)
class Explanation:
    """How much each feature moves the predicted survival of each patient, at each time; from :func:`dcsurv.explain`.

    Attributes
    ----------
    values : array of shape (n, p, T)
        The Shapley values: how much feature j of patient i raises or lowers survival at a time.
    base : array of shape (T,)
        Mean survival of the background.
    times : array of shape (T,)
        The times.
    features : list of str
        Names of the features or groups.
    predicted : array of shape (n, T)
        What the model predicts: the base and all values together.
    error : array of shape (n, p, T) or None
        Standard errors of sampled values; None if they are exact.
    data : DataFrame
        The features of the patients.
    groups : dict of str to list of str
        The features that move together, by name.
    scale : {"survival", "log-hazard"}
        What the values are of.
    unit : str or None
        What times are measured in.
    background : str
        Who the patients were compared with, in words.
    method : str
        How the values were computed, in words.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> X = X[["age", "chemotherapy"]]
    >>> explanation = dcsurv.explain(dcsurv.CoxPH().fit(X, y), X.head(5))
    >>> total = explanation.base + explanation.values.sum(axis=1)
    >>> bool(abs(total - explanation.predicted).max() < 1e-9)
    True
    >>> explanation.order()[0]
    'age'
    """

    values: FloatArray
    base: FloatArray
    times: FloatArray
    features: list[str]
    predicted: FloatArray
    error: FloatArray | None
    data: pd.DataFrame = field(repr=False)
    groups: dict[str, list[str]] = field(repr=False)
    scale: Scale
    unit: str | None
    background: str
    method: str

    def __len__(self) -> int:
        return len(self.values)

    def order(self) -> list[str]:
        """Return the features, those that move predictions most first: by mean absolute value."""
        size = np.abs(self.values).mean(axis=(0, 2))
        return [self.features[k] for k in np.argsort(-size, kind="stable")]

    def importance(self) -> pd.DataFrame:
        """Return the mean absolute value of each feature at each time.

        Returns
        -------
        DataFrame
            One row per feature, the most important first, one column per time.
        """
        table = pd.DataFrame(np.abs(self.values).mean(axis=0), index=self.features, columns=self.times)
        return table.loc[self.order()]

    def texts(self) -> list[list[str]]:
        """Return the values of the features as text, for every patient one list."""
        columns = {name: [_text(value) for value in self.data[name]] for name in self.data.columns}
        parts = [[columns[name] for name in members] for members in self.groups.values()]
        return [[", ".join(column[row] for column in part) for part in parts] for row in range(len(self.data))]

    def at(self, time: float) -> RiskExplanation:
        """Return what the features make of the risk by a time.

        Between two times of the explanation values are read on the straight line, as is the prediction.

        Parameters
        ----------
        time : float
            A time within those of the explanation.

        Returns
        -------
        RiskExplanation
            Values of the risk, 1 - S.
        """
        if self.scale != "survival":
            raise ValueError(f"the explanation is of the {self.scale}; explain the scale 'survival' to have risks.")
        if not self.times[0] <= time <= self.times[-1]:
            raise ValueError(
                f"time is {time:g}, but the explanation runs from {self.times[0]:g} to {self.times[-1]:g}. Explain "
                "again with times that hold it."
            )
        weight = np.array([np.interp(time, self.times, row) for row in np.eye(len(self.times))])
        return RiskExplanation(
            time=float(time),
            values=-(self.values @ weight),
            base=float(1 - self.base @ weight),
            predicted=1 - self.predicted @ weight,
            error=None if self.error is None else self.error @ weight,
            features=self.features,
            texts=self.texts(),
            index=self.data.index,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row per patient, feature and time.

        Returns
        -------
        DataFrame
            Columns ``patient`` (from the index of X), ``feature``, ``feature_value``, ``time``, ``value``, and
            ``standard_error`` of sampled values.
        """
        n, p, n_times = self.values.shape
        texts = np.array(self.texts(), dtype=object).reshape(n, p)
        out = {
            "patient": np.repeat(self.data.index.to_numpy(), p * n_times),
            "feature": np.tile(np.repeat(np.array(self.features, dtype=object), n_times), n),
            "feature_value": np.repeat(texts.ravel(), n_times),
            "time": np.tile(self.times, n * p),
            "value": self.values.ravel(),
        }
        if self.error is not None:
            out["standard_error"] = self.error.ravel()
        return pd.DataFrame(out)

    def plot(self, kind: Drawing | None = None, *, patient: int = 0, time: float | None = None) -> Figure:
        """Draw the explanation.

        Parameters
        ----------
        kind : {"waterfall", "bands", "beeswarm"} or None, default None
            ``"waterfall"``: from the average risk by a time to that of one patient, feature by feature. ``"bands"``:
            what the features add to and take from one patient's survival over time. ``"beeswarm"``: the risk by a time
            of all patients, a dot each. None: bands for one patient, else the beeswarm.
        patient : int, default 0
            Which patient, by position.
        time : float or None, default None
            Which time; None: the middle one.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from dcsurv.figures import explanation as draw

        kind = kind or ("bands" if len(self) == 1 else "beeswarm")
        if not 0 <= patient < len(self):
            raise ValueError(f"patient is {patient}, but there are {len(self)}, counted from 0.")
        if kind == "bands":
            labels = [f"{name} = {text}" for name, text in zip(self.features, self.texts()[patient], strict=True)]
            return draw.bands_over_time(
                self.times, self.values[patient], self.base, labels, unit=self.unit, scale=self.scale
            )
        risk = self.at(float(self.times[len(self.times) // 2]) if time is None else time)
        when = said_time(risk.time, self.unit)
        if kind == "waterfall":
            labels = [f"{name} = {text}" for name, text in zip(self.features, risk.texts[patient], strict=True)]
            return draw.waterfall(risk.values[patient], labels, base=risk.base, when=when)
        if kind == "beeswarm":
            return draw.beeswarm(risk.values, self._numbers(), self.features, when=when)
        raise ValueError(f"kind is {kind!r}, but 'waterfall', 'bands' or 'beeswarm' is expected.")

    def _numbers(self) -> FloatArray:
        """Return where each patient's value lies among all, from 0 to 1, (n, p); NaN where there is no order."""
        out = np.full((len(self), len(self.features)), np.nan)
        for k, members in enumerate(self.groups.values()):
            if len(members) > 1:
                continue
            column = self.data[members[0]]
            if isinstance(column.dtype, pd.CategoricalDtype) and column.cat.ordered:
                column = column.cat.codes.where(column.notna())
            if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
                continue  # levels of a category are neither low nor high
            ranks = column.astype(np.float64).rank(method="average").to_numpy()
            low, high = np.nanmin(ranks, initial=np.inf), np.nanmax(ranks, initial=-np.inf)
            out[:, k] = 0.5 if low >= high else (ranks - low) / (high - low)
        return out


def _text(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    number = isinstance(value, float | np.floating) and not float(value).is_integer()
    return short(float(value)) if number else level_text(value)
