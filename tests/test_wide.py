"""Tables with more columns than patients: read, checked, modelled by their strongest columns, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcsurv
from dcsurv import CalibratedEnsemble, CoxPH, SplineAFT, SplineCox
from dcsurv.metrics import concordance_index_harrell
from test_cli import run

TRUE = ["g10", "g500", "g900"]


@pytest.fixture(scope="module")
def wide() -> tuple[pd.DataFrame, Any]:
    """400 patients with 1,200 columns, three of which have an effect."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((400, 1200)).astype(np.float32)).add_prefix("g")
    time, lost = rng.exponential(np.exp(-0.8 * X[TRUE].sum(axis=1))), rng.exponential(2.0, len(X))
    return X, dcsurv.make_outcome(np.minimum(time, lost) + 0.001, time <= lost)


@pytest.mark.parametrize("model", [SplineCox, SplineAFT])
def test_only_the_strongest_columns_have_an_effect(wide: tuple[pd.DataFrame, Any], model: Any, tmp_path: Path) -> None:
    X, y = wide
    fitted = model(strongest=3).fit(X[:200], y[:200])
    assert X.columns[np.flatnonzero(fitted.coef_)].tolist() == TRUE
    alone = model().fit(X.loc[:199, TRUE], y[:200])
    assert np.allclose(fitted.coef_[np.flatnonzero(fitted.coef_)], alone.coef_, rtol=1e-6)
    effects = fitted.partial_effects(X[200:]).sum(axis=1).to_numpy()
    assert np.allclose(fitted.sum_of_effects(fitted.prepare(X[200:])), effects)
    fitted.save(tmp_path / "m")
    again = dcsurv.load(tmp_path / "m")
    assert np.array_equal(again.predict_survival_function(X)(1.0), fitted.predict_survival_function(X)(1.0))
    everything = model(strongest=2000).fit(X.iloc[:200, :5], y[:200])  # more than there are: all
    assert np.array_equal(everything.coef_, model().fit(X.iloc[:200, :5], y[:200]).coef_)


def test_the_default_selects_where_a_ridge_regression_drowns(wide: tuple[pd.DataFrame, Any], tmp_path: Path) -> None:
    X, y = wide
    train, test = slice(0, 200), slice(200, None)
    model = CalibratedEnsemble(n_members=3, random_state=0).fit(X[train], y[train])
    ridge = SplineCox().fit(X[train], y[train])
    ours, its = (concordance_index_harrell(y[test], one.predict(X[test])) for one in (model, ridge))
    assert ours > 0.75 > its + 0.1
    assert "1,200 columns of 200 patients are too many for networks and trees." in model.remarks_[0]
    model.save(path := tmp_path / "m.safetensors")
    assert path.stat().st_size < 2e6
    assert "10 and 50 and 1,200 columns" in " ".join(run("info", path).stdout.split())
    narrow = CalibratedEnsemble(n_members=2, random_state=0).set_params(estimator__max_epochs=1)
    narrow = narrow.fit(X.iloc[train, :8], y[train])  # as ever
    assert "dcs" in narrow.weights_
    assert not narrow.remarks_


def test_cox_without_a_penalty_is_refused_at_once(wide: tuple[pd.DataFrame, Any]) -> None:
    with pytest.raises(ValueError, match=r"CoxPH has an effect for every column, and 1,200 are more than 200 patients"):
        CoxPH().fit(wide[0][:200], wide[1][:200])
    X, y = wide[0][:60], wide[1][:60]
    found = dcsurv.validate(SplineCox(strongest=3), X, y, resamples=0, repeats=1, folds=2, metrics=["C-td"])
    assert found.reference_performance is None
    assert "CoxPH, for comparison, is left out: 1,200 columns are too many for it." in found.notes
