"""The preprocessor: against scikit-learn's parts, on real and on generated tables, and on tables that are wrong."""

import json
import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dcsurv import datasets, train_test_indices
from dcsurv.preprocessing import Preprocessor


@parametrize_with_checks([Preprocessor()])
def test_scikit_learn_estimator_checks(estimator, check):
    # No expected failures: every check that applies to a transformer passes.
    check(estimator)


def scikit_learn_parts(X):
    """Build the same steps from scikit-learn's own transformers."""
    categories = list(X.select_dtypes("category"))
    one_hot = OneHotEncoder(
        drop="first", categories=[list(X[c].cat.categories) for c in categories], sparse_output=False
    )
    return ColumnTransformer(
        [
            ("category", make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot), categories),
            ("number", make_pipeline(StandardScaler(), SimpleImputer(strategy="median")), X.columns.drop(categories)),
        ],
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")


@pytest.mark.parametrize(("name", "width"), [("support", 23), ("metabric", 9), ("flchain", 16)])
def test_equals_scikit_learn_on_the_cohorts(name, width):
    X, y = datasets.load(name)
    rng = np.random.default_rng(0)
    for column in X:  # the cohorts miss few values: take some more out, also of the categories
        X.loc[rng.random(len(X)) < 0.05, column] = np.nan
    train, test = train_test_indices(y, random_state=40)
    ours = Preprocessor(least_patients=1).set_output(transform="pandas").fit(X.iloc[train])
    theirs = scikit_learn_parts(X).fit(X.iloc[train])
    for rows in (train, test):
        got, expected = ours.transform(X.iloc[rows]), theirs.transform(X.iloc[rows])
        assert got.shape == (len(rows), width)
        assert got.index.equals(X.index[rows])
        assert (got.dtypes == np.float32).all()
        assert set(got.columns) == set(expected.columns)
        np.testing.assert_allclose(got, expected[got.columns], rtol=1e-6, atol=1e-6)


# A number, a text and a boolean per row, each of which may be missing; the first row has them all.
tables = st.lists(
    st.tuples(
        st.none() | st.floats(-1e6, 1e6), st.none() | st.sampled_from(["a", "b", "c"]), st.none() | st.booleans()
    ),
    max_size=20,
).map(lambda rows: pd.DataFrame([(1.5, "b", True), *rows], columns=["number", "text", "flag"]))


@given(tables)
def test_training_rows_are_finite_centred_and_zero_or_one(X):
    preprocessor = Preprocessor(least_patients=1).set_output(transform="pandas").fit(X)
    Z = preprocessor.transform(X)
    assert np.isfinite(Z.to_numpy()).all()
    assert np.isin(Z.drop(columns="number"), [0, 1]).all()
    known = Z["number"][X["number"].notna()].to_numpy(np.float64)
    spread = X["number"].astype(float).max() - X["number"].astype(float).min()
    if spread > 1e-3:
        assert known.mean() == pytest.approx(0, abs=1e-4)
        assert known.std() == pytest.approx(1, abs=1e-4)
    levels = X["text"].dropna().nunique()
    assert len([c for c in Z if c.startswith("text")]) == max(1, levels - 1)


