"""A model file of dcsurv as a model of MLflow: `mlflow.pyfunc.save_model(python_model="survival_pyfunc.py", ...)`.

The file is kept as it is, as the artifact "model"; nothing is pickled. Predictions are those of `dcsurv predict`, one row
per patient with the notes on values that are not like training.
"""

from __future__ import annotations

from typing import Any

import mlflow
import pandas as pd

import dcsurv
from dcsurv.cohort import ModelCard, Predictor, parse_horizons


class SurvivalPredictions(mlflow.pyfunc.PythonModel):
    """Survival and risk at horizons, median, mean and reach of every patient of a table."""

    def load_context(self, context: Any) -> None:
        self.model = dcsurv.load(context.artifacts["model"])
        self.card = ModelCard.of(self.model)

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        horizons = (params or {}).get("horizons")
        asked = parse_horizons(horizons, self.card.unit) if horizons else self.card.horizons
        bands = 0.9 if self.model.has_band else None
        return Predictor(self.model, self.card, asked, bands=bands).predict(model_input)


mlflow.models.set_model(SurvivalPredictions())
