"""``dcsurv tune``: search the settings of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.choices import build
from dcsurv.cli.data import ask_cohort, fit_command
from dcsurv.cli.fitting import refuse
from dcsurv.cli.groups import OptionGroup, described
from dcsurv.cli.shell import INTERRUPTED, Shell, fail
from dcsurv.cli.tables import add, plain_table, show_cohort, show_table
from dcsurv.cohort import Cohort, check_cohort, require_features
from dcsurv.messages import plural
from dcsurv.writing import together

_DEFAULT_MODEL = "dcs"


@dataclass(frozen=True)
class SearchOptions(OptionGroup, panel="Search"):
    """How settings are searched."""

    trials: Annotated[int, described(metavar="N", help="Trials of the study in the end.", min=1, show_default=True)] = (
        50
    )
    criterion: Annotated[
        str,
        described(
            metavar="METRIC",
            help="CDAUC, C-td, IBS or DDC; two of them with a comma for the best compromise.",
            show_default=True,
        ),
    ] = "CDAUC"
    space: Annotated[
        str,
        described(
            metavar="NAME",
            help="What is searched: 'default', or 'paper' for the published ranges.",
            show_default=True,
        ),
    ] = "default"
    folds: Annotated[int, described(metavar="N", help="Folds of the cross-validation.", min=2, show_default=True)] = 5
    all_patients: Annotated[
        bool,
        described(
            "--all",
            help="Search on all patients. Default: on the four fifths that `fit` with the same seed trains on, so "
            "that its held-out patients stay unseen.",
        ),
    ] = False
    storage: Annotated[
        str | None,
        described(
            metavar="WHERE",
            help="File or postgresql:// address that keeps the study: a stopped search goes on there.",
        ),
    ] = None
    timeout: Annotated[
        float | None, described(metavar="SECONDS", help="Begin no more trials after this long.", min=1)
    ] = None
    trial_timeout: Annotated[
        float | None,
        described(metavar="SECONDS", help="Stop a trial that takes more computing time than this.", min=1),
    ] = None

    @property
    def files(self) -> list[Path]:
        """The file that keeps the study, if it is one."""
        return [] if self.storage is None or "://" in self.storage else [Path(self.storage)]

    @property
    def metrics(self) -> str | list[str]:
        """The criterion, or the two to be traded against each other."""
        names = [name.strip() for name in self.criterion.split(",") if name.strip()]
        return names[0] if len(names) == 1 else names


@command
def tune(
    data: o.DataFile,
    *,
    outcome: o.OutcomeOptions,
    features: o.FeatureOptions,
    model: Annotated[
        str,
        described(
            "--model",
            metavar="NAME",
            help="Whose settings; `dcsurv models` lists the names.",
            show_default=True,
            panel=o.TRAINING,
        ),
    ] = _DEFAULT_MODEL,
    set_: o.Settings = None,
    computing: o.ComputingOptions,
    cluster: o.Cluster = None,
    search: SearchOptions,
    reading: o.ReadingOptions,
    output: Annotated[Path, o.written_to("Settings to write (.json), for fit --settings.")],
    figures: Annotated[
        Path | None,
        described(
            metavar="FOLDER", help="Also draw the search: its history, what mattered, the settings.", panel=o.OUTPUT
        ),
    ] = None,
    shell: Shell,
) -> None:
    """Search the settings of a model by cross-validation, and write the best ones to a file.

    Then fit with them: `dcsurv fit ... --settings FILE`. Ctrl-C ends the search; with --storage the same command goes
    on.
    """
    from dcsurv.experiments.tuning import save_settings

    o.check_output(output, data, *search.files, suffixes=(".json",))
    for path in search.files:
        o.check_output(path, data, option="--storage")
    if figures is not None:
        o.check_folder(figures, option="--figures")
    cohort = ask_cohort(data, outcome, features, reading)
    show_cohort(shell, cohort)
    refuse(check_cohort(cohort))
    require_features(cohort)
    part = cohort if search.all_patients else training_part(cohort, computing.seed)
    estimator = build(
        model, settings_file=None, parameters=o.settings(set_), unit=cohort.unit, seed=computing.seed, jobs=1,
        quick=computing.quick,
    )  # fmt: skip
    found = _search(estimator, part, search, computing, cluster)
    labels = dict(zip(found.criterion.labels, _as_tuple(found.best_value), strict=True))
    own = found.own_value
    tuned_on = {
        "file": cohort.name, "sha256": cohort.digest, "patients": len(part), "all": search.all_patients,
        "seed": computing.seed,
    }  # fmt: skip
    counts = found.counts()
    with together(output.parent):
        save_settings(
            output, found.best_estimator(), criterion=list(labels), value=found.best_value,
            own_value=found.own_value, trials=counts, tuned_on=tuned_on,
        )  # fmt: skip
        drawn = [] if figures is None else found.save_figures(figures)
    words = "all patients" if search.all_patients else f"the part that fit --seed {computing.seed} trains on"
    _show_best(shell, found, f"on {plural(len(part), 'patient')} ({words})")
    folds = _folds(search, computing)
    shell.say(f"{_values(labels)}, mean over {folds} folds. {_own_words(found)}")
    kept = None if model in (_DEFAULT_MODEL, "calibrated") else model  # which settings of DCS are for by default
    shell.say(f"{output}: {fit_command(data, outcome, features, reading, computing, settings=output, model=kept)}")
    shell.result(
        {
            "settings": str(output),
            "figures": [str(path) for path in drawn],
            "best": found.best_params,
            "value": labels,
            "own_value": None if own is None else dict(zip(found.criterion.labels, _as_tuple(own), strict=True)),
            "trials": counts,
            "tuned_on": tuned_on,
            "data": cohort.to_dict(),
        }
    )


def _search(
    estimator: Any, part: Cohort, search: SearchOptions, computing: o.ComputingOptions, cluster: str | None
) -> Any:
    """Run the search; if it is stopped, say how it can go on."""
    from dcsurv.experiments.tuning import tune as run

    try:
        return run(
            estimator, part.features, part.y, groups=part.groups,
            n_trials=min(search.trials, 3) if computing.quick else search.trials,
            space=search.space, criterion=search.metrics,  # type: ignore[arg-type]
            folds=_folds(search, computing), storage=search.storage, workers=1 if cluster else computing.workers,
            cluster=cluster, timeout=search.timeout, trial_timeout=search.trial_timeout,
            random_state=computing.seed, progress=True,
        )  # fmt: skip
    except KeyboardInterrupt:
        goes_on = "the same command goes on from there."
        more = goes_on if search.storage else "with --storage FILE a search can go on later."
        fail("Stopped", f"no settings were written; {more}", INTERRUPTED)


def _folds(search: SearchOptions, computing: o.ComputingOptions) -> int:
    return 2 if computing.quick else search.folds


def _show_best(shell: Shell, found: Any, whom: str) -> None:
    """Show the best settings."""
    table = plain_table("setting", "value")
    for name, value in found.best_params.items():
        add(table, name, f"{value:.4g}" if isinstance(value, float) else str(value))
    show_table(shell, f"Best of {plural(found.n_trials, 'trial')} {whom}", table)
    shell.show()


def _values(labels: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in labels.items())


def _own_words(found: Any) -> str:
    """Say how good the settings are that the model comes with."""
    if found.own_value is None:
        return "The settings that the model comes with were not carried through all folds."
    if found.own_value == found.best_value:
        return "These are the settings that the model comes with: nothing better was found."
    own = dict(zip(found.criterion.labels, _as_tuple(found.own_value), strict=True))
    return f"The settings that the model comes with: {_values(own)}."


def training_part(cohort: Cohort, seed: int) -> Cohort:
    """Return the patients that `fit` does not hold out."""
    from dcsurv.cohort.evaluation import TEST_SHARE
    from dcsurv.target import train_test_indices

    train, _ = train_test_indices(cohort.y, test_size=TEST_SHARE, random_state=seed, groups=cohort.groups)
    return cohort.take(train)


def _as_tuple(value: Any) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)
