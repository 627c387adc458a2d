"""The models of a service: files of a folder by name and version, read again when one is replaced."""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dcsurv._compile import expect_much
from dcsurv.messages import InputError, did_you_mean, listed, plural, printable, shortened
from dcsurv.persistence import load
from dcsurv.service.metrics import ServiceCounts
from dcsurv.service.policy import Policy
from dcsurv.service.problems import Problem
from dcsurv.service.served import ServedModel

SUFFIX: Final = ".safetensors"
# A file that is not there in so many looks in a row is gone; one that is copied over in two steps is missed once.
_GONE_AFTER = 2
_log = logging.getLogger("dcsurv.service")

_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Shelf:
    """What is known of one file.

    Parameters
    ----------
    name, version : str
        As its name says.
    stamp : tuple of int
        Of the file that was looked at last.
    served : ServedModel or None, default None
        The model that answers, the last good one.
    problem : str or None, default None
        Why the file that is there now is not used.
    missed : int, default 0
        In how many looks it was not there.
    """

    name: str
    version: str
    stamp: _Stamp
    served: ServedModel | None = None
    problem: str | None = None
    missed: int = 0


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
        The owner's words.

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
        self._policy, self._words = policy or Policy(), dict(words or {})
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
            problems = [f"{path.name}: {one.problem}" for path, one in self._shelves.items() if one.problem]
            if problems:
                raise InputError(f"no model can be used. {' '.join(problems)}", parameter="path")
            if not self.path.exists():
                raise InputError(f"there is no file or folder {self.path}.", parameter="path")
            raise InputError(
                f"{self.path} holds no model file.", parameter="path", remedy=f"Model files end in {SUFFIX}."
            )

    def look(self) -> None:
        """Look at the files once, and read those that are new or were replaced."""
        found = {path: stamp for path in self._files() if (stamp := _stamp(path)) is not None}
        shelves = dict(self._shelves)
        for path, stamp in found.items():
            before = shelves.get(path)
            if before is None or before.stamp != stamp:
                shelves[path] = self._read(path, stamp, before)
                self._shelves = dict(shelves)
            elif before.missed:
                shelves[path] = replace(before, missed=0)
        for path in [one for one in shelves if one not in found]:
            missed = shelves[path].missed + 1
            if missed >= _GONE_AFTER:
                _log.warning("%s is gone; its model does not answer any more", _said(path))
                del shelves[path]
            else:
                shelves[path] = replace(shelves[path], missed=missed)
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

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join()

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

    def _read(self, path: Path, stamp: _Stamp, before: Shelf | None) -> Shelf:
        """Read a file; where it cannot be used, what was read before stays."""
        name, version = name_and_version(path)
        try:
            for other, one in self._shelves.items():
                if other != path and (one.name, one.version) == (name, version):
                    raise ValueError(f"{other.name} has the same name and version.")
            served = self._load(path, name, version, before)
        except Exception as error:
            self.counts.loads["refused"] += 1
            text = str(error) if isinstance(error, ValueError | OSError) else type(error).__name__
            stays = "; the model before stays" if before is not None and before.served is not None else ""
            _log.error("%s cannot be used%s: %s", _said(path), stays, printable(shortened(text, 400)))
            return Shelf(name, version, stamp, None if before is None else before.served, text)
        if before is None or served is not before.served:
            self.counts.loads["loaded"] += 1
            _log.warning("%s: model %s, version %s, %s", _said(path), name, version, served.digest[:12])
        return Shelf(name, version, stamp, served)

    def _load(self, path: Path, name: str, version: str, before: Shelf | None) -> ServedModel:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if before is not None and before.served is not None and before.served.digest == digest:
            return before.served
        # A copy of our own: whatever happens to the file meanwhile, the digest is of what is read.
        with tempfile.TemporaryDirectory(prefix="dcsurv-") as folder:
            copy = Path(folder, path.name)
            copy.write_bytes(content)
            try:
                model = load(copy)
            except ValueError as error:
                raise ValueError(str(error).replace(str(copy), path.name)) from None
        served = ServedModel(model, name, version, digest, self._words, self._policy)
        served.warm_up()
        return served

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


def name_and_version(path: Path) -> tuple[str, str]:
    """Return the name and the version of a model by the name of its file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dcsurv.service.store import name_and_version
    >>> name_and_version(Path("models/breast@2.1.safetensors")), name_and_version(Path("breast.safetensors"))
    (('breast', '2.1'), ('breast', '1'))
    """
    stem = path.name.removesuffix(SUFFIX)
    name, sign, version = stem.rpartition("@")
    return (name, version) if sign and name and version else (stem, "1")


def _newness(version: str) -> list[tuple[int, int, str]]:
    """Return what versions are ordered by: numbers as numbers, 10 after 9, words before numbers."""
    parts = re.findall(r"\d+|\D+", version)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _said(path: Path) -> str:
    return printable(shortened(path.name))
