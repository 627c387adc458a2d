"""Three public cohorts, embedded, with their provenance: SUPPORT, METABRIC and FLCHAIN; and simulated ones."""

from dcsurv.datasets.descriptions import NAMES, DatasetColumn, Description, describe
from dcsurv.datasets.loaders import load, load_flchain, load_metabric, load_support
from dcsurv.datasets.simulated import SimulatedCohort, simulate

__all__ = [
    "NAMES",
    "DatasetColumn",
    "Description",
    "SimulatedCohort",
    "describe",
    "load",
    "load_flchain",
    "load_metabric",
    "load_support",
    "simulate",
]