@given(tables, tables)
def test_state_survives_json_to_the_bit(X, other):
    preprocessor = Preprocessor(ordinal=["text"], least_patients=1).fit(X)
    state = preprocessor.get_state()
    text = json.dumps(state, allow_nan=False)
    back = Preprocessor.from_state(json.loads(text))
    assert back.get_state() == state
    assert back.get_params() == {"ordinal": ("text",), "least_patients": 1}
    assert back.feature_names_in_.tolist() == ["number", "text", "flag"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the other table may have other levels
        np.testing.assert_array_equal(back.transform(other), preprocessor.transform(other))
    assert back.get_feature_names_out().tolist() == preprocessor.get_feature_names_out().tolist()


@given(tables, st.randoms(use_true_random=False))
def test_rows_do_not_see_each_other_and_columns_are_found_by_name(X, random):
    preprocessor = Preprocessor(least_patients=1).fit(X)
    Z = preprocessor.transform(X)
    rows, columns = random.sample(range(len(X)), len(X)), random.sample(list(X), 3)
    np.testing.assert_array_equal(preprocessor.transform(X.iloc[rows][columns]), Z[rows])
    np.testing.assert_array_equal(preprocessor.transform(X.iloc[[0]]), Z[[0]])


def test_nothing_is_learnt_from_rows_that_are_only_transformed():
    X = pd.DataFrame({"age": [40.0, 60.0, np.nan], "sex": ["m", "f", "m"]})
    preprocessor = Preprocessor(least_patients=1).fit(X)
    state = preprocessor.get_state()
    preprocessor.transform(pd.DataFrame({"age": [1e9], "sex": ["f"]}))
    assert preprocessor.get_state() == state


def test_values_by_hand():
    X = pd.DataFrame(
        {
            "age": [40.0, 60.0, 80.0, np.nan, 60.0],
            "stage": pd.Categorical(["II", "I", None, "III", "III"], categories=["III", "II", "I", "IV"]),
            "smoker": [True, False, True, False, False],
            "site": ["x", "x", "x", "x", "x"],
            "dose": [7, 7, 7, 7, 7],
        }
    )
    preprocessor = Preprocessor(least_patients=1).fit(X)
    # Levels in the order of the categories, those not observed left out, the first one dropped.
    assert preprocessor.get_feature_names_out().tolist() == [
        "age",
        "stage_II",
        "stage_I",
        "smoker_True",
        "site",
        "dose",
    ]
    s = 1 / np.sqrt(0.5)  # 20 / sd, with divisor n
    np.testing.assert_allclose(
        preprocessor.transform(X),
        [[-s, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0], [s, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
        rtol=1e-6,
    )


def test_ordinal_category_enters_as_a_standardised_position():
    stage = pd.CategoricalDtype(["I", "II", "III"])
    X = pd.DataFrame({"stage": pd.Series(["I", "II", "III", "III", None], dtype=stage)})
    Z = Preprocessor(ordinal=["stage"], least_patients=1).fit_transform(X)
    positions = np.array([0, 1, 2, 2])
    expected = (positions - positions.mean()) / positions.std()
    np.testing.assert_allclose(Z[:4, 0], expected, rtol=1e-6)
    assert Z[4, 0] == pytest.approx((1.5 - positions.mean()) / positions.std(), rel=1e-6)  # the median position


def test_ties_for_the_most_frequent_level_go_to_the_first():
    X = pd.DataFrame({"c": ["b", "a", "c", "a", "b", None]})
    np.testing.assert_array_equal(Preprocessor(least_patients=1).fit_transform(X)[-1], [0, 0])  # "a", not "b"


def test_constant_columns_stay_zero():
    X = pd.DataFrame({"c": [0.1] * 7, "age": range(7)})
    preprocessor = Preprocessor(least_patients=1).fit(X)
    # 0.1 has no exact mean in floating point; the rounding error must not be taken for a spread.
    assert (preprocessor.transform(X)[:, 0] == 0).all()
    assert preprocessor.transform(pd.DataFrame({"c": [5.0, np.nan], "age": [1, 2]}))[:, 0].tolist() == [0, 0]


def test_unseen_levels_become_the_most_frequent_with_one_warning():
    X = pd.DataFrame({"stage": ["I", "II", "II", "III"], "sex": ["m", "f", "m", "m"]})
    preprocessor = Preprocessor(least_patients=1).fit(X)
    new = pd.DataFrame({"stage": ["IV", "V", "I"], "sex": ["m", "unknown", "f"]})
    with pytest.warns(UserWarning, match="not there in fit") as caught:
        Z = preprocessor.transform(new)
    assert len(caught) == 1
    assert "'stage': IV, V; 'sex': unknown" in str(caught[0].message)
    np.testing.assert_array_equal(Z, preprocessor.transform(X.loc[[1, 1, 0]].assign(sex=["m", "m", "f"])))


def test_declared_but_absent_levels_do_not_warn():
    X = pd.DataFrame({"stage": pd.Categorical(["I", "II", "I"], categories=["I", "II", "III"])})
    preprocessor = Preprocessor(least_patients=1).fit(X)
    assert preprocessor.transform(X).shape == (3, 1)


def test_codes_mean_the_same_as_text_integer_float_and_category():
    codes = ["10", "2", "1", "2"]
    preprocessor = Preprocessor(least_patients=1).fit(pd.DataFrame({"group": codes}))
    assert preprocessor.get_feature_names_out().tolist() == ["group_2", "group_10"]  # sorted as numbers
    expected = [[0, 1], [1, 0], [0, 0], [1, 0]]
    for again in (
        codes,
        [10, 2, 1, 2],
        [10.0, 2.0, 1.0, np.nan],  # missing: 2 is the most frequent
        pd.Categorical([10, 2, 1, 2]),
        pd.array(codes, dtype="string"),
        pd.array([10, 2, 1, None], dtype="Int64"),
    ):
        np.testing.assert_array_equal(preprocessor.transform(pd.DataFrame({"group": again})), expected)


def test_pandas_extension_types_and_objects_are_read_as_what_they_hold():
    plain = pd.DataFrame({"a": [1.0, 2.0, np.nan], "b": [True, False, True]})
    expected = Preprocessor(least_patients=1).fit_transform(plain)
    for a, b in (
        (pd.array([1, 2, None], dtype="Int64"), pd.array([True, False, True], dtype="boolean")),
        (pd.array([1, 2, None], dtype="Float64"), np.array([True, False, True], dtype=object)),
        (np.array([1, 2, None], dtype=object), pd.Categorical([True, False, True])),
        (pd.array([1, 2, None], dtype="Float32"), ["True", "False", "True"]),
    ):
        np.testing.assert_array_equal(
            Preprocessor(least_patients=1).fit_transform(pd.DataFrame({"a": a, "b": b})), expected
        )


def test_numbers_in_another_type_are_accepted_after_fit():
    preprocessor = Preprocessor(least_patients=1).fit(pd.DataFrame({"a": [1.0, 2.0, 4.0]}))
    expected = preprocessor.transform(pd.DataFrame({"a": [1.0, np.nan]}))
    for column in (["1", None], pd.Categorical([1, None]), pd.array([1, None], dtype="Int64")):
        np.testing.assert_array_equal(preprocessor.transform(pd.DataFrame({"a": column})), expected)
    with pytest.raises(ValueError, match=r"column 'a' held numbers in fit, but now it holds values such as 'high'"):
        preprocessor.transform(pd.DataFrame({"a": ["1", "high"]}))


def test_arrays_and_lists_are_accepted():
    rows = [[1.0, "x"], [2.0, "y"], [None, "y"]]
    from_list = Preprocessor(least_patients=1).fit(rows)
    assert from_list.get_feature_names_out().tolist() == ["x0", "x1_y"]
    assert from_list.get_feature_names_out(["age", "arm"]).tolist() == ["age", "arm_y"]
    assert not hasattr(from_list, "feature_names_in_")
    frame = pd.DataFrame(rows, columns=["x0", "x1"])
    expected = Preprocessor(least_patients=1).fit_transform(frame)
    np.testing.assert_array_equal(from_list.transform(rows), expected)
    np.testing.assert_array_equal(from_list.transform(np.array(rows, dtype=object)), expected)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        np.testing.assert_array_equal(from_list.transform(frame), expected)
    with pytest.warns(UserWarning, match="was fitted with feature names"):
        np.testing.assert_array_equal(Preprocessor(least_patients=1).fit(frame).transform(rows), expected)
    # A second fit forgets the names of the first.
    assert not hasattr(Preprocessor(least_patients=1).fit(frame).fit(rows), "feature_names_in_")


def test_input_is_left_as_it_was():
    X = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": np.array(["u", None, "v"], dtype=object)})
    before = X.copy()
    Preprocessor(least_patients=1).fit(X).transform(X)
    pd.testing.assert_frame_equal(X, before)
    numbered = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]])
    Preprocessor(least_patients=1).fit(numbered).transform(numbered)
    assert list(numbered.columns) == [0, 1]


