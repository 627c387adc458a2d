"""The risk calculator: a fitted model behind an HTTP API, or in a page."""

from dcsurv.service.calculator import CalculatorFile, write_calculator
from dcsurv.service.card import model_card
from dcsurv.service.own_words import read_own_words
from dcsurv.service.page import assemble, page_files, read_words
from dcsurv.service.policy import Policy
from dcsurv.service.problems import Problem

__all__ = [
    "CalculatorFile",
    "Policy",
    "Problem",
    "assemble",
    "model_card",
    "page_files",
    "read_own_words",
    "read_words",
    "write_calculator",
]
