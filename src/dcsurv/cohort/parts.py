"""Predictions for a folder of Parquet files: one part of the output for each part of the input."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.features import Odd
from dcsurv.cohort.prediction_files import write_predictions
from dcsurv.cohort.predictions import Predictor
from dcsurv.cohort.reading import inspect_table
from dcsurv.messages import needs_extra
from dcsurv.parallel import results_of
from dcsurv.writing import remove_leftovers, written_atomically

if TYPE_CHECKING:
    from dcsurv.preprocessing import OutsideCounts

# What the folder of predictions was made with, so that a later run knows whether it may go on there.
_RECORD = "_predicted.json"


@dataclass(frozen=True)
class TablePart:
    """One file of a table that is kept in several, and where its predictions go.

    Parameters
    ----------
    source : Path
        Its rows.
    target : Path
        Its predictions.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dcsurv.cohort import TablePart
    >>> TablePart(Path("parts/a.parquet"), Path("predictions/a.parquet")).done
    False
    """

    source: Path
    target: Path

    @property
    def done(self) -> bool:
        """Whether its predictions are there, all of them, and younger than its rows."""
        return self.target.is_file() and self.target.stat().st_mtime_ns >= self.source.stat().st_mtime_ns

    def resolved(self) -> TablePart:
        """Return the same part with whole paths, which mean the same in another process."""
        return TablePart(self.source.resolve(), self.target.resolve())


@dataclass(frozen=True)
class Counts:
    """What a predictor has counted in some parts.

    Parameters
    ----------
    rows : int, default 0
        Patients.
    odd : dict, default {}
        Values that had to be taken for missing, by column and reason.
    beyond : dict of str to int, default {}
        For how many patients each horizon lies beyond the follow-up of patients like them.
    outside : OutsideCounts or None, default None
        How many of them have values outside the range of training, where that is known.
    cut : int, default 0
        How many rows end too early.

    Examples
    --------
    >>> from dcsurv.cohort import Counts
    >>> (Counts(2, beyond={"5y": 1}) + Counts(3, beyond={"5y": 2})).beyond
    {'5y': 3}
    """

    rows: int = 0
    odd: dict[tuple[str, str], Odd] = field(default_factory=dict)
    beyond: dict[str, int] = field(default_factory=dict)
    outside: OutsideCounts | None = None
    cut: int = 0

    @classmethod
    def of(cls, predictor: Predictor) -> Counts:
        """Return what a predictor has counted so far.

        Parameters
        ----------
        predictor : Predictor
            Which has predicted something.
        """
        return cls(predictor.rows, predictor.odd, predictor.beyond, predictor.outside, predictor.cut)

    def __add__(self, other: Counts) -> Counts:
        odd = dict(self.odd)
        for key, one in other.odd.items():
            odd[key] = odd[key] + one if key in odd else one
        beyond = {
            name: self.beyond.get(name, 0) + other.beyond.get(name, 0) for name in {**self.beyond, **other.beyond}
        }
        both = self.outside is not None and other.outside is not None
        outside = self.outside + other.outside if both else self.outside or other.outside  # type: ignore[operator]
        return Counts(self.rows + other.rows, odd, beyond, outside, self.cut + other.cut)


def predict_part(predictor: Predictor, part: TablePart) -> Counts:
    """Predict one part, all of it or nothing; the predictor itself counts nothing.

    A part without rows, as programs that divide a table leave some, becomes one without predictions.

    Parameters
    ----------
    predictor : Predictor
        The model and what is predicted.
    part : TablePart
        What to read and where to write.

    Returns
    -------
    Counts
        Of this part.
    """
    own = replace(predictor)
    part.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        for _ in write_predictions(own, inspect_table(part.source), part.target, may_be_empty=True):
            pass
    except CohortError as error:
        raise CohortError.of(error, str(part.source)) from error
    return Counts.of(own)


def find_parts(folder: Path, output: Path) -> list[TablePart]:
    """Return the parts of a folder, in the order of their names.

    Parameters
    ----------
    folder : Path
        A folder with Parquet files, also in folders within. Names that begin with a point or an underscore are left
        out, as everywhere.
    output : Path
        The folder for the predictions, in files of the same names.

    Returns
    -------
    list of TablePart
        At least one.

    Raises
    ------
    CohortError
        If there is none.
    """
    inside = sorted(path.relative_to(folder) for path in folder.rglob("*.parquet"))
    found = [name for name in inside if not any(one.startswith((".", "_")) for one in name.parts)]
    if not found:
        raise CohortError(
            f"the folder {folder} has no Parquet files.",
            parameter="path",
            remedy="Name a folder with files that end in .parquet, or one file: CSV, Parquet or Excel.",
        )
    return [TablePart(folder / name, output / name) for name in found]


def predict_folder(
    predictor: Predictor,
    parts: Iterable[TablePart],
    output: Path,
    made_with: str,
    *,
    strict: bool = False,
) -> Iterator[Counts]:
    """Predict the parts of a folder; those that are done already are kept.

    Inside a block of :func:`dcsurv.on_cluster` each part is a task. The workers read and write the files themselves, so
    that they must find them where this machine does.

    Parameters
    ----------
    predictor : Predictor
        The model and what is predicted.
    parts : iterable of TablePart
        From :func:`find_parts`.
    output : Path
        The folder for the predictions.
    made_with : str
        A fingerprint of the model's file: a folder that another model has begun is refused.
    strict : bool, default False
        Whether rows that are not like those of training are refused, in any part, before anything is predicted.

    Yields
    ------
    Counts
        Of all parts that were predicted so far, in this run.
    """
    with needs_extra("A Parquet file", "parquet"):
        import pyarrow  # noqa: F401

    parts = list(parts)
    for part in parts if strict else ():
        predictor.refuse_unlike(inspect_table(part.source))
    output.mkdir(exist_ok=True)
    record = {"model": made_with, "columns": [*predictor.keep, *predictor.names()]}
    _begin(output, record)
    total = Counts()
    left = [part.resolved() for part in parts if not part.done]
    for counts in results_of([(predict_part, (predictor, part), {}) for part in left]):
        total += counts
        yield total


def _begin(output: Path, record: Mapping[str, object]) -> None:
    """Take a folder for predictions of a kind, and remove what a run that was killed has left half-written."""
    path = output / _RECORD
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")) != record:
            raise CohortError(f"{output} holds predictions of another model, or other ones. Name another folder.")
        for folder in (output, *(one for one in output.rglob("*") if one.is_dir())):
            remove_leftovers(folder)
        return
    if any(output.iterdir()):
        raise CohortError(f"the folder {output} holds something else. Name a new or an empty one.")
    with written_atomically(path) as stream:
        stream.write(json.dumps(record, indent=2).encode())
