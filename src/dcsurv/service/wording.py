"""The owner's words: what a model is called, what is asked for, and what a reader should know. One JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dcsurv.cohort.card import levels_of
from dcsurv.explanation.mixing import feature_names
from dcsurv.messages import InputError, did_you_mean, listed, shortened
from dcsurv.models import SurvivalModel
from dcsurv.service.files import name_and_version

_LARGEST = 1_000_000  # bytes
_Short = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Long = Annotated[str, msgspec.Meta(min_length=1, max_length=5000)]


class FeatureWords(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the owner says of a feature."""

    label: _Short | None = None
    unit: _Short | None = None
    help: _Long | None = None
    levels: dict[str, _Short] = {}


class ModelWords(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the owner says of a model."""

    title: _Short | None = None
    notice: _Long | None = None
    event: _Short | None = None
    event_free: _Short | None = None
    features: dict[str, FeatureWords] = {}


class OwnerWords(ModelWords, forbid_unknown_fields=True, omit_defaults=True):
    """What the owner says of a model, and the same in other languages by their codes."""

    languages: dict[str, ModelWords] = {}


def read_owner_words(path: Path) -> dict[str, Any]:
    """Read the owner's words from a JSON file.

    Parameters
    ----------
    path : Path
        The file: ``title``, ``notice``, ``event`` (what 34 of 100 people will do: ``die``), ``event_free`` (what the
        others are: ``alive``), and ``features`` with ``label``, ``unit``, ``help`` and ``levels``. ``languages`` has
        the same once more for each further language, by its code.

    Returns
    -------
    dict
        As :func:`model_card` takes them.

    Raises
    ------
    InputError
        If it says something else.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dcsurv.service import read_owner_words
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "words.json")
    ...     _ = path.write_text('{"title": "Breast cancer", "features": {"age": {"unit": "years"}}}')
    ...     read_owner_words(path)
    {'title': 'Breast cancer', 'features': {'age': {'unit': 'years'}}}
    """
    remedy = (
        "It is a JSON object with title, notice, event, event_free, features and languages; see the documentation of "
        "the service."
    )
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InputError(f"{path.name} is too large for a file of words.", parameter="words")
        found = msgspec.json.decode(content, type=OwnerWords)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = shortened(str(error))
        raise InputError(f"{path.name} cannot be used: {text}.", parameter="words", remedy=remedy) from None
    out: dict[str, Any] = msgspec.to_builtins(found)
    return out


def words_beside(model: Path) -> Path | None:
    """Return the file of words that lies beside a model file: of that version, or of all versions of its name.

    Parameters
    ----------
    model : Path
        ``breast@2.safetensors`` has its words in ``breast@2.words.json`` or ``breast.words.json``.

    Returns
    -------
    Path or None
        The first of them that is there.
    """
    names = (model.stem, name_and_version(model)[0])
    return next((path for name in names if (path := model.with_name(f"{name}.words.json")).is_file()), None)


def refuse_strange_words(words: Mapping[str, Any], model: SurvivalModel) -> None:
    """Refuse words for features and levels that a model does not have: they would be shown nowhere.

    Parameters
    ----------
    words : mapping
        From :func:`read_owner_words`.
    model : SurvivalModel
        A fitted model.

    Raises
    ------
    InputError
        With what the model has.
    """
    levels = levels_of(model)
    features = {name: levels.get(name) for name in feature_names(model)}
    for name, said in words.get("features", {}).items():
        if name not in features:
            remedy = f"{did_you_mean(name, list(features))}It has {listed(list(features), 12)}."
            raise InputError(f"{shortened(repr(name))} is no feature of the model.", parameter="words", remedy=remedy)
        known = list(features[name] or ())
        for level in said.get("levels", {}):
            if level not in known:
                remedy = f"It has {listed(known, 12) or 'none'}."
                text = f"{shortened(repr(level))} is no level of {name!r}."
                raise InputError(text, parameter="words", remedy=remedy)
