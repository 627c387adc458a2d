"""From the model names of the command line to estimators: what there is, is in the models' records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dcsurv.cli.shell import note
from dcsurv.cohort.errors import CohortError
from dcsurv.messages import listed

DEFAULT = "calibrated"
HELP = (
    "Model to fit; `dcsurv models` lists all of them. Default: calibrated, five families (DCS networks, Cox, "
    "accelerated failure, two of trees), weighted and recalibrated on held-out folds; with --settings of another model "
    "than dcs, that model. calibrated-NAME makes an ensemble of one other model."
)
# Set by other options, or not to be set at all.
_RESERVED = {"preprocess", "time_unit", "random_state", "estimator", "verbose"}


def build(
    model: str | None,
    *,
    settings_file: Path | None,
    parameters: dict[str, Any],
    unit: str | None,
    seed: int,
    jobs: int,
    quick: bool = False,
) -> Any:
    """Return the unfitted estimator that was asked for."""
    from dcsurv.kinds import make_model

    name = (model or DEFAULT).lower()
    try:
        estimator = make_model(name)
    except ValueError as error:
        raise CohortError(f"--model is {name!r}, but {error}") from None
    if settings_file is not None:
        estimator = _tuned(estimator, model, settings_file)
    common = {"random_state": seed, "time_unit": unit, "n_jobs": jobs}
    estimator.set_params(**{k: v for k, v in common.items() if k in estimator.get_params(deep=False)})
    if quick:
        estimator.set_params(**quick_settings(estimator))
    _set(estimator, parameters)
    return estimator


def has_grid(estimator: Any) -> bool:
    """Whether a model, or the members that it is made of, have an output per interval of a time grid."""
    from dcsurv.kinds import kind_of

    kind = kind_of(_member(estimator) or estimator)
    return kind is not None and kind.has_grid


def quick_settings(estimator: Any) -> dict[str, Any]:
    """Return parameters that make a model small and quick, those of its members among them."""
    from dcsurv.kinds import kind_of

    kind, member = kind_of(estimator), _member(estimator)
    of_member = None if member is None else kind_of(member)
    own = {} if kind is None else dict(kind.quick)
    return own | ({} if of_member is None else {f"estimator__{name}": value for name, value in of_member.quick.items()})


def _member(estimator: Any) -> Any | None:
    """Return what an ensemble is made of, or None."""
    from dcsurv.calibration import CalibratedEnsemble, default_member

    if not isinstance(estimator, CalibratedEnsemble):
        return None
    return default_member() if estimator.estimator is None else estimator.estimator


def _tuned(estimator: Any, model: str | None, settings_file: Path) -> Any:
    """Return the model of a settings file, or the one that was asked for if the settings are of its members."""
    from dcsurv.calibration import COMPANIONS, CalibratedEnsemble, default_member
    from dcsurv.experiments.tuning import read_settings

    if not settings_file.is_file():
        raise CohortError(f"there is no settings file {settings_file}. `dcsurv tune` writes one.")
    found = read_settings(settings_file)
    name, kind = (model or DEFAULT).lower(), type(found).__name__
    if name == DEFAULT and type(found) is type(default_member()):
        if model is None:
            note(f"The settings are for {kind}: they go into the networks of the default, whose other families stay.")
        return CalibratedEnsemble(estimator=found, companions=COMPANIONS)
    if model is None:
        note(f"The settings are for {kind}, and this is the model that is fitted.")
        return found
    if type(found) is type(estimator):
        return found
    if isinstance(estimator, CalibratedEnsemble) and type(found) is type(estimator.estimator):
        return CalibratedEnsemble(estimator=found)
    raise CohortError(
        f"--settings is for {kind}, but --model is {name}. Leave --model out to fit what the settings are for, or "
        "choose the same."
    )


def _set(estimator: Any, parameters: dict[str, Any]) -> None:
    """Set parameters of the estimator, or else of the members of an ensemble."""
    member = _member(estimator)
    own = set(estimator.get_params(deep=False)) - _RESERVED
    of_member = set() if member is None else set(member.get_params(deep=False)) - _RESERVED
    for name, value in parameters.items():
        if name not in own | of_member:
            what = type(estimator if member is None else member).__name__
            raise CohortError(
                f"--set names {name!r}, which {what} does not have. It has {listed(sorted(own | of_member), 40)}."
            )
        given = tuple(value) if isinstance(value, list) else value
        estimator.set_params(**{name if name in own else f"estimator__{name}": given})
    estimator.check_parameters()
    if member is not None and estimator.estimator is not None:
        estimator.estimator.check_parameters()
