from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.text import Annotation, Text

from cohorts import random_cohort
from dcsurv import SurvivalCurves, figures, make_outcome
from dcsurv.experiments.paper_data import figure_3, supplement_figure_1
from dcsurv.nonparametric import kaplan_meier
from figure_checks import check_texts

MODELS = ["CoxPH", "DeepSurv", "CoxTime", "DRSA", "Kamran", "DCS-linear", "DCS-log", "DCS-quant"]
LONG = ["Calibrated ensemble of DCS-quant, cross-fitted", *MODELS[1:]]
ROWS = [5, 2, 7, 0, 11]


def eight_models(names=MODELS):
    """Return an outcome and eight sets of curves that cross, on other grids and with other interpolations."""
    y, _ = random_cohort(0, n=60)
    curves = {}
    for seed, name in enumerate(names):
        drawn = random_cohort(seed, n=60, n_times=5 + 20 * (seed % 3), beyond=seed == 4)[1]
        kind = ("linear", "constant_hazard", "step")[seed % 3]
        curves[name] = SurvivalCurves(drawn.times, drawn.values, interpolation=kind)
    return y, curves


def printed(metric="C-td", key="c_index_td"):
    tables = json.loads((Path(__file__).parent / "reference" / "paper_tables.json").read_text())
    return pd.DataFrame(
        {"metric": metric, "model": model, "dataset": dataset, "mean": cell["mean"], "sd": cell["std"]}
        for model, row in tables[key].items()
        for dataset, cell in row.items()
    )


def ours(metric="C-td", key="c_index_td"):
    table = printed(metric, key)
    return table.assign(mean=1.1 * table["mean"], sd=0.7 * table["sd"] + 0.001)


@pytest.fixture(scope="module")
def drawn():
    """Every figure on real or realistic input, by name."""
    y, curves = eight_models()
    long = ours("DDC", "ddc").assign(model=lambda t: "DCS-quant, event-event pairs only: " + t["model"])
    return {
        "figure 3": figures.events_per_node({"support": figure_3("support")}),
        "three cohorts": figures.events_per_node({name: figure_3(name) for name in ("support", "metabric", "flchain")}),
        "pairs": figures.comparable_pairs(supplement_figure_1()),
        "curves": figures.survival_curves(curves, y, ROWS),
        "curves, long names": figures.survival_curves(eight_models(LONG)[1], y, [*ROWS, 1], "months"),
        "curves of one model": figures.survival_curves({"CoxPH": curves["CoxPH"]}, y, ROWS),
        "curves of five": figures.survival_curves({name: curves[name] for name in MODELS[:5]}, y, [3]),
        "C-td": figures.metric_table(ours(), printed()),
        "DDC": figures.metric_table(ours("DDC", "ddc"), printed("DDC", "ddc")),
        "one cell": figures.metric_table(ours().head(1)),
        "long names": figures.metric_table(long, long),
        "censoring": figures.censoring_schematic(),
        "network": figures.network_schematic(),
    }


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def words(figure):
    return {text.get_text() for text in figure.findobj(Text)}


def lines(ax, **properties):
    """Return the lines of a panel that have the given properties."""
    return [line for line in ax.lines if all(getattr(line, f"get_{k}")() == v for k, v in properties.items())]


# --- for all of them ---------------------------------------------------------------------------------------------


NAMES = ["figure 3", "three cohorts", "pairs", "curves", "curves, long names", "curves of one model", "curves of five",
         "C-td", "DDC", "one cell", "long names", "censoring", "network"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_cut_off_or_covers_another(drawn, name):
    check_texts(drawn[name])


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("censoring", "network")])
def test_every_figure_labels_its_axes(drawn, name):
    figure = drawn[name]
    across = figure.get_supxlabel() or figure.axes[0].get_xlabel()
    assert re.search(r"\((days|months)\)|censoring rate|C-td|DDC", across)
    assert figure.axes[0].get_ylabel() or [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_the_users_settings_neither_change_nor_matter(tmp_path):
    y, curves = eight_models()

    def write(name):
        return [p.read_bytes() for p in figures.save(figures.survival_curves(curves, y, ROWS), tmp_path / name)]

    plain = write("plain")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "none", "savefig.dpi": 30}):
        before = dict(matplotlib.rcParams)
        assert write("other") == plain
        assert dict(matplotlib.rcParams) == before


