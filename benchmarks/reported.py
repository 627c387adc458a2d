"""What the report prints about curves whose truth is known: its sections, computed without the page around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from dcsurv import SurvivalCurves
from dcsurv.report import follow_up, performance, probabilities, subgroups, summary
from dcsurv.report.blocks import Section
from dcsurv.report.study import Study, make_study

SECTIONS = (follow_up.follow_up, performance.discrimination, subgroups.subgroups)
# Neither has anything to do with survival, given the curves: the groups of patients do not differ.
GROUPS = ["centre", "treated"]


class Given:
    """A model that says about the patients of one cohort what it was given."""

    time_unit = None

    def __init__(self, name: str, curves: SurvivalCurves) -> None:
        self.display_name, self.curves = name, curves
        self.recalibrations: list[Any] = []

    def predict_survival_function(self, X: pd.DataFrame, times: Any = None) -> SurvivalCurves:
        """Return the curves of rows of the cohort, known by their index."""
        return self.curves[X.index.to_numpy()]

    def before_recalibration(self) -> None:
        """Return nothing: there was none."""


def study_of(cohort: Any, curves: SurvivalCurves, horizons: list[float], n_bootstrap: int, seed: int) -> Study:
    """Return a study of one model on one cohort, as ``write_report`` makes it."""
    model = Given("model", curves)
    more = {"subgroups": GROUPS, "patients": None, "data_name": None, "seen": False}
    return make_study(
        model, cohort.X, cohort.y, X_train=None, y_train=None, reference=None, horizons=horizons, unit="years",
        n_bootstrap=n_bootstrap, random_state=seed, **more,
    )  # fmt: skip


def numbers_of(study: Study) -> dict[str, Any]:
    """Return the numbers of the sections with inference of their own, by the name of the section."""
    sections: list[Section] = [compute(study) for compute in SECTIONS]
    plt.close("all")
    return {section.key: section.numbers for section in sections}


def differences(numbers: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield feature, metric and row of every difference between a group and the others."""
    for row in numbers["subgroups"]["differences"]:
        yield row["column"], row["metric"], row


def trust(study: Study) -> list[float]:
    """Return the corrected p-values behind what the first page says about probabilities."""
    sections = {one.key: one for one in (probabilities.at_horizons(study), probabilities.over_the_distribution(study))}
    _, numbers = summary._trust(study, sections)
    plt.close("all")
    return [] if numbers is None else list(numbers["p"].values())
