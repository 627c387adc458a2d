"""A fitted model as plain arithmetic: a graph of few operations, packed for a browser or written as an ONNX file."""

from dcsurv.arithmetic.graph import OPERATIONS, Graph, Value
from dcsurv.arithmetic.onnx_file import to_onnx
from dcsurv.arithmetic.pack import packed
from dcsurv.arithmetic.readable import ReadableCurves
from dcsurv.arithmetic.whole import Arithmetic, FeatureInput

__all__ = [
    "OPERATIONS",
    "Arithmetic",
    "FeatureInput",
    "Graph",
    "ReadableCurves",
    "Value",
    "packed",
    "to_onnx",
]
