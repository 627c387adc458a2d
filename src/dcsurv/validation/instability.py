"""How much the prediction for one and the same patient depends on who happened to be in the cohort."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dcsurv.target import FloatArray


@dataclass(frozen=True)
class Instability:
    """Predicted risks of a model and of its refits to bootstrap samples, after Riley and Collins (2023).

    Attributes
    ----------
    horizons : array of float
        Times by which the risks are, (H,).
    risk : array of float
        Risks that the model predicts for its own patients, (n, H).
    refits : array of float
        Risks that the refits predict for the same patients, (B, n, H).

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.validation import Instability
    >>> found = Instability(np.array([5.0]), np.array([[0.2], [0.4]]), np.array([[[0.1], [0.4]], [[0.5], [0.4]]]))
    >>> found.patients(5.0)["mape"].round(3).tolist()  # the mean of 0.1 and 0.3, and no change at all
    [0.2, 0.0]
    >>> found.table()["mape"].round(3).tolist()
    [0.1]

    References
    ----------
    R. D. Riley and G. S. Collins: Stability of clinical prediction models developed using statistical or machine
    learning methods. Biometrical Journal 65 (2023).
    """

    horizons: FloatArray
    risk: FloatArray
    refits: FloatArray

    def patients(self, horizon: float | None = None) -> pd.DataFrame:
        """Return how stable the prediction for each patient is.

        Parameters
        ----------
        horizon : float or None, default None
            The time by which the risk is; None: the middle one.

        Returns
        -------
        DataFrame
            ``risk``, the model's; ``mape``, the mean absolute prediction error: the mean over the refits of the
            distance between their risk and the model's; ``lower`` and ``upper``, between which 95 % of the refits'
            risks lie.
        """
        at = self.position(horizon)
        own, others = self.risk[:, at], self.refits[:, :, at]
        lower, upper = np.quantile(others, [0.025, 0.975], axis=0)
        return pd.DataFrame(
            {"risk": own, "mape": np.abs(others - own).mean(axis=0), "lower": lower, "upper": upper}
        )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """Return how stable predictions are at each horizon.

        Returns
        -------
        DataFrame
            ``horizon``; ``mape``, the mean over the patients; ``mape_90``, which 90 % of the patients stay below;
            ``largest``, of the least stable patient; ``range``, the mean width of the 95 % ranges.
        """
        rows = []
        for t in self.horizons:
            found = self.patients(float(t))
            rows.append(
                {"horizon": float(t), "mape": found["mape"].mean(), "mape_90": found["mape"].quantile(0.9),
                 "largest": found["mape"].max(), "range": (found["upper"] - found["lower"]).mean()}
            )  # fmt: skip
        return pd.DataFrame(rows)

    def position(self, horizon: float | None = None) -> int:
        """Return where the risks by a horizon are.

        Parameters
        ----------
        horizon : float or None, default None
            The time by which the risk is; None: the middle one.

        Returns
        -------
        int
            The last index of ``risk`` and ``refits``.
        """
        if horizon is None:
            return len(self.horizons) // 2
        near = np.flatnonzero(np.isclose(self.horizons, horizon))
        if len(near) == 0:
            known = ", ".join(f"{t:g}" for t in self.horizons)
            raise ValueError(f"horizon is {horizon:g}, but risks are known by {known}.")
        return int(near[0])