def test_clone_and_pickle():
    X = pd.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]})
    preprocessor = Preprocessor(ordinal=["b"], least_patients=1).fit(X)
    assert clone(preprocessor).get_params() == {"ordinal": ["b"], "least_patients": 1}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(preprocessor)).transform(X), preprocessor.transform(X))
    with pytest.raises(NotFittedError):
        clone(preprocessor).transform(X)
    with pytest.raises(NotFittedError):
        Preprocessor(least_patients=1).get_state()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame({"a": [1.0, np.inf, -np.inf]}), "column 'a' holds 2 infinite values"),
        (pd.DataFrame({"a": [np.nan, np.nan]}), "column 'a' has no value in any of the 2 rows"),
        (pd.DataFrame({"a": [None, None]}), "column 'a' has no value in any of the 2 rows"),
        (pd.DataFrame({"a": pd.Categorical([None, None], categories=["x"])}), "'a' has no value in any of the 2 rows"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), r"more than one column named \['a'\]"),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), "'when' holds datetime64.* Turn it into a number"),
        (pd.DataFrame({"wait": pd.to_timedelta([3], unit="D")}), "'wait' holds timedelta64"),
        (pd.DataFrame({"a": [1j, 2j]}), "Complex data not supported: column 'a'"),
        (pd.DataFrame({"id": [f"p{i}" for i in range(300)]}), "'id' has 300 different values in 300 rows.*identifier"),
        (pd.DataFrame({"a": [1e200, -1e200]}), "column 'a' holds 1e\\+200 in row 1, a number too large"),
        (pd.DataFrame({"a": [[1], [2]]}), "column 'a' holds values that are neither numbers nor text"),
        (pd.DataFrame({"a": []}), "0 sample"),
        (pd.DataFrame(index=[0, 1]), "0 feature"),
    ],
)
def test_bad_tables_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        Preprocessor(least_patients=1).fit(X)


