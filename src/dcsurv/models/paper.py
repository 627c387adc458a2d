"""The settings of the paper's comparison (supplement, Table S-1)."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from dcsurv.models.coxph import CoxPH
from dcsurv.models.coxtime import CoxTime
from dcsurv.models.dcs import DCS
from dcsurv.models.deepsurv import DeepSurv
from dcsurv.models.drsa import DRSA
from dcsurv.models.encoder_decoder import EncoderDecoderEstimator
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.kamran import Kamran
from dcsurv.models.network import NetworkEstimator
from dcsurv.preprocessing import Preprocessor

_KINDS: dict[str, type[SurvivalEstimator]] = {
    "CoxPH": CoxPH,
    "DeepSurv": DeepSurv,
    "CoxTime": CoxTime,
    "DRSA": DRSA,
    "Kamran": Kamran,
    "DCS-linear": DCS,
    "DCS-log": DCS,
    "DCS-quant": DCS,
}
# Stated in the paper for every network.
_TRAINING = {"batch_size": 50, "max_epochs": 100, "patience": 10, "dropout": 0.2}
# Not stated; the same choice for every model and dataset.
_OUR_CHOICE = {"learning_rate": 1e-3, "validation_fraction": 0.1}


def paper_settings(model: str, dataset: str, **changes: Any) -> SurvivalEstimator:
    """Return a model with the best settings that the paper's supplement lists for a dataset.

    Parameters
    ----------
    model : str
        CoxPH, DeepSurv, CoxTime, DRSA, Kamran, DCS-linear, DCS-log or DCS-quant.
    dataset : str
        support, metabric or flchain.
    **changes : object
        Parameters that replace those of the paper, such as ``random_state=0``.

    Returns
    -------
    SurvivalEstimator
        The model, unfitted.

    Notes
    -----
    The paper does not state the learning rate (0.001 here) nor the validation share (0.1 here).
    """
    text = resources.files("dcsurv.models").joinpath("paper_settings.json").read_text(encoding="utf-8")
    settings: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    if dataset not in settings:
        raise ValueError(f"dataset is {dataset!r}, but one of {', '.join(settings)} is expected.")
    if model not in _KINDS:
        raise ValueError(f"model is {model!r}, but one of {', '.join(_KINDS)} is expected.")
    kind = _KINDS[model]
    parameters: dict[str, Any] = {"time_unit": "days", **settings[dataset][model]}
    if issubclass(kind, NetworkEstimator):
        parameters |= _TRAINING | _OUR_CHOICE
    if issubclass(kind, EncoderDecoderEstimator):
        parameters |= {"convention": "paper", "recurrent_dropout": _TRAINING["dropout"]}
    # The authors keep every level, and sex is a number to them.
    parameters["preprocess"] = Preprocessor(ordinal=("sex",) if dataset == "flchain" else (), least_patients=1)
    return kind(**(parameters | changes))
