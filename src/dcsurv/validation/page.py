"""A validation as files: tables, figures, and a short page in plain language."""

from __future__ import annotations

import html
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from dcsurv.durations import describe_time
from dcsurv.figures import save
from dcsurv.messages import fixed, plural, printable
from dcsurv.plain import csv_bytes, plain
from dcsurv.validation.instability import Instability
from dcsurv.writing import make_folder, together, write_atomically

if TYPE_CHECKING:
    from dcsurv.validation.validation import Validation

# Resamples below which ranges of single predictions are rough.
_ENOUGH: Final = 100
_SHEET: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #4b535d; --line: #d9dee4; --card: #fff; --page: #f5f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #b7bfc9; --line: #39414b; --card: #1c2126; --page: #14171b } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 64rem; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 } h2 { font-size: 1.2rem; margin: 0 0 .5rem }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.2rem;
  margin: 1rem 0 }
p { max-width: 46rem; margin: 0 0 .8rem } .soft { color: var(--soft); font-size: .92rem }
.verdict { font-size: 1.35rem; font-weight: 600; line-height: 1.35 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .55rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem }
figure { margin: 0 } img { max-width: 100%; background: #fff; border-radius: 6px }
figcaption { color: var(--soft); font-size: .88rem }
"""


def escape(text: str) -> str:
    """Return a text, which may name a centre of the data, for the page."""
    return html.escape(printable(text))


def write(found: Validation, folder: Path) -> list[Path]:
    """Write everything into a folder; return the files, the page first."""
    data = found.to_dict()
    tables = []
    with together(folder):
        for place in (folder, folder / "tables", folder / "figures"):
            make_folder(place)
        for name, table in found.tables().items():
            tables.append(folder / "tables" / f"{name}.csv")
            write_atomically(tables[-1], csv_bytes(table))
        write_atomically(folder / "validation.json", json.dumps(plain(data, finite=True), indent=1).encode())
        drawn = [path for name, figure in _figures(found).items() for path in save(figure, folder / "figures" / name)]
        write_atomically(folder / "index.html", _page(found).encode())
    return [folder / "index.html", folder / "validation.json", *tables, *drawn]


def _figures(found: Validation) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if found.instability is not None:
        out["prediction-instability"] = found.plot_instability()
        out["calibration-instability"] = found.plot_calibration_instability()
    if found.centres is not None and (found.centres["metric"] == "C-td").any():
        out["centres"] = found.plot_centres("C-td")
    return out


def _page(found: Validation) -> str:
    data = found.to_dict()
    sections = [_verdict(found), _performance(found), _instability(found), _centres(found), _how(found)]
    whom = f"{plural(data['patients'], 'patient')}, {plural(data['events'], 'event')}"
    title = f"Validation of {data['model']}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_SHEET}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="soft">{escape(whom)}</p>{"".join(sections)}</body></html>\n'
    )


def _verdict(found: Validation) -> str:
    verdict = found.verdict
    if verdict is None:
        return ""
    text = verdict.text[:1].upper() + verdict.text[1:]
    return _section(
        f"Compared with {found.names['reference']}",
        f'<p class="verdict">{escape(text)}.</p><p>{escape(verdict.rests_on)}</p>',
    )


def _performance(found: Validation) -> str:
    table = found.summary()
    reference = found.names["reference"] if "reference" in table else ""
    header = ["", "on new patients", "95 % interval" if found.confidence == 0.95 else "interval", "perfect model, p"]
    header += [reference] if reference else []
    header += ["apparent", "without optimism"] if "apparent" in table else []
    rows = []
    for row in table.to_dict("records"):
        cells = [named(row, found.unit), number(row["cross_validated"]), interval(row["lower"], row["upper"])]
        cells.append(f"{number(row['floor'])}, {row['p_value']:.2f}" if np.isfinite(row["floor"]) else "")
        cells += [number(row["reference"])] if reference else []
        cells += [number(row["apparent"]), number(row["optimism_corrected"])] if "apparent" in row else []
        rows.append(cells)
    told = (
        "<p>On new patients: every patient is predicted by models that have not seen them. These are the numbers to "
        "report. Distances such as ICI are above 0 for a perfect model, too: beside them is what one would score in "
        "these patients, and how often at least as much as here.</p>"
    )
    if "apparent" in table:
        error = float(table.loc[table["metric"] == "C-td", "monte_carlo"].max())
        told += (
            "<p>Apparent: on the patients that the model was fitted to, which flatters it. Without optimism: what the "
            "bootstrap leaves of that"
            + (f" (its C-td is exact to about {error:.3f} with so many resamples)" if np.isfinite(error) else "")
            + ".</p>"
        )
    return _section("How good it is on new patients", told + _table(header, rows))


def _instability(found: Validation) -> str:
    unstable = found.instability
    if unstable is None:
        return ""
    rows = [_stable_cells(row, found.unit) for row in unstable.table().to_dict("records")]
    middle = float(unstable.horizons[len(unstable.horizons) // 2])
    own = unstable.table().set_index("horizon").loc[middle]
    text = (
        f"Had other patients been in the cohort, a patient's risk by {describe_time(middle, found.unit)} would have "
        f"been {own['mape']:.3f} higher or lower on average, and for one patient in ten more than {own['mape_90']:.3f}."
    )
    other = found.reference_instability
    if other is not None:
        against = _mape(other, middle)
        text += f" With {found.names['reference']} it is {against:.3f} on average."
    n = len(unstable.refits)
    rough = f" From {n} refits; with fewer than {_ENOUGH}, ranges are rough." if n < _ENOUGH else f" From {n} refits."
    pictures = _pictures(
        [
            ("prediction-instability", "Risks that refits predict, against the model's own, for the same patients."),
            ("calibration-instability", "Calibration curves of the refits on all patients, and the model's own."),
        ]
    )
    header = ["risk by", "mean change (MAPE)", "90 % of patients below", "largest", "mean 95 % range"]
    return _section(
        "How stable single predictions are", f"<p>{escape(text + rough)}</p>{_table(header, rows)}{pictures}"
    )


def _mape(unstable: Instability, horizon: float) -> float:
    return float(unstable.patients(horizon)["mape"].mean())


def _stable_cells(row: Mapping[Hashable, Any], unit: str | None) -> list[str]:
    numbers = [number(row[name]) for name in ("mape", "mape_90", "largest", "range")]
    return [describe_time(row["horizon"], unit), *numbers]


def _centres(found: Validation) -> str:
    summary = found.centres_summary
    if summary is None:
        return ""
    rows = [
        [named(row, found.unit), str(row["centres"]), number(row["mean"]), interval(row["lower"], row["upper"]),
         interval(row["new_lower"], row["new_upper"]), f"{row['i2']:.0%}"]
        for row in summary.to_dict("records")
    ]  # fmt: skip
    text = (
        "<p>Every centre or period was predicted by a model fitted to the others. The mean is that of a random-effects "
        "analysis; the last interval is where another centre's value is to be expected.</p>"
    )
    header = ["", "centres", "mean", "interval", "another centre", "between centres (I²)"]
    picture = _pictures([("centres", "C-td in each centre.")]) if (found.centres["metric"] == "C-td").any() else ""  # type: ignore[index]
    return _section("In other centres or periods", text + _table(header, rows) + picture)


def _how(found: Validation) -> str:
    notes = "".join(f"<p>{escape(text)}</p>" for text in (f"{found.design}.", *found.notes))
    return _section("How it was done", f'<div class="soft">{notes}</div>')


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _pictures(named_: Sequence[tuple[str, str]]) -> str:
    figures = "".join(
        f'<figure><img src="figures/{name}.svg" alt="{escape(text)}"><figcaption>{escape(text)}</figcaption></figure>'
        for name, text in named_
    )
    return f'<div class="pictures">{figures}</div>'


def named(row: Mapping[Hashable, Any], unit: str | None) -> str:
    """Return a metric with its horizon in words."""
    at = row["horizon"]
    return str(row["metric"]) if pd.isna(at) else f"{row['metric']} at {describe_time(at, unit)}"


def number(value: float) -> str:
    """Return a number with three decimals, or a dash."""
    return fixed(value) if np.isfinite(value) else "–"


def interval(low: float, high: float) -> str:
    """Return an interval, or nothing."""
    return f"{fixed(low)} to {fixed(high)}" if np.isfinite(low) and np.isfinite(high) else ""
