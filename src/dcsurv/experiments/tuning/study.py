"""The study: trials in memory, in a file or in PostgreSQL, proposed by Optuna and shared by any number of processes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dcsurv.experiments.tuning.criteria import Criterion
from dcsurv.experiments.tuning.spaces import settled, suggest
from dcsurv.experiments.tuning.trials import State, Steps, TrialResult
from dcsurv.messages import MissingExtra, needs_extra
from dcsurv.search_space import Space, TuningError

# Identities written under another number are not continued.
FORMAT: Final = 1
_IDENTITY: Final = "dcsurv"
# Seconds between signs of life of a process, and without one after which it is taken for dead.
_SIGN_OF_LIFE: Final = 30.0
_TAKEN_FOR_DEAD: Final = 300.0
# Seconds after which a trial in nobody's name is taken for lost: its process was killed in the act of taking it.
_OWNERLESS: Final = 15.0
_NOT_NEEDED: Final = "another process had begun the last one"
_PROCESS_ENDED: Final = "its process ended before the trial did"
# Keys of a trial: it does not count; why not; the trial that it repeats; it has the estimator's own settings.
_LOST, _CAUSE, _AGAIN, _OWN = "lost", "cause", "again", "own"
# Owners of this process that are at work: it may run several searches, in threads or one after the other.
_living: Final[set[str]] = set()
# Trials drawn at random before any are proposed from what was learned.
_RANDOM_TRIALS: Final = 10


def is_lost(trial: Any) -> bool:
    """Whether a trial does not count: its process ended before it did, or it was one too many."""
    return bool(trial.user_attrs.get(_LOST))


def is_surplus(trial: Any) -> bool:
    """Whether a trial was not run, because another process had begun the last one."""
    return trial.user_attrs.get(_CAUSE) == _NOT_NEEDED


def is_own(trial: Any) -> bool:
    """Whether a trial has the settings that the estimator came with."""
    return bool(trial.user_attrs.get(_OWN)) and not is_lost(trial)


@dataclass(frozen=True)
class Proposal:
    """A trial to be run: Optuna's handle, what to set on the estimator, and how often it was lost with its process."""

    trial: Any
    settings: dict[str, Any]
    losses: int = 0


