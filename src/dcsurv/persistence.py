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

import msgspec
import numpy as np
import numpy.typing as npt

from dcsurv.kinds import ModelKind, kind_in_file, kinds
from dcsurv.plain import Finite, NotNegative, declared, plain
from dcsurv.writing import write_atomically

FORMAT = 1

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Header: TypeAlias = dict[str, Any]

# The one entry of safetensors' metadata. It holds header and digest together, because the order of several entries
# is random, and the same model should give the same bytes.
_ENTRY = "dcsurv"


class ModelFileError(ValueError):
    """A model file cannot be read or written."""


class UnknownKindError(ModelFileError):
    """A model file needs a class that is not there."""


class _Entry(msgspec.Struct):
    header: str
    sha256: str


class _Opening(msgspec.Struct):
    """What every header begins with; the classes declare the rest."""

    format: int
    kind: str


class MeasuredRow(msgspec.Struct):
    """What a file has to say of a measured value."""

    metric: str
    horizon: NotNegative | None
    value: Finite | None
    lower: Finite | None = None
    upper: Finite | None = None
    sd: Finite | None = None
    p_value: Finite | None = None


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
    document = {"format": FORMAT, "kind": kind, **header}
    try:
        text = json.dumps(plain(document), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the model cannot be saved: {error}") from None
    write_atomically(Path(path), file_bytes(text, {name: np.ascontiguousarray(one) for name, one in arrays.items()}))


def file_bytes(text: str, arrays: Arrays) -> bytes:
    """Return the bytes of a file with this header and these arrays, and the digest of both."""
    from safetensors.numpy import save as to_bytes

    return bytes(to_bytes(arrays, {_ENTRY: json.dumps({"header": text, "sha256": _digest(text, arrays)})}))


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
        model = from_saved(header, arrays)
    except UnknownKindError as error:
        raise UnknownKindError(f"{path} cannot be read here: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise ModelFileError(
            f"{path} does not describe a complete {header['kind']} model: {what}. Copy it again, or save the model "
            "again."
        ) from error
    model.loaded_from_ = str(path)
    return model


def from_saved(header: Header, arrays: Arrays) -> Any:
    """Build a model from the contents of a file, or of the part of a file that holds it.

    Raises
    ------
    ValueError
        If the kind is not known, or does not take what it finds.
    """
    return known_kind("it", header["kind"]).model.from_saved(header, arrays)


def known_kind(what: str, class_name: str) -> ModelKind:
    """Return the kind of a class that a file names.

    Raises
    ------
    UnknownKindError
        If there is none; an extension that is not installed may bring it.
    """
    kind = kind_in_file(class_name)
    if kind is None:
        known = ", ".join(sorted(one.model.__name__ for one in kinds()))
        raise UnknownKindError(
            f"{what} is of the unknown kind {class_name!r}; known are {known}. If an extension brings it, install that."
        )
    return kind


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
        entry = msgspec.json.decode(metadata[_ENTRY], type=_Entry)
        header = msgspec.json.decode(entry.header)  # stricter than the standard library: no NaN, nothing infinite
        version = declared(header, _Opening).format
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise ModelFileError(f"{path} has a header that cannot be read. Save the model again.") from None
    if version > FORMAT:
        raise ModelFileError(
            f"{path} has format {version}, but this version of dcsurv reads formats up to {FORMAT}. Update dcsurv."
        )
    if version < 1:
        raise ModelFileError(f"{path} has format {version}, which there never was. Save the model again.")
    try:
        arrays: Arrays = from_bytes(Path(path).read_bytes())
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} is damaged ({error}). Copy it again, or save the model again.") from None
    if entry.sha256 != _digest(entry.header, arrays):
        raise ModelFileError(
            f"{path} was changed after it was saved: its digest does not match. Copy it again, or save the model again."
        )
    return header, arrays


def read_array(
    arrays: Arrays, name: str, shape: tuple[int | None, ...], *, dtype: npt.DTypeLike = np.float64, finite: bool = True
) -> npt.NDArray[Any]:
    """Return an array of a file, checked.

    Parameters
    ----------
    arrays
        What the file has.
    shape
        Its lengths; None where any will do.
    finite
        Whether NaN and infinity are refused.

    Raises
    ------
    ValueError
        If it is not there, or is something else.
    """
    if name not in arrays:
        raise ValueError(f"its array {name} is missing")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(n in (None, own) for n, own in zip(shape, array.shape, strict=True))
    if not fits or array.dtype != dtype:
        wanted = " x ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(
            f"its array {name} has the shape {array.shape} and the type {array.dtype}; {wanted} numbers of the type "
            f"{np.dtype(dtype)} are expected"
        )
    if finite and not np.isfinite(array).all():
        raise ValueError(f"its array {name} holds values that are not finite")
    return array


def _digest(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