def test_matplotlib_is_imported_late_and_pyplot_never():
    code = (
        "import sys, tempfile; from dcsurv import figures; assert 'matplotlib' not in sys.modules\n"
        "figures.save(figures.network_schematic(), tempfile.mkdtemp() + '/network')\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- events per node ---------------------------------------------------------------------------------------------


def test_events_per_node_has_a_row_per_cohort_and_a_panel_per_spacing(drawn):
    figure = drawn["three cohorts"]
    panels = np.array(figure.axes).reshape(3, 3)
    assert [ax.get_title() for ax in panels[0]] == ["linear spacing", "log spacing", "quantile spacing"]
    for row, name in zip(panels, ("support", "metabric", "flchain"), strict=True):
        assert row[0].get_ylabel() == f"{name.upper()}\nevents"
        table = figure_3(name)
        for ax, spacing in zip(row, ("linear", "log", "quantile"), strict=True):
            part = table[table["spacing"] == spacing]
            assert [bar.get_height() for bar in ax.patches] == part["events"].tolist()
            assert [float(label.get_text()) for label in ax.get_xticklabels()] == part["time"].tolist()
            assert ax.lines[0].get_ydata()[0] == part["events"].mean()
            assert ax.get_ylim() == row[0].get_ylim()


# --- comparable pairs --------------------------------------------------------------------------------------------


def test_comparable_pairs_shows_every_row_of_the_table(drawn):
    table = supplement_figure_1()
    pairs, factor = drawn["pairs"].axes
    for ax, marker, column in ((pairs, "o", "A"), (pairs, "x", "B"), (factor, "D", "F")):
        marks = lines(ax, marker=marker)
        seen = np.concatenate([line.get_xydata() for line in marks])
        np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(table[["censoring_rate", column]], axis=0))
        sizes = {len(line.get_xdata()): line.get_markersize() for line in marks}
        assert sizes[1] > 2 * sizes[9], "a cohort as it is has a larger marker than its resamples"
        synthetic = table[table["dataset"] == "uniform"]
        red = [line for line in marks if line.get_color() == figures.RED]
        assert len(red) == 1
        np.testing.assert_array_equal(red[0].get_ydata(), synthetic[column])
    assert len({line.get_color() for line in pairs.lines} - {figures.GREY}) == 4


def test_comparable_pairs_draws_the_estimates(drawn):
    pairs, factor = drawn["pairs"].axes
    for line, estimate in zip(
        lines(pairs, marker="None") + lines(factor, marker="None"),
        (lambda c: (1 - c) ** 2 / 2, lambda c: (1 - c) / 2, lambda c: 1 / (1 - c)),
        strict=True,
    ):
        np.testing.assert_allclose(line.get_ydata(), estimate(line.get_xdata()))
        assert line.get_xdata()[0] == 0
        assert 0.9 < line.get_xdata()[-1] < 1
    assert {"$(1-c)^2/2$", "$(1-c)/2$", "$1/(1-c)$"} <= words(drawn["pairs"])
    assert {"SUPPORT", "METABRIC", "FLCHAIN", "uniform (synthetic)", "resampled"} <= set(legend(drawn["pairs"]))


# --- survival curves ---------------------------------------------------------------------------------------------


def patient_lines(ax, color):
    """Return (curve, marker at the own time, dotted rest or None) of the patient with a colour."""
    own = lines(ax, color=color)
    curve = [line for line in own if line.get_linestyle() == "-" and line.get_marker() == "None"]
    marker = [line for line in own if line.get_marker() == "o"]
    dotted = [line for line in own if line.get_linestyle() == ":"]
    assert len(curve) == len(marker) == 1
    return curve[0], marker[0], dotted[0] if dotted else None