class TrialStudy:
    """A study of one search, opened by one process.

    Parameters
    ----------
    storage
        None (memory), the path of a file, or the address of a PostgreSQL database.
    identity
        What a search is about, as plain data by part: a stored study with another identity is refused.
    """

    def __init__(
        self,
        storage: Any,
        name: str,
        criterion: Criterion,
        space: Space,
        identity: Mapping[str, Any],
        random_state: int,
    ) -> None:
        with needs_extra("A search of settings", "tune"):
            import optuna  # noqa: F401
        self.criterion, self.space, self.random_state = criterion, space, random_state
        self.shared = storage is not None
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        with quiet():
            self.optuna = _open(storage, name, criterion)
            self.storage = self.optuna._storage  # Optuna has no public way to set attributes of a trial that others run
            self._check_identity({"format": FORMAT, **json.loads(json.dumps(identity))}, storage)
            self.optuna.sampler = _seeded_sampler(random_state)

    def start_from(self, settings: Sequence[Mapping[str, Any]]) -> None:
        """Put known settings in front of a new study; those of later visits find it begun."""
        with quiet():
            if not self.optuna.get_trials(deepcopy=False):
                for number, values in enumerate(settings):
                    told = {_OWN: True} if number == 0 else {}
                    self.optuna.enqueue_trial(dict(values), user_attrs=told, skip_if_exists=True)

    def propose(self, n_trials: int) -> Proposal | None:
        """Take the next trial, queued or new, in this process's name; None if others have begun the last ones."""
        from optuna.exceptions import UpdateFinishedTrialError

        while True:
            with quiet(), contextlib.suppress(UpdateFinishedTrialError):  # another process took it for lost: the next
                trial = self.optuna.ask()
                trial.set_user_attr("owner", self._owner)
                # Two processes may both find that one is missing. Numbers are given to one after the other: the first
                # n_trials of them count.
                earlier = self.optuna.get_trials(deepcopy=False)[: trial.number]
                if sum(not t.user_attrs.get(_LOST) for t in earlier) >= n_trials:
                    own = self._frozen(trial.number)
                    self._lose(own, _NOT_NEEDED, again="fixed_params" in own.system_attrs)
                    return None
                settings = settled(self.space, suggest(self.space, trial))
                return Proposal(trial, settings, self._process_losses(trial))

    def record(self, proposal: Proposal, outcome: TrialResult) -> None:
        """Store what became of a trial. It counts as finished from the last line on."""
        from optuna.trial import TrialState

        trial = proposal.trial
        with quiet(), self._unless_taken():
            trial.set_user_attr("state", outcome.state)
            trial.set_user_attr("settings", proposal.settings)
            trial.set_user_attr("seconds", None if math.isnan(outcome.seconds) else outcome.seconds)
            trial.set_user_attr("folds", outcome.folds)
            trial.set_user_attr("steps", {str(step): list(value) for step, value in outcome.steps.items()})
            if outcome.cause:
                trial.set_user_attr("cause", outcome.cause)
            if outcome.traceback:
                trial.set_user_attr("traceback", outcome.traceback[-2000:])
            if outcome.state == "failed":
                self.optuna.tell(trial, state=TrialState.FAIL)
                return
            if len(self.criterion.directions) == 1:  # by which Optuna ranks trials that were stopped
                for step, value in outcome.steps.items():
                    trial.report(self.criterion.upward(value)[0], step)
            if outcome.state == "complete":
                self.optuna.tell(trial, self.criterion.objectives(outcome.folds))
            else:
                self.optuna.tell(trial, state=TrialState.PRUNED)

    def give_back(self, proposal: Proposal) -> None:
        """Put a trial that this process began and could not end back into the queue."""
        with quiet(), self._unless_taken():
            self._lose(self._frozen(proposal.trial.number), "the search was stopped", again=True)

    def recover(self) -> int:
        """Queue again what processes that are gone had begun; return how many trials that were."""
        from optuna.trial import TrialState

        count = 0
        with quiet():
            signs = self.optuna.user_attrs
            for trial in self.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                owner = trial.user_attrs.get("owner")
                silent = time.time() - signs.get(f"alive {owner}", trial.datetime_start.timestamp())
                patience = _OWNERLESS if owner is None else _TAKEN_FOR_DEAD
                if owner != self._owner and (_is_dead(owner) or silent > patience):
                    with self._unless_taken():
                        self._lose(trial, _PROCESS_ENDED, again=True)
                        count += 1
        return count

    def begun(self) -> int:
        """Return how many trials have ended or are running, without those that were lost with their process."""
        from optuna.trial import TrialState

        with quiet():
            trials = self.optuna.get_trials(deepcopy=False)
        return sum(t.state != TrialState.WAITING and not t.user_attrs.get(_LOST) for t in trials)

    def courses(self) -> list[tuple[State, Steps]]:
        """Return how the trials that ended went."""
        with quiet():
            trials = self.optuna.get_trials(deepcopy=False)
        return [
            (t.user_attrs["state"], {int(k): tuple(v) for k, v in t.user_attrs["steps"].items()})
            for t in trials
            if t.state.is_finished() and "steps" in t.user_attrs and not t.user_attrs.get(_LOST)
        ]

    @contextlib.contextmanager
    def signs_of_life(self) -> Iterator[None]:
        """Tell other processes that this one is alive, from a thread of its own, as long as the block lasts."""
        if not self.shared:
            yield
            return
        stop = threading.Event()

        def tell() -> None:
            while True:
                # Not quiet(): the filters of warnings belong to all threads, and two that set them back in turn
                # leave them changed.
                with contextlib.suppress(Exception):  # a database out of reach is noticed elsewhere
                    self.optuna.set_user_attr(f"alive {self._owner}", time.time())
                if stop.wait(_SIGN_OF_LIFE):
                    return

        thread = threading.Thread(target=tell, daemon=True, name="dcsurv-signs-of-life")
        _living.add(self._owner)
        thread.start()
        try:
            yield
        finally:
            _living.discard(self._owner)
            stop.set()
            thread.join(timeout=5)

    def _lose(self, trial: Any, cause: str, *, again: bool) -> None:
        """Record a trial as lost, and queue it again if that is wanted."""
        from optuna.trial import TrialState

        study = self.storage.get_study_id_from_name(self.optuna.study_name)
        identity = self.storage.get_trial_id_from_study_id_trial_number(study, trial.number)
        for key, value in {_LOST: True, "state": "failed", _CAUSE: cause}.items():
            self.storage.set_trial_user_attr(identity, key, value)
        self.storage.set_trial_state_values(identity, TrialState.FAIL)  # raises if another was faster
        if not again:
            return
        values = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        told = {_AGAIN: trial.number, **({_OWN: True} if trial.user_attrs.get(_OWN) else {})}
        self.optuna.enqueue_trial(values, user_attrs=told)

    def _process_losses(self, trial: Any) -> int:
        """Return how often a trial was lost with its process, under its earlier numbers."""
        count = 0
        while (earlier := trial.user_attrs.get(_AGAIN)) is not None:
            trial = self._frozen(earlier)
            count += trial.user_attrs.get(_CAUSE) == _PROCESS_ENDED
        return count

    def _frozen(self, number: int) -> Any:
        return next(t for t in self.optuna.get_trials(deepcopy=False) if t.number == number)

    @contextlib.contextmanager
    def _unless_taken(self) -> Iterator[None]:
        """Leave a trial alone that another process took for lost, or finished, meanwhile."""
        from optuna.exceptions import UpdateFinishedTrialError

        with contextlib.suppress(UpdateFinishedTrialError):
            yield

    def _check_identity(self, identity: dict[str, Any], storage: Any) -> None:
        stored = self.optuna.user_attrs.get(_IDENTITY)
        if stored is None:
            if self.optuna.get_trials(deepcopy=False):
                raise TuningError(
                    f"the study {self.optuna.study_name!r} was not made by dcsurv. Choose another study_name."
                )
            self.optuna.set_user_attr(_IDENTITY, identity)
            stored = identity
        differing = [part for part in identity if stored.get(part) != identity[part]]
        if differing:
            shown = [f"{part} ({_short(stored.get(part))} there, {_short(identity[part])} here)" for part in differing]
            raise TuningError(
                f"the study {self.optuna.study_name!r} was begun with another {' and another '.join(shown)}. Its "
                "trials cannot be compared with new ones: go on as it was begun, or choose another study_name or "
                "storage."
            )


