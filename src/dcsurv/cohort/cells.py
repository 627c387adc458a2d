"""What single cells mean: numbers, levels, yes and no."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from dcsurv.plain import level_text

_Words: TypeAlias = tuple[frozenset[str], frozenset[str]]
# Yes and no, language by language. A column speaks one of them, and keeps it.
ENGLISH: tuple[_Words, ...] = (
    (frozenset({"yes", "y"}), frozenset({"no", "n"})),
    (frozenset({"true", "t"}), frozenset({"false", "f"})),
    (frozenset({"positive", "pos", "+"}), frozenset({"negative", "neg"})),
    (frozenset({"present"}), frozenset({"absent"})),
)
_OTHERS: tuple[_Words, ...] = (
    (frozenset({"ja", "j"}), frozenset({"nein", "nee", "n"})),  # German, Dutch
    (frozenset({"wahr"}), frozenset({"falsch"})),
    (frozenset({"oui", "o"}), frozenset({"non", "n"})),
    (frozenset({"vrai"}), frozenset({"faux"})),
    (frozenset({"sí", "si", "sì", "s"}), frozenset({"no", "n"})),  # Spanish, Italian
    (frozenset({"sim", "s"}), frozenset({"não", "nao", "n"})),
    (frozenset({"tak", "t"}), frozenset({"nie", "n"})),
)
LANGUAGES = (*ENGLISH, *_OTHERS)
# Out of their language, an o or an s may stand for anything.
YES: frozenset[str] = frozenset().union(*(yes for yes, _ in LANGUAGES)) - {"o", "s"}
NO: frozenset[str] = frozenset().union(*(no for _, no in LANGUAGES))


def to_numbers(values: pd.Series) -> pd.Series:
    """Return numbers, NaN where a value is missing or no finite number."""
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "fiu":
        out = values if values.dtype == np.float64 else values.astype(np.float64)
    else:
        out = pd.Series(
            pd.to_numeric(values.astype(object), errors="coerce").to_numpy(np.float64, na_value=np.nan),
            index=values.index,
            name=values.name,
        )
    infinite = np.isinf(out.to_numpy())
    return out.where(~infinite) if infinite.any() else out


def level_texts(values: pd.Series) -> pd.Series:
    """Return levels as text, in which 1, 1.0 and "1.0" are the same; missing ones stay missing."""
    uniques = {value: level_text(_number_in(value)) for value in values.dropna().unique()}
    return values.map(uniques).astype(object)


def _number_in(cell: Any) -> Any:
    """Return the number in a cell of a text file that holds a whole one, such as 1.0, else the cell."""
    return cell.split(".")[0] if isinstance(cell, str) and re.fullmatch(r"[+-]?\d+\.0+", cell) else cell


def examples(values: pd.Series) -> list[str]:
    return [str(value) for value in values.value_counts().index]


def yes_and_no(texts: Iterable[str]) -> tuple[str, str] | None:
    """Return how a column writes no and yes, if that is all it says: in English no and yes, else in its own words.

    Parameters
    ----------
    texts
        The values, each as often as it occurs.
    """
    counts = Counter(texts)
    folded = {fold(text) for text in counts}
    fitting = [one for one in LANGUAGES if folded & one[0] and folded & one[1] and folded <= one[0] | one[1]]
    if not fitting:
        # Of Y, N and X, the third may mean anything; of two words, one each is clear.
        return ("no", "yes") if len(folded) == 2 and folded & YES and folded & NO else None
    if fitting[0] in ENGLISH:
        return "no", "yes"
    yes, no = fitting[0]
    return _usual(counts, no), _usual(counts, yes)


def meaning_the_same(yes: str) -> frozenset[str]:
    """Return the words for yes in the languages that one of them belongs to."""
    return frozenset().union(*(words for words, _ in LANGUAGES if fold(yes) in words))


def is_yes(word: str) -> bool:
    """Whether one of the two words of a column is the yes."""
    return fold(word) not in NO


def _usual(counts: Counter[str], words: frozenset[str]) -> str:
    """Return the most frequent spelling, whole words before letters."""
    own = [text for text in counts if fold(text) in words]
    return max(own, key=lambda text: (len(text) > 1, counts[text], text))


def fold(text: str) -> str:
    """Return what spellings of one level have in common: no case, no needless blanks, composed accents."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def spellings(texts: pd.Series) -> dict[str, str]:
    """Return, of levels that are written in several ways, each spelling and the most frequent one in its place.

    Parameters
    ----------
    texts
        Levels as text, each as often as it occurs.

    Returns
    -------
    dict
        From spelling to level, only where they differ. Two letters that differ in case alone, such as the genotypes AA,
        Aa and aa, are levels of their own; so are the two alleles in a column that holds A and a only.
    """
    counts = Counter(texts.dropna())
    language = _language(counts)
    variants: dict[str, list[str]] = {}
    for text in counts:
        variants.setdefault(_key(text, language), []).append(text)
    if len(variants) == 1 and len(next(iter(variants))) == 1:
        return {}
    out: dict[str, str] = {}
    for same in variants.values():
        level = max(same, key=lambda text: (counts[text], text))
        out |= {text: level for text in same if text != level}
    return out


def respelled(texts: pd.Series, levels: Sequence[str]) -> pd.Series:
    """Return levels in the spelling of the known ones.

    Parameters
    ----------
    texts
        Levels as text.
    levels
        Those that are known.
    """
    exact, language = set(levels), _language(levels)
    known = {_key(level, language): level for level in levels}
    others = [text for text in texts.dropna().unique() if text not in exact]
    changed = {text: known[_key(text, language)] for text in others if _key(text, language) in known}
    return texts.map(lambda text: changed.get(text, text), na_action="ignore") if changed else texts


def _language(levels: Iterable[str]) -> _Words | None:
    """Return in which language levels say yes, with a whole word, and no, besides whatever else they say."""
    folded = {fold(level) for level in levels}
    spoken = (one for one in LANGUAGES if folded & one[1] and any(len(word) > 1 for word in folded & one[0]))
    return next(spoken, None)


def _key(text: str, language: _Words | None) -> str:
    """Return what two spellings of one level share."""
    folded = fold(text)
    if len(folded) == 2 and folded[0] == folded[1]:
        return " ".join(text.split())
    for words in language or ():
        if folded in words:
            return max(words)
    return folded
