"""The model file: safetensors with a JSON header. Nothing in it is executed when it is read.

A file holds arrays (network weights, baseline hazards, grid) and one JSON document that says what they are. A
SHA-256 digest over both tells a damaged or edited file from an intact one; it is no signature, so it does not say
who wrote the file. Formats are numbered: a newer one is refused, an older one keeps loading.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dcsurv.kinds import kind_in_file, kinds
from dcsurv.plain import plain
from dcsurv.writing import write_atomically

FORMAT = 1

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Header: TypeAlias = dict[str, Any]

# The one entry of safetensors' metadata. It holds header and digest together, because the order of several entries
# is random, and the same model should give the same bytes.
_ENTRY = "dcsurv"


class ModelFileError(ValueError):
    """A model file cannot be read or written."""


def save(path: str | os.PathLike[str], kind: str, header: Header, arrays: Arrays) -> None:
    """Write a model file, all of it or nothing.

    Parameters
    ----------
    kind
        Name of the class that can read it.
    header
        Anything that JSON can hold; no rows of patients.
    arrays
        Named arrays of numbers.
    """
    from safetensors.numpy import save as to_bytes

    document = {"format": FORMAT, "kind": kind, **header}
    try:
        text = json.dumps(plain(document), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the model cannot be saved: {error}") from None
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    entry = json.dumps({"header": text, "sha256": _digest(text, contiguous)})
    data = to_bytes(contiguous, {_ENTRY: entry})
    write_atomically(Path(path), data)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file and return the fitted model in it.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    SurvivalModel
        The model, ready to predict.

    Raises
    ------
    ModelFileError
        If the file is truncated, edited, of a newer format or not a model file at all.
    FileNotFoundError
        If there is no such file.
    """
    header, arrays = read(path)
    try:
        return from_saved(header, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ModelFileError(f"{path} does not describe a complete {header['kind']} model: {error}") from error


def from_saved(header: Header, arrays: Arrays) -> Any:
    """Build a model from the contents of a file, or of the part of a file that holds it.

    Raises
    ------
    ValueError
        If the kind is not known, or does not take what it finds.
    """
    kind = kind_in_file(header["kind"])
    if kind is None:
        known = ", ".join(sorted(one.model.__name__ for one in kinds()))
        raise ValueError(
            f"it is of the unknown kind {header['kind']!r}; known are {known}. If an extension brings it, install that."
        )
    return kind.model.from_saved(header, arrays)


def read(path: str | os.PathLike[str]) -> tuple[Header, Arrays]:
    """Return what is in a model file, checked, without building a model.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    header : dict
        Plain data: kind, parameters, features, versions, and what else the model keeps.
    arrays : dict
        Arrays by name.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import load as from_bytes

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no model file at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is not a model file or is incomplete ({error}). Copy it again, or save the model again."
        ) from None
    if _ENTRY not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not one that dcsurv wrote: it has no header.")
    try:
        entry = json.loads(metadata[_ENTRY])
        text, digest = entry["header"], entry["sha256"]
        header = json.loads(text)
        version = header["format"]
        if not isinstance(header["kind"], str):
            raise TypeError("the kind of a model is a name")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelFileError(f"{path} has a header that cannot be read. Save the model again.") from None
    if not isinstance(version, int) or version > FORMAT:
        raise ModelFileError(
            f"{path} has format {version}, but this version of dcsurv reads formats up to {FORMAT}. Update dcsurv."
        )
    try:
        arrays: Arrays = from_bytes(Path(path).read_bytes())
    except (SafetensorError, ValueError) as error:
        raise ModelFileError(f"{path} is damaged ({error}). Copy it again, or save the model again.") from None
    if digest != _digest(text, arrays):
        raise ModelFileError(
            f"{path} was changed after it was saved: its digest does not match. Copy it again, or save the model again."
        )
    return header, arrays


def _digest(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