def _open(storage: Any, name: str, criterion: Criterion) -> Any:
    import optuna

    url = _url(storage)
    for attempt in range(5):
        try:
            return optuna.create_study(
                storage=optuna.storages.InMemoryStorage() if url is None else _database(url),
                study_name=name,
                directions=list(criterion.directions),
                load_if_exists=True,
            )
        except TuningError:
            raise
        except ImportError as error:
            raise MissingExtra("A study in PostgreSQL", "postgresql") from error
        except Exception as error:
            # Two processes that make the same tables at the same moment get in each other's way once.
            if attempt == 4 or (type(error).__name__ == "OperationalError" and "connection" in str(error)):
                where = "PostgreSQL" if url and url.startswith("postgresql") else f"the study file {storage}"
                reason = str(error).splitlines()[0]
                raise TuningError(f"{where} cannot be used: {reason}.") from None
            time.sleep(0.5 * (attempt + 1))
    raise AssertionError


def _database(url: str) -> Any:
    import optuna
    from sqlalchemy.pool import NullPool

    # No connection outlives its use: trials take long, and a result may be kept for longer.
    options: dict[str, Any] = {"poolclass": NullPool}
    if url.startswith("sqlite"):  # lets one process write at a time; others wait for their turn instead of failing
        options["connect_args"] = {"timeout": 60}
    return optuna.storages.RDBStorage(url, engine_kwargs=options)


def _url(storage: Any) -> str | None:
    """Return SQLAlchemy's address of where a study is kept; None is memory."""
    if storage is None:
        return None
    text = os.fspath(storage)
    scheme, separator, rest = text.partition("://")
    if separator and scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        return f"postgresql+psycopg://{rest}"
    if separator:
        raise TuningError(f"storage begins with {scheme}://, but the path of a file or postgresql://... is expected.")
    path = Path(text).absolute()
    if not path.parent.is_dir():
        raise TuningError(f"the folder {path.parent} of the study file does not exist. Create it first.")
    return f"sqlite:///{path}"


def _is_dead(owner: str | None) -> bool:
    """Whether a process is known to be gone, which can only be told on the machine that it ran on."""
    if owner is None:
        return False
    host, pid, _ = owner.split("/")
    if host != socket.gethostname():
        return False
    if int(pid) == os.getpid():
        return owner not in _living  # of an earlier search, or of a process that had this number before
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's, but alive
    return False


def _seeded_sampler(random_state: int) -> Any:
    """Return Optuna's Bayesian sampler (TPE), seeded anew for every trial.

    A proposal then depends on the seed, the trials so far and their number alone: a search that was killed and goes
    on proposes what it would have proposed, and two processes never draw the same numbers.
    """
    from optuna.samplers import BaseSampler, TPESampler

    class SeededSampler(BaseSampler):
        inner: Any = TPESampler()

        def before_trial(self, study: Any, trial: Any) -> None:
            earlier = study.get_trials(deepcopy=False)[: trial.number]
            index = trial.number - sum(bool(t.user_attrs.get(_LOST)) for t in earlier)
            seed = int(np.random.SeedSequence([random_state, index]).generate_state(1)[0])
            with quiet():
                self.inner = TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS, constant_liar=True)
            self.inner.before_trial(study, trial)

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return self.inner.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            return self.inner.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return self.inner.sample_independent(study, trial, param_name, param_distribution)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            self.inner.after_trial(study, trial, state, values)

    return SeededSampler()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna's remarks about its own future to itself, and its log to warnings."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _short(part: Any) -> str:
    text = part if isinstance(part, str) else json.dumps(part)
    return text if len(text) <= 60 else f"{text[:57]}..."
