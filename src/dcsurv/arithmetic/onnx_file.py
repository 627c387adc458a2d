"""A fitted model as an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dcsurv.arithmetic.whole import LEVEL, TIMES, Arithmetic, Computable
from dcsurv.messages import needs_extra
from dcsurv.writing import write_atomically

_OUTPUTS = ("survival", "lower", "upper", "followed_to")
# Version of the files that the operators came with.
_IR_VERSION = 10


def to_onnx(
    model: Computable | Arithmetic,
    path: str | PathLike[str] | None = None,
    *,
    about: Mapping[str, Any] | None = None,
) -> bytes:
    """Write a fitted model, its preprocessing included, as an ONNX file, which onnxruntime computes within 1e-6.

    Inputs are the features by their names, each (n,): numbers as doubles with NaN where one is missing, categories as
    text, of which unknown levels, such as ``""``, count as missing; ``times``, ascending doubles, (m,); and for models
    with a band its ``level``, one double such as 0.9. Outputs are ``survival``, (n, m), the ends of its band
    ``lower`` and ``upper``, if the model has one, and ``followed_to``, (n,).

    Parameters
    ----------
    model : Computable or Arithmetic
        A fitted model, or its arithmetic.
    path : str, path-like or None, default None
        File to write; None: none.
    about : mapping or None, default None
        What else the metadata are to say, such as the digest of the model's file: plain data.

    Returns
    -------
    bytes
        The contents of the file. Its metadata say the kind, the unit of the times, and, as JSON, the ``features``:
        ``{"name", "input", "levels"}`` each, the input being the name unless another input or output is called so.

    Examples
    --------
    >>> import onnxruntime
    >>> from dcsurv import CoxPH
    >>> from dcsurv.arithmetic import to_onnx
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> session = onnxruntime.InferenceSession(to_onnx(CoxPH().fit(X[["age", "chemotherapy"]], y)))
    >>> patients = {"age": [43.2, 66.5], "chemotherapy": ["yes", "no"]}
    >>> session.run(["survival"], {**patients, "times": [365.0, 1826.0]})[0].round(2)
    array([[0.99, 0.83],
           [0.99, 0.79]])
    """
    with needs_extra("An ONNX file", "onnx"):
        from onnx import TensorProto, checker, helper

    from dcsurv.arithmetic.lowering import OPSET, TREE_DOMAIN, TREE_OPSET, Lowering

    whole = model if isinstance(model, Arithmetic) else model.arithmetic()
    names = _names(whole)
    lowering = Lowering(whole.graph, {TIMES: TIMES, LEVEL: LEVEL} | {one: f"/{one}" for one in names})
    inputs = []
    for feature in whole.features:
        name, own = names[feature.value], f"/{feature.value}"
        if feature.levels is None:
            inputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["patients"]))
            lowering.nodes.append(helper.make_node("Identity", [name], [own]))
        else:
            inputs.append(helper.make_tensor_value_info(name, TensorProto.STRING, ["patients"]))
            _encode_levels(lowering, name, own, feature.levels)
    inputs.append(helper.make_tensor_value_info(TIMES, TensorProto.DOUBLE, ["times"]))
    outputs = [name for name in _OUTPUTS if name in whole.graph.outputs]
    if whole.has_band:
        inputs.append(helper.make_tensor_value_info(LEVEL, TensorProto.DOUBLE, []))
    lowering.write(whole.graph.needed_for(outputs))
    results = []
    for name in outputs:
        found = lowering.name_of(whole.graph.outputs[name])
        if name == "followed_to":
            found = lowering.operator("Reshape", [found, lowering.constant(np.array([-1], dtype=np.int64))])
        lowering.nodes.append(helper.make_node("Identity", [found], [name]))
        shape = ["patients"] if name == "followed_to" else ["patients", "times"]
        results.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape))
    written = helper.make_model(
        helper.make_graph(lowering.nodes, whole.kind, inputs, results, lowering.initializers),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(TREE_DOMAIN, TREE_OPSET)],
        ir_version=_IR_VERSION,
        producer_name="dcsurv",
    )
    helper.set_model_props(written, _metadata(whole, names, about or {}))
    checker.check_model(written)
    block: bytes = written.SerializeToString(deterministic=True)
    if path is not None:
        write_atomically(Path(path), block)
    return block


def _names(whole: Arithmetic) -> dict[str, str]:
    """Return the name of the input of each feature, by its value in the graph."""
    taken = {TIMES, LEVEL, *_OUTPUTS}
    names = {}
    for feature in whole.features:
        name = feature.name
        while not name or name in taken or name.startswith("/"):
            name = f"feature {name}"
        names[feature.value] = name
        taken.add(name)
    return names


def _encode_levels(lowering: Any, name: str, own: str, levels: tuple[str, ...]) -> None:
    """Write how texts become the places of levels, and others NaN."""
    from onnx import TensorProto, helper

    from dcsurv.arithmetic.lowering import TREE_DOMAIN

    places = lowering.operator(
        "LabelEncoder",
        [name],
        domain=TREE_DOMAIN,
        keys_strings=list(levels),
        values_int64s=list(range(len(levels))),
        default_int64=-1,
    )
    numbers = lowering.operator("Cast", [places], to=TensorProto.DOUBLE)
    unknown = lowering.operator("Less", [numbers, lowering.constant(np.array(0.0))])
    missing = lowering.constant(np.array(np.nan))
    lowering.nodes.append(helper.make_node("Where", [unknown, missing, numbers], [own]))


def _metadata(whole: Arithmetic, names: dict[str, str], more: Mapping[str, Any]) -> dict[str, str]:
    features = [
        {"name": one.name, "input": names[one.value], "levels": None if one.levels is None else list(one.levels)}
        for one in whole.features
    ]
    about = {name: one if isinstance(one, str) else json.dumps(one) for name, one in {**whole.about, **more}.items()}
    return {"kind": whole.kind, "features": json.dumps(features), **about}