def test_survival_curves_are_those_of_the_same_patients_in_every_panel(drawn):
    y, curves = eight_models()
    panels = drawn["curves"].axes
    assert [ax.get_title() for ax in panels] == MODELS
    grid = {(ax.get_subplotspec().rowspan.start, ax.get_subplotspec().colspan.start) for ax in panels}
    assert grid == {(row, column) for row in range(2) for column in range(4)}
    beyond = 0
    for ax, predicted in zip(panels, curves.values(), strict=True):
        last = predicted.times[-1]
        for row, color in zip(ROWS, figures.PALETTE, strict=False):
            curve, marker, dotted = patient_lines(ax, color)
            t = curve.get_xdata()
            np.testing.assert_array_equal(curve.get_ydata(), predicted[row](t))
            assert t[0] == 0
            assert t[-1] == min(last, y["time"].max())
            assert np.isin(predicted.times[predicted.times <= t[-1]], t).all(), "no node is skipped"
            assert curve.get_drawstyle() == ("steps-post" if predicted.interpolation == "step" else "default")
            z = y["time"][row]
            assert marker.get_xydata().tolist() == [[z, predicted[row](min(z, last))]]
            assert to_hex(marker.get_markerfacecolor()) == (color.lower() if y["event"][row] else "#ffffff")
            assert (dotted is not None) == (z > last)
            if dotted is not None:
                beyond += 1
                np.testing.assert_array_equal(
                    dotted.get_xydata(), [[last, predicted[row](last)], [z, marker.get_ydata()[0]]]
                )
        assert ax.get_xlim() == panels[0].get_xlim()
        assert ax.get_ylim() == panels[0].get_ylim()
    assert beyond > 0
    assert set(y["event"][ROWS]) == {True, False}


def test_survival_curves_show_the_kaplan_meier_curve_and_one_legend(drawn):
    y, _ = eight_models()
    cohort = kaplan_meier(y)
    for ax in drawn["curves"].axes:
        (line,) = lines(ax, color=figures.GREY)
        assert line.get_drawstyle() == "steps-post"
        np.testing.assert_array_equal(line.get_xydata()[1:], np.column_stack([cohort.times, cohort.values]))
        assert ax.get_legend() is None
    figure = drawn["curves"]
    assert len(figure.legends) == 1
    expected = [f"patient {row} ({'event' if y['event'][row] else 'censored'})" for row in ROWS]
    assert legend(figure) == [*expected, "Kaplan-Meier"]
    for handle, row, color in zip(figure.legends[0].legend_handles, ROWS, figures.PALETTE, strict=False):
        assert handle.get_color() == color
        assert to_hex(handle.get_markerfacecolor()) == (color.lower() if y["event"][row] else "#ffffff")
    assert figure.get_supxlabel() == "time (days)"
    assert drawn["curves, long names"].get_supxlabel() == "time (months)"


def test_survival_curves_carry_the_recalibration_map():
    y, curves = eight_models()
    mapped = curves["CoxPH"].with_transform(lambda survival, times: survival**2)
    curve, marker, _ = patient_lines(figures.survival_curves({"mapped": mapped}, y, [2]).axes[0], figures.PALETTE[0])
    np.testing.assert_allclose(curve.get_ydata(), curves["CoxPH"][2](curve.get_xdata()) ** 2)
    assert marker.get_ydata()[0] == pytest.approx(curves["CoxPH"][2](y["time"][2]) ** 2)


def test_a_row_that_is_not_filled_leaves_no_empty_panel_and_every_column_has_tick_labels(drawn):
    panels = drawn["curves of five"].axes
    assert len(panels) == 5
    drawn["curves of five"].draw_without_rendering()
    labelled = [ax for ax in panels if any(label.get_visible() and label.get_text() for label in ax.get_xticklabels())]
    assert labelled == panels[2:]


# --- metrics -----------------------------------------------------------------------------------------------------


def bars(ax):
    """Return by label the marks of a panel as a frame of model position, mean, lower and upper end."""
    out = {}
    for bar in ax.containers:
        assert isinstance(bar, ErrorbarContainer)
        (segments,) = bar.lines[2]
        # A bar of unknown length is an empty segment.
        ends = [np.reshape(ends, (-1, 2))[:, 0] if len(ends) else (np.nan, np.nan) for ends in segments.get_segments()]
        marks = bar.lines[0]
        columns = [marks.get_ydata(orig=False), marks.get_xdata(orig=False), *np.transpose(ends)]
        out[bar.get_label()] = pd.DataFrame(dict(zip(("at", "mean", "low", "high"), columns, strict=True)))
    return out


