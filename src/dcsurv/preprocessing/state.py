"""What a model file has to say of its preprocessing."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dcsurv.plain import Count, Finite, NotNegative


class NumberState(msgspec.Struct, tag_field="kind", tag="number"):
    name: str
    mean: Finite
    scale: NotNegative
    median: Finite
    levels: list[str] | None


class CategoryState(msgspec.Struct, tag_field="kind", tag="category"):
    name: str
    levels: Annotated[list[str], msgspec.Meta(min_length=1)]
    most_frequent: Count

    def __post_init__(self) -> None:
        if self.most_frequent >= len(self.levels) or len(set(self.levels)) < len(self.levels):
            raise ValueError("the levels of a category differ, and the most frequent is one of them")


class PreprocessorState(msgspec.Struct):
    """What a file has to say of a preprocessor."""

    version: Literal[1]
    ordinal: list[str]
    named: bool
    columns: Annotated[list[NumberState | CategoryState], msgspec.Meta(min_length=1)]
    least_patients: Count = 1  # files before it kept all

    def __post_init__(self) -> None:
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("two columns have the same name")
