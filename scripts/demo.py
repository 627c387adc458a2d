"""What `make demo` shows: the embedded cohorts, and what the paper says of them."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from dcsurv.experiments.paper_data import table_1, table_2


def show(console: Console, title: str, table: Table) -> None:
    table.title = title
    console.print(table)
    console.print()


def main() -> None:
    console = Console()
    pairs = Table("cohort", "patients", "censored", "|A| event-event pairs", "|B| event-any pairs", "F = |B|/|A|")
    for name, row in table_1().iterrows():
        pairs.add_row(
            str(name).upper(), f"{row['patients']:,.0f}", f"{row['censoring_rate']:.0%}",
            f"{row['A']:.3g}", f"{row['B']:.3g}", f"{row['F']:.2f}",
        )  # fmt: skip
    show(console, "Table I: pairs that the kernel loss compares", pairs)
    data = Table("cohort", "features", "missing", "median survival of events", "not proportional")
    for name, row in table_2().iterrows():
        data.add_row(
            str(name).upper(), f"{row['features']:.0f}", f"{row['missing_share']:.1%}",
            f"{row['median_survival_days']:.0f} days ({row['median_survival_months']:.0f} months)",
            f"{row['non_proportional']:.0f} of {row['features']:.0f} features",
        )  # fmt: skip
    show(console, "Table II: the three cohorts", data)


if __name__ == "__main__":
    main()
