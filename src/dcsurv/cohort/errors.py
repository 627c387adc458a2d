"""What is wrong with a table, said so that its owner can repair it."""

from __future__ import annotations

from collections.abc import Sequence

from dcsurv.messages import InputError, Message, Parameter, did_you_mean, listed


class CohortError(InputError):
    """A table of patients that cannot be used as asked: what was wrong, what arrived, what to do.

    Parameters
    ----------
    message : str
        What was wrong and what arrived.
    parameter : str or None, default None
        The parameter concerned, if it is one.
    remedy : str, default ""
        What to do.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.cohort import Cohort, CohortError
    >>> try:
    ...     Cohort.from_frame(pd.DataFrame({"age": [61, 70], "days": [5, 8], "died": [1, 0]}), time="day", event="died")
    ... except CohortError as error:
    ...     print(error.parameter, "|", error.remedy)
    time | Did you mean 'days'? The table has 'age', 'days', 'died'.
    """


def no_such_column(asked: str, parameter: str, columns: Sequence[str]) -> CohortError:
    """Say that a column does not exist, and which one may have been meant."""
    return CohortError(
        Message(
            "{parameter} names the column {asked!r}, which the table does not have.",
            parameter=Parameter(parameter),
            asked=asked,
        ),
        parameter=parameter,
        remedy=f"{did_you_mean(asked, columns)}The table has {listed(columns, 12)}.",
    )


def holds_outcome(asked: str, parameter: str, remedy: str) -> CohortError:
    """Say that a column holds the outcome, and can be nothing else."""
    return CohortError(
        Message("{parameter} names {asked!r}, which holds the outcome.", parameter=Parameter(parameter), asked=asked),
        parameter=parameter,
        remedy=remedy,
    )
