"""Survival curves S(t | x): the one type that models return, metrics read and figures draw."""

from dcsurv.curves.interpolated import BeyondLastNodeWarning, Interpolation, Transform
from dcsurv.curves.one_patient import SurvivalFunction
from dcsurv.curves.survival_curves import SurvivalCurves, as_curves

__all__ = ["BeyondLastNodeWarning", "Interpolation", "SurvivalCurves", "SurvivalFunction", "Transform", "as_curves"]