def test_metric_table_puts_the_paper_beside_ours(drawn):
    figure = drawn["C-td"]
    assert [ax.get_title() for ax in figure.axes] == ["SUPPORT", "METABRIC", "FLCHAIN"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == MODELS
    assert legend(figure) == ["ours", "paper"]
    assert figure.get_supxlabel() == "C-td (higher is better), mean ± sd"
    for ax in figure.axes:
        seen = bars(ax)
        for label, table in (("ours", ours()), ("paper", printed())):
            part = table[table["dataset"] == ax.get_title().lower()]
            np.testing.assert_array_equal(seen[label]["mean"], part["mean"])
            np.testing.assert_allclose(seen[label]["low"], part["mean"] - part["sd"])
            np.testing.assert_allclose(seen[label]["high"], part["mean"] + part["sd"])
            np.testing.assert_array_equal(np.rint(seen[label]["at"]), np.arange(8))
        assert (seen["ours"]["at"] < seen["paper"]["at"]).all()
        low, high = ax.get_ylim()
        assert low > high, "the first model is on top"
        assert ax.get_xscale() == "linear"


def test_metric_table_is_logarithmic_where_means_differ_by_orders_of_magnitude(drawn):
    assert {ax.get_xscale() for ax in drawn["DDC"].axes} == {"log"}
    assert drawn["DDC"].get_supxlabel() == "DDC (lower is better), mean ± sd"
    with_zero = ours("DDC", "ddc").assign(mean=lambda t: t["mean"] - t["mean"].min())
    assert {ax.get_xscale() for ax in figures.metric_table(with_zero).axes} == {"linear"}


def test_metric_table_without_print_and_with_gaps():
    table = ours().drop(index=[4])  # DeepSurv on METABRIC
    table.loc[0, "sd"] = np.nan  # a single run has no sd
    figure = figures.metric_table(table)
    assert not figure.legends
    support, metabric, _ = (bars(ax)["ours"] for ax in figure.axes)
    assert len(support) == 8
    assert support["low"].isna().tolist() == [True] + [False] * 7
    assert metabric["at"].tolist() == [0, 2, 3, 4, 5, 6, 7]
    both = figures.metric_table(table[table["model"] == "CoxPH"], printed())
    assert len(bars(both.axes[0])["paper"]) == 1, "printed models that we did not run are left out"


def test_an_unknown_metric_makes_no_claim_about_what_is_better():
    assert figures.metric_table(ours("E75")).get_supxlabel() == "E75, mean ± sd"
    assert figures.metric_table(ours("ICI@Q2")).get_supxlabel() == "ICI@Q2 (lower is better), mean ± sd"


# --- schematics --------------------------------------------------------------------------------------------------


def test_censoring_schematic_marks_events_and_censorings(drawn):
    ax = drawn["censoring"].axes[0]
    texts = [text.get_text() for text in ax.texts]
    indicator = {int(k): int(d) for k, d in re.findall(r"\$d_(\d) = ([01])\$", " ".join(texts))}
    assert len(indicator) == len(ax.get_yticklabels()) == 5
    assert set(indicator.values()) == {0, 1}
    marks = {int(line.get_ydata()[0]): line for line in lines(ax, marker="o")}
    for k, d in indicator.items():
        filled = to_hex(marks[k].get_markerfacecolor()) == to_hex(marks[k].get_color())
        assert filled == bool(d)
        label = next(text for text in ax.texts if text.get_text() == f"$z_{k}$")
        assert label.get_position()[0] == marks[k].get_xdata()[0]
    assert legend(drawn["censoring"]) == ["event", "censored", "not observed"]


def test_network_schematic_pulls_to_one_before_the_event_and_to_zero_from_it_on(drawn):
    net, curve = drawn["network"].axes
    texts = [text.get_text() for text in net.texts]
    assert {"encoder", "decoder", "aggregation", "hazards", "$h_1$", "$h_L$", "LSTM"} <= set(texts)
    z = curve.get_xticks()[0]
    own = lines(curve, color=figures.DARK)[0].get_ydata()
    arrows = [note for note in curve.texts if isinstance(note, Annotation)]
    pulls = [note for note in arrows if note.arrowprops["color"] == figures.RED]
    assert [note.xy[0] for note in pulls] == list(range(1, 9))
    for note in pulls:
        node, target = note.xy
        assert target == (1 if node < z else 0)
        assert note.xyann == (node, own[int(node)])
    (push,) = [note for note in arrows if note.arrowprops["color"] == figures.PALETTE[1]]
    other = lines(curve, color=figures.GREY)[0].get_ydata()
    assert (push.xy, push.xyann) == ((z, other[int(z)]), (z, own[int(z)]))


# --- files -------------------------------------------------------------------------------------------------------


def test_saved_files_are_the_same_bytes_every_time(tmp_path):
    first = figures.save(figures.events_per_node({"metabric": figure_3("metabric")}), tmp_path / "one")
    again = figures.save(figures.events_per_node({"metabric": figure_3("metabric")}), tmp_path / "two")
    assert [p.name for p in first] == ["one.svg", "one.png"]
    for a, b in zip(first, again, strict=True):
        assert a.read_bytes() == b.read_bytes()
    svg = first[0].read_text()
    assert "<dc:date>" not in svg
    assert matplotlib.__version__ not in svg
    assert b"Software" not in first[1].read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]


