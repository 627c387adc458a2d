"""The risk calculator: a fitted model behind an HTTP API, or in a page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcsurv.messages import needs_extra
from dcsurv.service.calculator import CalculatorFile, write_calculator
from dcsurv.service.card import model_card
from dcsurv.service.limits import Limits
from dcsurv.service.page import SERVED_POLICY, PageFile, assemble, page_files, read_languages
from dcsurv.service.policy import Policy
from dcsurv.service.problems import Problem
from dcsurv.service.store import ModelStore
from dcsurv.service.wording import read_owner_words

if TYPE_CHECKING:
    from dcsurv.service.app import make_app
    from dcsurv.service.guard import Access

# What needs the packages of the extra `serve`, imported when it is asked for.
_SERVING = {"Access": "dcsurv.service.guard", "make_app": "dcsurv.service.app"}

__all__ = [
    "SERVED_POLICY",
    "Access",
    "CalculatorFile",
    "Limits",
    "ModelStore",
    "PageFile",
    "Policy",
    "Problem",
    "assemble",
    "make_app",
    "model_card",
    "page_files",
    "read_languages",
    "read_owner_words",
    "write_calculator",
]


def __getattr__(name: str) -> Any:
    if name in _SERVING:
        with needs_extra("A service", "serve"):
            return getattr(import_module(_SERVING[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
