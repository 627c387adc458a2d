"""A model file of dcsurv as a model of MLflow: ``mlflow.pyfunc.save_model(..., python_model="survival_pyfunc.py")``.

The file is the artifact "model"; nothing is pickled. Predictions are those of `dcsurv predict`, a row per patient with
notes on what is not like training. ``model_config`` may name other horizons: ``{"horizons": "5y,10y"}``.
"""

from __future__ import annotations

from typing import Any

import mlflow
import pandas as pd

import dcsurv
from dcsurv.cohort import ModelCard, Predictor, parse_horizons


class SurvivalPredictions(mlflow.pyfunc.PythonModel):
    """Survival and risk at horizons with bands, median, mean and reach of every patient of a table."""

    def load_context(self, context: Any) -> None:
        """Read the model file."""
        self.model = dcsurv.load(context.artifacts["model"])
        self.card = ModelCard.of(self.model)
        asked = (context.model_config or {}).get("horizons")
        self.horizons = parse_horizons(asked, self.card.unit) if asked else self.card.horizons

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predict the patients of a table with the columns of the model."""
        bands = 0.9 if self.model.has_band else None
        return Predictor(self.model, self.card, self.horizons, bands=bands).predict(model_input)


mlflow.models.set_model(SurvivalPredictions())