def test_infinity_is_refused_after_fit_too():
    preprocessor = Preprocessor(least_patients=1).fit(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="column 'a' holds 1 infinite values"):
        preprocessor.transform(pd.DataFrame({"a": [np.inf]}))


def test_tables_of_polars_are_those_of_pandas():
    frame = pd.DataFrame({"age": [50.0, np.nan, 70.0], "stage": ["I", "II", None], "smoker": [True, False, True]})
    other = pl.from_pandas(frame)
    expected = Preprocessor(least_patients=1).fit(frame)
    np.testing.assert_array_equal(Preprocessor(least_patients=1).fit(other).transform(other), expected.transform(frame))
    np.testing.assert_array_equal(expected.transform(other[["stage", "smoker", "age"]]), expected.transform(frame))


def test_columns_are_found_by_name():
    preprocessor = Preprocessor(least_patients=1).fit(pd.DataFrame({"age": [1.0, 2.0], "sex": ["f", "m"]}))
    with pytest.raises(ValueError, match=r"lacks the columns 'sex' .*it has others: \['gender'\]"):
        preprocessor.transform(pd.DataFrame({"age": [1.0], "gender": ["f"]}))
    more = pd.DataFrame({"id": [1], "sex": ["m"], "age": [1.0]})
    with pytest.warns(UserWarning, match=r"not there in fit are ignored: \['id'\]"):
        np.testing.assert_array_equal(preprocessor.transform(more), preprocessor.transform(more[["age", "sex"]]))
    with pytest.raises(ValueError, match="X has 3 features, but Preprocessor is expecting 2 features"):
        preprocessor.transform(np.ones((1, 3)))
    with pytest.raises(TypeError, match="column names must all be strings, or none"):
        Preprocessor(least_patients=1).fit(pd.DataFrame([[1.0, 2.0]], columns=["a", 0]))
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        preprocessor.get_feature_names_out(["sex", "age"])


def test_booleans_are_known_again_as_numbers():
    """A NumPy array and many files hold them as 0 and 1, which were taken for unknown levels."""
    X = pd.DataFrame({"flag": [True, False, True, None], "age": [50.0, 60.0, 70.0, 80.0]})
    preprocessor = Preprocessor(least_patients=1).fit(X)
    expected = preprocessor.transform(X)
    for other in ([1, 0, 1, None], [1.0, 0.0, 1.0, np.nan], ["1", "0", "1", None], ["True", "False", "True", None]):
        np.testing.assert_array_equal(preprocessor.transform(X.assign(flag=other)), expected)
    with pytest.warns(UserWarning, match="'flag': 2"):
        preprocessor.transform(X.assign(flag=[2, 0, 1, 1]))


def test_wrong_ordinal_and_state_are_refused():
    X = pd.DataFrame({"stage": ["I", "II"]})
    with pytest.raises(ValueError, match=r"ordinal names columns that X does not have: \['grade'\]"):
        Preprocessor(ordinal=["grade"], least_patients=1).fit(X)
    with pytest.raises(ValueError, match=r"ordinal is the string 'stage'; pass a list"):
        Preprocessor(ordinal="stage").fit(X)
    with pytest.raises(ValueError, match="state has version 99, but 1 is expected"):
        Preprocessor.from_state({**Preprocessor(least_patients=1).fit(X).get_state(), "version": 99})


def test_memory_beside_the_result_is_a_few_columns():
    n, width = 200_000, 20
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(n, width)), columns=[f"c{i}" for i in range(width)])
    X["group"] = np.array(["a", "b"], dtype=object)[np.arange(n) % 2]
    tracemalloc.start()
    preprocessor = Preprocessor(least_patients=1).fit(X)
    _, peak_fit = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    Z = preprocessor.transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    column = 8 * n
    assert peak_fit < 10 * column  # the table has 21
    assert peak - Z.nbytes < 10 * column
