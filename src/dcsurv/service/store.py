"""The models of a service: files of a folder by name and version, read again when one is replaced."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dcsurv._compile import expect_much
from dcsurv.messages import InputError, did_you_mean, listed, plural, shortened
from dcsurv.persistence import load
from dcsurv.service.files import SUFFIX, FileStamp, content, name_and_version, one_line, stamp
from dcsurv.service.metrics import ServiceCounts
from dcsurv.service.policy import Policy
from dcsurv.service.problems import Problem
from dcsurv.service.served import ServedModel
from dcsurv.service.wording import read_owner_words, refuse_strange_words, words_beside

# A file that is not there in so many looks in a row is gone; one that is copied over in two steps is missed once.
_GONE_AFTER = 2
_log = logging.getLogger("dcsurv.service")


@dataclass(frozen=True)
class Shelf:
    """What is known of one file.

    Parameters
    ----------
    name, version : str
        As its name says; with escapes where that is no text.
    stamp : tuple of int
        Of the file that was looked at last.
    served : ServedModel or None, default None
        The model that answers, the last good one.
    problem : str or None, default None
        Why the file that is there now is not used.
    missed : int, default 0
        In how many looks it was not there.
    again : bool, default False
        Whether it may be used at the next look though it is the same: the problem lies elsewhere.
    """

    name: str
    version: str
    stamp: FileStamp
    served: ServedModel | None = None
    problem: str | None = None
    missed: int = 0
    again: bool = False


class ModelStore:
    """The models of a file or a folder, ready to answer.

    ``breast@2.safetensors`` is version 2 of breast; without a sign the version is 1. Of a name, the newest version
    answers unless another is asked for; of several names, the first in the alphabet.

    Parameters
    ----------
    path : Path
        A model file, or a folder of them.
    policy : Policy or None, default None
        What is done with values unlike training; None: notes.
    words : mapping or None, default None
        The owner's words, of all models; None: of each those that lie beside it, as ``breast.words.json``.

    Attributes
    ----------
    path : Path
        As passed.
    counts : ServiceCounts
        What is counted: files read, and what a service adds.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.service import ModelStore
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dcsurv.CoxPH(time_unit="days").fit(*load_metabric()).save(pathlib.Path(folder, "breast@2.safetensors"))
    ...     store = ModelStore(pathlib.Path(folder))
    ...     store.open()
    >>> store.find("breast").version
    '2'
    """

    def __init__(self, path: Path, policy: Policy | None = None, words: Mapping[str, Any] | None = None) -> None:
        self.path, self.counts = path, ServiceCounts()
        self._policy, self._words = policy or Policy(), words
        # Replaced as a whole, never changed: whoever reads it sees one state.
        self._shelves: Mapping[Path, Shelf] = {}
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    # --- reading ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read all files; refuse a place without a model that can be used."""
        expect_much()
        self.look()
        if not self.all():
            problems = [f"{_said(path)}: {one.problem}" for path, one in self._shelves.items() if one.problem]
            if problems:
                raise InputError(f"no model can be used. {' '.join(problems)}", parameter="path")
            if not self.path.exists():
                raise InputError(f"there is no file or folder {self.path}.", parameter="path")
            raise InputError(
                f"{self.path} holds no model file.", parameter="path", remedy=f"Model files end in {SUFFIX}."
            )

    def look(self) -> None:
        """Look at the files once, and read those that are new or were replaced."""
        found = {path: now for path in self._files() if (now := self._stamp(path))}
        shelves = dict(self._shelves)
        for path in [one for one in shelves if one not in found]:
            missed = shelves[path].missed + 1
            if missed >= _GONE_AFTER:
                _log.warning("%s is gone; its model does not answer any more", _said(path))
                del shelves[path]
            else:
                shelves[path] = replace(shelves[path], missed=missed)
        for path, now in found.items():
            before = shelves.get(path)
            if before is None or before.stamp != now or before.again:
                same = _same_name(path, shelves)
                # A new file under the name of one that is not there any more: that was renamed.
                left = [] if before is not None else [other for other in same if other not in found]
                taken = next((other for other in same if other not in left), None)
                last = shelves[left[0]].served if left else None
                shelves[path] = shelf = self._read(path, now, before, last, taken)
                for other in left if shelf.served is not None else []:
                    _log.warning("%s is gone; %s answers in its place", _said(other), _said(path))
                    del shelves[other]
                self._shelves = dict(shelves)
            elif before.missed:
                shelves[path] = replace(before, missed=0)
        self._shelves = shelves

    def watch(self, seconds: float) -> None:
        """Look again every now and then, in a thread.

        Parameters
        ----------
        seconds : float
            Between two looks.
        """
        self._watcher = threading.Thread(target=self._watch, args=(seconds,), name="dcsurv-models", daemon=True)
        self._watcher.start()

    def close(self, seconds: float = 2.0) -> None:
        """Look no more.

        Parameters
        ----------
        seconds : float, default 2.0
            For how long is waited until a look has ended; it may hang on a disk that does not answer.
        """
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join(seconds)

    def _watch(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                self.look()
            except Exception as error:  # such as a folder that cannot be read for a while
                _log.error("the models could not be looked at (%s)", type(error).__name__)

    def _files(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        return sorted(one for one in self.path.glob(f"*{SUFFIX}") if not one.name.startswith("."))

    def _read(
        self, path: Path, now: FileStamp, before: Shelf | None, last: ServedModel | None, taken: Path | None
    ) -> Shelf:
        """Read a file; where it cannot be used, what was read of it before stays."""
        name, version = name_and_version(path)
        stays = None if before is None else before.served
        try:
            if not path.name.isprintable():
                raise InputError("the name of the file holds what cannot be shown.", remedy="Give it another name.")
            if taken is not None:
                raise InputError(f"{taken.name} has the same name and version.")
            served = self._load(path, name, version, stays or last)
        except Exception as error:
            text, known = _in_words(error), None if before is None else before.problem
            if before is None or (before.stamp, known) != (now, text):
                self.counts.loads["refused"] += 1
                said = "; the model before stays" if stays is not None else ""
                _log.error("%s cannot be used%s: %s", _said(path), said, text)
            again = taken is not None or isinstance(error, OSError)
            return Shelf(one_line(name), one_line(version), now, stays, text, again=again)
        if served is not stays:
            self.counts.loads["loaded"] += 1
            _log.warning("%s: model %s, version %s, %s", _said(path), name, version, served.digest[:12])
        return Shelf(name, version, now, served)

    def _load(self, path: Path, name: str, version: str, last: ServedModel | None) -> ServedModel:
        found = content(path)
        digest = hashlib.sha256(found).hexdigest()
        words = self._words_of(path)
        if last is not None and (last.digest, last.words) == (digest, words):
            return last
        # A copy of our own: whatever happens to the file meanwhile, the digest is of what is read.
        with tempfile.TemporaryDirectory(prefix="dcsurv-") as folder:
            copy = Path(folder, f"model{SUFFIX}")
            copy.write_bytes(found)
            try:
                model = load(copy)
            except ValueError as error:
                raise ValueError(str(error).replace(str(copy), path.name)) from None
        if self._words is None or not self.path.is_dir():  # words for all models of a folder may be of some of them
            refuse_strange_words(words, model)
        served = ServedModel(model, name, version, digest, words, self._policy)
        served.warm_up()
        return served

    def _words_of(self, path: Path) -> Mapping[str, Any]:
        if self._words is not None:
            return self._words
        beside = words_beside(path)
        return {} if beside is None else read_owner_words(beside)

    def _stamp(self, path: Path) -> FileStamp:
        """Return what tells whether a model, or its words, were replaced; nothing if there is no such file."""
        own = stamp(path)
        beside = words_beside(path) if own and self._words is None else None
        return own if beside is None else own + stamp(beside)

    # --- asking -------------------------------------------------------------------------------------------

    def all(self) -> list[ServedModel]:
        """Return the models that answer, by name, the newest first."""
        found = [one.served for one in self._shelves.values() if one.served is not None]
        found.sort(key=lambda one: _newness(one.version), reverse=True)
        return sorted(found, key=lambda one: one.name)

    def find(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """Return the model that is asked for.

        Parameters
        ----------
        name : str or None, default None
            Its name; None: the first.
        version : str or None, default None
            Its version; None: the newest.

        Returns
        -------
        ServedModel
            Ready to be asked.
        """
        models = self.all()
        if not models:
            raise Problem(503, "There is no model at the moment.", headers={"Retry-After": "5"})
        wanted = models[0].name if name is None else name
        named = [one for one in models if one.name == wanted]
        if not named:
            names = list(dict.fromkeys(one.name for one in models))
            asked = shortened(wanted)
            raise Problem(404, f"There is no model {asked!r}. {did_you_mean(asked, names)}There is {listed(names)}.")
        for one in named:
            if version in (None, one.version):
                return one
        known = listed([one.version for one in named])
        raise Problem(404, f"{wanted!r} has no version {shortened(str(version))!r}. There is {known}.")

    def problems(self) -> list[dict[str, Any]]:
        """Return which files cannot be used, and whether an earlier model answers in their place."""
        return [
            {"name": one.name, "version": one.version, "problem": one.problem, "answers": one.served is not None}
            for one in self._shelves.values()
            if one.problem is not None
        ]

    def describe(self) -> str:
        """Say in a few words what there is."""
        models = self.all()
        return f"{plural(len(models), 'model')}: {listed([f'{one.name} {one.version}' for one in models])}"


def _newness(version: str) -> list[tuple[int, int, str]]:
    """Return what versions are ordered by: numbers as numbers, 10 after 9, words before numbers."""
    parts = re.findall(r"\d+|\D+", version)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def _same_name(path: Path, shelves: Mapping[Path, Shelf]) -> list[Path]:
    """Return the other files whose models answer under the name and version of a file."""
    own = name_and_version(path)
    return [
        other
        for other, one in shelves.items()
        if other != path and one.served is not None and (one.name, one.version) == own
    ]


def _in_words(error: Exception) -> str:
    """Say why a file cannot be used, for those who may ask and for the log: without the folder that it lies in."""
    if isinstance(error, OSError):
        name = Path(os.fsdecode(error.filename)).name if isinstance(error.filename, str | bytes) else "it"
        return one_line(f"{name} cannot be read ({error.strerror or type(error).__name__}).")
    return one_line(str(error)) if isinstance(error, ValueError) else type(error).__name__


def _said(path: Path) -> str:
    return one_line(path.name, 160)