def test_png_has_200_dots_per_inch_and_a_dot_in_the_name_stays(tmp_path):
    figure = figures.network_schematic()
    _, png = figures.save(figure, tmp_path / "fig.2")
    assert png.name == "fig.2.png"
    header = png.read_bytes()
    size = [int.from_bytes(header[at : at + 4], "big") for at in (16, 20)]
    assert size == [round(200 * inches) for inches in figure.get_size_inches()]


def test_a_save_that_fails_leaves_nothing_half_done(tmp_path):
    figure = figures.censoring_schematic()
    with pytest.raises(FileNotFoundError, match=r"does not exist\. Create it first"):
        figures.save(figure, tmp_path / "absent" / "figure")
    (tmp_path / "figure.png").mkdir()
    with pytest.raises(OSError, match=r"figure\.png"):
        figures.save(figure, tmp_path / "figure")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figure.png", "figure.svg"]


# --- wrong input -------------------------------------------------------------------------------------------------


def test_tables_that_cannot_be_drawn_are_refused():
    support = figure_3("support")
    with pytest.raises(ValueError, match="tables is empty"):
        figures.events_per_node({})
    with pytest.raises(ValueError, match=r"the table of 'support' lacks the columns \['events'\]"):
        figures.events_per_node({"support": support.drop(columns="events")})
    with pytest.raises(ValueError, match=r"'b' has the spacings \['linear'\], not \['linear', 'log', 'quantile'\]"):
        figures.events_per_node({"a": support, "b": support[support["spacing"] == "linear"]})
    with pytest.raises(ValueError, match=r"the table of pairs lacks the columns \['F'\]"):
        figures.comparable_pairs(supplement_figure_1(rates=[0.5]).drop(columns="F"))
    with pytest.raises(ValueError, match="has no rows"):
        figures.comparable_pairs(supplement_figure_1(rates=[0.5]).head(0))


def test_metric_tables_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match=r"table lacks the columns \['sd'\]"):
        figures.metric_table(ours().drop(columns="sd"))
    with pytest.raises(ValueError, match="printed is a str, but a DataFrame is expected"):
        figures.metric_table(ours(), "C-td")
    with pytest.raises(ValueError, match=r"metrics \['C-td', 'DDC'\]. Pass those of one metric"):
        figures.metric_table(ours(), printed("DDC", "ddc"))
    with pytest.raises(ValueError, match="table has a model twice for one dataset"):
        figures.metric_table(pd.concat([ours(), ours()]))
    with pytest.raises(ValueError, match="spelled alike"):
        figures.metric_table(ours(), printed().assign(dataset=lambda t: t["dataset"].str.upper()))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "one to 6 different patients"),
        ([1, 1], "one to 6 different patients"),
        (range(7), "one to 6 different patients"),
        ([60], "y has the rows 0 to 59"),
        ([-1], "y has the rows 0 to 59"),
    ],
)
def test_patients_that_cannot_be_shown_are_refused(rows, message):
    y, curves = eight_models()
    with pytest.raises(ValueError, match=message):
        figures.survival_curves(curves, y, rows)


def test_curves_of_other_patients_are_refused():
    y, curves = eight_models()
    with pytest.raises(ValueError, match="60 curves for 59 patients"):
        figures.survival_curves(curves, y[1:], [0])
    with pytest.raises(ValueError, match="curves is empty"):
        figures.survival_curves({}, y, [0])
    with pytest.raises(ValueError, match="from which event and time cannot be told"):
        figures.survival_curves(curves, make_outcome([1.0], [1])["time"], [0])
