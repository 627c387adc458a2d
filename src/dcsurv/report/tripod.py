"""What TRIPOD+AI and PROBAST+AI ask for, where this page answers it, and what is left to the authors."""

from __future__ import annotations

from collections.abc import Sequence

from dcsurv.report.blocks import Section

# Item, what it asks for in our words, the sections that answer it, and what the authors must add (empty: nothing).
_ITEMS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("1", "Title: a prediction model is developed or evaluated; population; outcome", (), "title of your paper"),
    ("2", "Abstract", (), "abstract, by TRIPOD+AI’s list for abstracts"),
    ("3a", "Medical context, and why a model is wanted; existing models", (), "all of it"),
    ("3b", "For whom, where in care, and for which users", ("limits",), "all of it"),
    ("3c", "Known inequalities between groups of patients", (), "all of it"),
    ("4", "Objectives: development, evaluation, or both", (), "all of it"),
    ("5a", "Sources of the data, and how representative they are", ("provenance",), "source, reasons for choosing it"),
    ("5b", "Dates: first and last patient, end of follow-up", ("follow-up",), "calendar dates"),
    ("6a", "Setting: kind of care, number and places of centres", (), "all of it"),
    ("6b", "Who was eligible", (), "all of it"),
    ("6c", "Treatments, and how they were handled", (), "all of it"),
    (
        "7",
        "Preparation of the data and checks of their quality",
        ("missing", "model"),
        "what was done before the table",
    ),
    (
        "8a",
        "Outcome and time horizon: definition, and how assessed",
        ("cohort", "follow-up"),
        "definition of the event and of time 0",
    ),
    ("8b", "Qualification of those who judged the outcome", (), "if judgement was needed"),
    ("8c", "Blinding of the assessment of the outcome", (), "all of it"),
    ("9a", "Choice of the predictors", ("cohort",), "why these"),
    ("9b", "Definition of the predictors, and when measured", ("cohort",), "how and when each was measured"),
    ("9c", "Qualification of those who judged predictors", (), "if judgement was needed"),
    ("10", "How the sample size was arrived at", ("model", "discrimination"), "your reasoning"),
    ("11", "Missing data", ("missing",), "why values are missing"),
    ("12a", "How the data were divided and used", ("model", "provenance"), "how held-out patients were chosen"),
    ("12b", "How predictors entered the model", ("model",), ""),
    (
        "12c",
        "Kind of model, steps of building it, settings, internal validation",
        ("model",),
        "tuning, if there was any",
    ),
    ("12d", "Differences between clusters, such as hospitals", ("subgroups",), "name the cluster as a subgroup"),
    (
        "12e",
        "Measures and plots of performance",
        ("discrimination", "calibration", "distribution", "error", "decisions"),
        "",
    ),
    ("12f", "Updating, such as recalibration", ("distribution",), "if you updated it for this setting"),
    ("12g", "How predictions were computed in the evaluation", ("model", "provenance"), ""),
    ("13", "Class imbalance methods", ("model",), "none are used by this library"),
    ("14", "Approaches to fairness", ("subgroups",), "your reasoning"),
    ("15", "What the model puts out, and how thresholds were chosen", ("examples", "decisions"), "your thresholds"),
    ("16", "Differences between development and evaluation data", ("cohort",), "setting, eligibility, outcome"),
    ("17", "Ethical approval and consent", (), "all of it"),
    ("18a", "Funding", (), "all of it"),
    ("18b", "Conflicts of interest", (), "all of it"),
    ("18c", "Where the protocol is", (), "all of it"),
    ("18d", "Registration", (), "all of it"),
    ("18e", "Availability of the data", ("provenance",), "all of it"),
    ("18f", "Availability of the code", ("provenance",), "your own scripts"),
    ("19", "Involvement of patients and the public", (), "all of it"),
    (
        "20a",
        "Flow of patients, with and without the event; follow-up",
        ("cohort", "follow-up"),
        "patients before this table",
    ),
    ("20b", "Characteristics of the patients, with missing values", ("cohort", "missing"), ""),
    ("20c", "Distribution of predictors: development beside evaluation", ("cohort",), ""),
    ("21", "Patients and events in each analysis", ("cohort", "model", "subgroups"), ""),
    ("22", "The full model, so that others can use it", ("model", "hazards"), "share the model file"),
    ("23a", "Performance with intervals, also in groups", ("discrimination", "calibration", "error", "subgroups"), ""),
    ("23b", "Heterogeneity of performance between clusters", ("subgroups",), "name the cluster as a subgroup"),
    ("24", "Results of updating", ("distribution",), "if you updated it"),
    ("25", "Interpretation, with fairness and earlier studies", (), "all of it"),
    ("26", "Limitations", ("limits",), "those of your data"),
    ("27a", "What happens if inputs are poor or missing in use", ("missing", "limits"), "rules for your setting"),
    ("27b", "What users must do and know", ("limits",), "all of it"),
    ("27c", "Next steps before use", ("limits",), "all of it"),
)


