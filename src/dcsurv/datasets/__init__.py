"""Three public cohorts, embedded, with their provenance: SUPPORT, METABRIC and FLCHAIN."""

from dcsurv.datasets.descriptions import NAMES, Column, Description, describe
from dcsurv.datasets.loaders import load, load_flchain, load_metabric, load_support

__all__ = [
    "NAMES",
    "Column",
    "Description",
    "describe",
    "load",
    "load_flchain",
    "load_metabric",
    "load_support",
]
