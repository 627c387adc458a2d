"""Model names of the command line, and the estimators behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dcsurv.cohort.errors import CohortError
from dcsurv.messages import listed

# What `--model` takes, with a word for the help.
MODELS = {
    "calibrated": "several DCS networks, averaged and recalibrated on held-out folds (default)",
    "dcs": "one DCS network",
    "coxph": "Cox's proportional hazards",
    "deepsurv": "Cox with a network",
    "coxtime": "Cox with a network that also sees time",
    "drsa": "recurrent network, likelihood of events and censoring",
    "kamran": "recurrent network, rank probability score",
}
_CLASSES = {
    "dcs": "DCS",
    "coxph": "CoxPH",
    "deepsurv": "DeepSurv",
    "coxtime": "CoxTime",
    "drsa": "DRSA",
    "kamran": "Kamran",
}
_PREFIX = "calibrated-"


def help_text() -> str:
    """Return the choices for `--help`."""
    return (
        "; ".join(f"{name}: {text}" for name, text in MODELS.items()) + "; calibrated-NAME: an ensemble of that model."
    )


def build(
    model: str | None,
    *,
    settings_file: Path | None,
    parameters: dict[str, Any],
    unit: str | None,
    seed: int,
    jobs: int,
) -> Any:
    """Return the unfitted estimator that was asked for."""
    from dcsurv.calibration import CalibratedEnsemble

    name = (model or "calibrated").lower()
    member = _member(name, settings_file)
    if isinstance(member, CalibratedEnsemble):
        estimator = member
    elif name.startswith("calibrated"):
        estimator = CalibratedEnsemble(estimator=member)
    else:
        estimator = member
    common = {"random_state": seed, "time_unit": unit, "n_jobs": jobs}
    estimator.set_params(**{k: v for k, v in common.items() if k in estimator.get_params(deep=False)})
    _set(estimator, parameters)
    return estimator


def _member(name: str, settings_file: Path | None) -> Any:
    import dcsurv

    base = name.removeprefix(_PREFIX)
    if base not in MODELS or (name.startswith(_PREFIX) and base == "calibrated"):
        raise CohortError(
            f"--model is {name!r}, but one of {listed(list(MODELS), 10)} is expected, or calibrated-coxph and the like."
        )
    if settings_file is None:
        return None if base == "calibrated" else getattr(dcsurv, _CLASSES[base])()
    from dcsurv.experiments.tuning import read_settings

    if not settings_file.is_file():
        raise CohortError(f"there is no settings file {settings_file}. `dcsurv tune` writes one.")
    found = read_settings(settings_file)
    kind = type(found).__name__
    if base != "calibrated" and kind != _CLASSES[base]:
        raise CohortError(f"--settings is for {kind}, but --model is {name}. Leave --model out, or choose the same.")
    return found


def _set(estimator: Any, parameters: dict[str, Any]) -> None:
    """Set parameters of the estimator, or else of the members of an ensemble."""
    from dcsurv.calibration import CalibratedEnsemble, default_member

    own = estimator.get_params(deep=False)
    reserved = {"preprocess", "time_unit", "random_state", "estimator", "verbose"}
    for name, value in parameters.items():
        target = estimator
        if name not in own and isinstance(estimator, CalibratedEnsemble):
            if estimator.estimator is None:
                estimator.estimator = default_member()
            target = estimator.estimator
        known = {k: v for k, v in target.get_params(deep=False).items() if k not in reserved}
        if name not in known:
            both = sorted({*own, *target.get_params(deep=False)} - reserved)
            raise CohortError(
                f"--set names {name!r}, which {type(target).__name__} does not have. It has {listed(both, 40)}."
            )
        target.set_params(**{name: tuple(value) if isinstance(value, list) else value})
    estimator._check_parameters()
    if isinstance(estimator, CalibratedEnsemble) and estimator.estimator is not None:
        estimator.estimator._check_parameters()
