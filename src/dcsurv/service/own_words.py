"""The owner's words on a page: title, notice, what the event is, and labels, units and help of features."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from dcsurv.messages import InputError, did_you_mean, listed, shortened
from dcsurv.plain import declared

_LARGEST: Final = 1_000_000  # bytes

# One text, or one by language: {"en": "Age", "de": "Alter"}.
_Text: TypeAlias = str | dict[str, str]


class _FeatureWords(msgspec.Struct, forbid_unknown_fields=True):
    label: _Text | None = None
    unit: _Text | None = None
    help: _Text | None = None
    levels: dict[str, _Text] = {}


class _OwnWords(msgspec.Struct, forbid_unknown_fields=True):
    title: _Text | None = None
    notice: _Text | None = None
    event: _Text | None = None
    features: dict[str, _FeatureWords] = {}


def read_own_words(path: Path, features: Mapping[str, Sequence[str] | None] | None = None) -> dict[str, Any]:
    """Read a file with the owner's words.

    Parameters
    ----------
    path : Path
        JSON: ``title``, ``notice``, ``event``, and ``features`` by name with ``label``, ``unit``, ``help`` and
        ``levels``. Each is a text, or texts by language: ``{"en": "Age", "de": "Alter"}``.
    features : mapping of str to sequence of str, or None, default None
        The features of the model with their levels, None for numbers: words for others are refused. By default any are
        taken.

    Returns
    -------
    dict
        The words, for :func:`model_card`.

    Raises
    ------
    InputError
        If the file is something else, or speaks of something that the model does not have.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dcsurv.service import read_own_words
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "words.json"
    ...     _ = file.write_text('{"title": "Breast cancer", "features": {"age": {"unit": "years"}}}')
    ...     read_own_words(file)["features"]
    {'age': {'unit': 'years'}}
    """

    def no(text: str, remedy: str = "") -> InputError:
        return InputError(f"{path.name}: {text}", parameter="words", remedy=remedy)

    if path.stat().st_size > _LARGEST:
        raise no("it is too large for a file of words.")
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise no(f"it is not JSON ({shortened(str(error))}).") from None
    try:
        found = declared(own, _OwnWords)
    except ValueError as error:
        raise no(
            f"{error}.",
            'It may hold "title", "notice", "event" and "features"; of a feature "label", "unit", "help" and "levels".',
        ) from None
    for name, said in found.features.items() if features is not None else ():
        assert features is not None
        if name not in features:
            asked = f"{did_you_mean(name, list(features))}The model has {listed(list(features), 12)}."
            raise no(f"{shortened(repr(name))} is no feature of the model.", asked)
        for level in said.levels:
            known = list(features[name] or ())
            if level not in known:
                raise no(f"{shortened(repr(level))} is no level of {name!r}.", f"It has {listed(known, 12) or 'none'}.")
    return dict(own)