# PROBAST+AI: part (D: quality of the development, E: risk of bias of the evaluation), domain and question, what it asks
# for in our words, the sections that answer it, and what is left to those who judge.
_QUESTIONS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("D1.1, E1.1", "Are the data sources appropriate?", ("provenance",), "how the data were collected"),
    ("D1.2, E1.2", "Is the design of the study appropriate?", ("follow-up",), "cohort, trial, register; time 0"),
    ("D1.3, E1.3", "Do those included represent whom the model is for?", ("cohort",), "who was left out, and why"),
    ("D2.1, E2.1", "Were predictors defined and measured alike for all?", ("cohort",), "how each was measured"),
    ("D2.2, E2.2", "Were they prepared alike for all?", ("missing", "model"), "what was done before the table"),
    ("D2.3, E2.3", "Were they measured without knowing the outcome?", (), "all of it"),
    ("D2.4, E2.4", "Are they known when the model is to be used?", ("cohort",), "all of it; a check of the "
     "table finds columns that give the outcome away"),
    ("D3.1, E3.1", "Was the outcome defined and measured well?", ("cohort",), "definition; the coding is named here"),
    ("D3.2, E3.2", "In the same way for all?", (), "all of it"),
    ("D3.3, E3.3", "Without using or knowing the predictors?", (), "all of it"),
    ("D3.4, E3.4", "Is the time from predictors to outcome right?", ("follow-up",), "why these horizons"),
    ("D4.1", "Were there enough patients to develop it?", ("model",), "columns that were looked at before"),
    ("D4.2", "Were numbers and categories handled well?", ("model",), ""),
    ("D4.3", "Were missing values and censoring handled well?", ("missing", "follow-up"), "why values are missing"),
    ("D4.4", "If classes were balanced, was it recalibrated?", ("model",), "does not arise: nothing is balanced here"),
    ("D4.5", "Was overfitting guarded against?", ("model", "discrimination"), "tuning, if there was any"),
    ("E4.1", "Is it judged by more than its own training patients?", ("summary", "cohort"), ""),
    ("E4.2", "Were there enough patients to evaluate it?", ("summary", "discrimination"), ""),
    ("E4.3", "Were missing values and censoring handled well?", ("missing", "follow-up", "calibration"), ""),
    ("E4.4", "If classes were balanced, were those of the evaluation not?", (), "does not arise"),
    ("E4.5", "Does nothing leak from the test to the training part?", ("provenance",), "copies of patients"),
    ("E4.6", "If resampled, were all steps repeated?", (), "the validation repeats the whole fit"),
    ("E4.7", "Were calibration, discrimination and net benefit measured?",
     ("calibration", "distribution", "discrimination", "decisions"), ""),
)  # fmt: skip


def checklists(titles: dict[str, str]) -> list[Section]:
    """Return the two lists; ``titles`` are those of the sections in the report."""
    return [_reporting(titles), _judging(titles | {"summary": "At a glance"})]


def _reporting(titles: dict[str, str]) -> Section:
    section = Section("tripod", "TRIPOD+AI: what is reported where")
    section.say(
        "TRIPOD+AI lists what a report of a prediction model should say (Collins and colleagues, BMJ 2024, doi "
        "10.1136/bmj-2023-078378; the items are put in our words here). This page can answer a part of it; the rest "
        "is known to you only."
    )
    with section.folded("The items of TRIPOD+AI"):
        _tabulate(section, "Items", _ITEMS, titles)
    section.numbers["items_answered"] = [item for item, _, keys, _ in _ITEMS if keys]
    return section


def _judging(titles: dict[str, str]) -> Section:
    section = Section("probast", "PROBAST+AI: what a reviewer will ask")
    section.say(
        "PROBAST+AI is how reviewers judge a prediction model (Moons and colleagues, BMJ 2025, doi "
        "10.1136/bmj-2024-082505): the quality of its development (D) and the risk of bias of its evaluation (E), in "
        "four domains: participants and data, predictors, outcome, analysis. The questions are put in our words here, "
        "with where this page helps to answer them. The judgement, and whether the model applies to a question, are "
        "the reviewer’s."
    )
    with section.folded("The questions of PROBAST+AI"):
        _tabulate(section, "Questions", _QUESTIONS, titles)
    section.numbers["questions_answered"] = [
        name for names, _, keys, _ in _QUESTIONS if keys for name in names.split(", ")
    ]
    return section


def _tabulate(
    section: Section, caption: str, items: Sequence[tuple[str, str, tuple[str, ...], str]], titles: dict[str, str]
) -> None:
    rows = []
    for item, asks, keys, yours in items:
        where = "; ".join(titles[key] for key in keys if key in titles)
        rows.append([item, asks, where or "–", yours or "nothing"])
    section.table(
        caption,
        ["item", "what it asks for", "in this report", "left to you"],
        rows,
        wordy=True,
        widths=("9%", "37%", "31%", "23%"),
    )
