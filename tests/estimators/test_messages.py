"""Calls that people get wrong: what they read names parameter, rule, value and way out."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from parkrr import Gaussian, Laplacian, ParKClassifier, ParKRegressor, Polynomial, load
from parkrr.errors import ModelFileError, ParameterError, StorageError

FIXED = {"penalty": 1e-3, "metric": "standard", "n_cells": 1, "blend": 1, "coarse": 0}
FIXED |= {"kernel": Gaussian(1.0), "random_state": 0, "progress": False}
N = 40
RNG = np.random.default_rng(0)
NUMBERS = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N)})
MIXED = NUMBERS.assign(c=np.tile(["u", "v"], N // 2))
Y = NUMBERS["a"] + NUMBERS["b"] ** 2
LABELS = np.where(Y > 1, "high", "low")


def regressor(**changes):
    return ParKRegressor(**{**FIXED, **changes})


def classifier(**changes):
    return ParKClassifier(**{**FIXED, **changes})


# Each case is fitted to a frame of numbers and to one with text, which take different ways.
FRAMES = pytest.mark.parametrize("X", [NUMBERS, MIXED], ids=["numbers", "mixed"])


@FRAMES
@pytest.mark.parametrize("estimator", [regressor(), classifier()], ids=["regressor", "classifier"])
def test_predict_of_no_rows_is_refused(X, estimator):
    model = estimator.fit(X, Y > 1)
    with pytest.raises(ParameterError, match=r"X must have at least one row, got 0 sample\(s\)"):
        model.predict(X.head(0))
    with pytest.raises(ParameterError, match="X must have at least one row"):
        model.novelty(X.head(0))


@FRAMES
def test_fit_of_no_rows_is_refused(X):
    with pytest.raises(ParameterError, match="X must have at least one row"):
        regressor().fit(X.head(0), Y.head(0))


@FRAMES
def test_score_of_no_rows_is_refused(X):
    model = regressor().fit(X, Y)
    with pytest.raises(ParameterError, match="X must have at least one row"):
        model.score(X.head(0), Y.head(0))


def test_infinity_in_an_array_names_its_columns():
    X = NUMBERS.to_numpy(copy=True)
    X[3, 1] = np.inf
    message = r"X must hold finite or missing numbers, but contains infinity in column 1 \("
    with pytest.raises(ParameterError, match=message):
        regressor().fit(X, Y)
    with pytest.raises(ParameterError, match=message):
        regressor().fit(NUMBERS.to_numpy(), Y).predict(X)


def test_a_checkpoint_that_arrays_do_not_use_is_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="only fits of files can be resumed") as caught:
        regressor(checkpoint=tmp_path / "fit").fit(NUMBERS, Y)
    assert caught[0].filename == __file__


def with_gap(values, gap):
    """The values as objects, the one of row 3 replaced."""
    return pd.Series([gap if k == 3 else value for k, value in enumerate(values)], dtype=object)


@FRAMES
@pytest.mark.parametrize("gap", [None, pd.NA, np.nan, pd.NaT], ids=str)
@pytest.mark.parametrize(
    ("estimator", "values"),
    [(regressor(), Y.tolist()), (classifier(), LABELS.tolist()), (classifier(), [0, 1] * 20)],
    ids=["numbers", "labels", "numbers as labels"],
)
def test_a_missing_target_is_named_with_its_row(X, gap, estimator, values):
    with pytest.raises(ParameterError) as refused:
        estimator.fit(X, with_gap(values, gap))
    assert str(refused.value) == (
        "y must have a value in every row, but y contains NaN or None in 1 of 40 rows, the first "
        "is row 3; leave these rows out of X and y"
    )


@FRAMES
@pytest.mark.parametrize("dtype", ["Float64", "float64[pyarrow]"])
def test_a_missing_target_of_a_nullable_column_is_named_with_its_row(X, dtype):
    y = Y.astype(dtype)
    y[3] = pd.NA
    with pytest.raises(ParameterError, match=r"y must have a value in every row, .* is row 3"):
        regressor().fit(X, y)


@FRAMES
@pytest.mark.parametrize("kind", [np.asarray, list, pd.Series, pd.Categorical])
def test_text_as_a_target_of_a_regression_is_refused_with_the_estimator_for_labels(X, kind):
    with pytest.raises(ParameterError) as refused:
        regressor().fit(X, kind(LABELS))
    assert str(refused.value).startswith("y must be numbers, but row 0 is 'high'; for labels use P")


def test_text_as_a_target_of_score_and_of_an_update_is_refused_as_in_fit():
    model = regressor(keep_statistics=True).fit(NUMBERS, Y)
    for call in (model.score, model.partial_fit):
        with pytest.raises(ParameterError, match="y must be numbers, but row 0 is 'high'"):
            call(NUMBERS, LABELS)


def test_numbers_written_as_text_are_a_target():
    y = Y.round(3)
    model = regressor().fit(NUMBERS, y.astype(str))
    np.testing.assert_array_equal(
        model.predict(NUMBERS), regressor().fit(NUMBERS, y).predict(NUMBERS)
    )


@FRAMES
def test_dates_as_a_target_are_refused(X):
    with pytest.raises(ParameterError, match=r"y must be real numbers, got datetime64.* seconds"):
        regressor().fit(X, pd.date_range("2026-01-01", periods=N))


@FRAMES
def test_labels_of_two_types_are_refused(X):
    with pytest.raises(ParameterError, match=r"y must be labels of one type, got 'high' \(str\)"):
        classifier().fit(X, with_gap(LABELS, 7))


@FRAMES
def test_a_frame_without_targets_is_refused_as_an_array_is(X):
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        regressor().fit(X)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        regressor().fit(X.to_numpy())


@FRAMES
def test_a_lazy_frame_of_polars_is_collected(X):
    eager = pl.DataFrame(X.to_dict("list"))
    model = regressor().fit(eager.lazy(), eager.lazy().select("a"))
    wanted = regressor().fit(eager, eager.select("a")).predict(eager)
    np.testing.assert_array_equal(model.predict(eager.lazy()), wanted)
    assert regressor().plan(eager.lazy()).rows == N


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"high": 2, "lo": 3}, "labels of y, ['high', 'low'], got 'lo'; did you mean 'low'?"),
        ({"high": 2, "x": 3}, "class_weight must be of labels of y, ['high', 'low'], got 'x'"),
        ({"high": 0}, "class_weight must hold weights > 0 and finite, got 0 for 'high'"),
        ({"high": "2"}, "class_weight must hold weights > 0 and finite, got '2' for 'high'"),
        ("balance", "'balanced' or a weight for each label, such as {'high': 2.0}, got 'balance'"),
        (5, "class_weight must be None, 'balanced' or a weight for each label"),
    ],
)
def test_class_weights_that_fit_no_label_are_refused(weights, message):
    with pytest.raises(ParameterError) as refused:
        classifier(class_weight=weights).fit(NUMBERS, LABELS)
    assert message in str(refused.value)


@pytest.mark.parametrize("kernel", [Gaussian, Laplacian])
@pytest.mark.parametrize("lengthscale", [[1.0, "2"], np.array([[1.0, 2.0]]), "auto", None], ids=str)
def test_a_lengthscale_that_is_not_a_number_is_refused(kernel, lengthscale):
    with pytest.raises(ParameterError) as refused:
        kernel(lengthscale)
    assert str(refused.value) == (
        f"lengthscale must be one number, or one for each feature, got {lengthscale!r}; "
        f"kernel='gaussian' has it chosen, with a weight for each feature"
    )


@pytest.mark.parametrize("given", [{"gamma": [1.0]}, {"gamma": "1"}, {"coef0": None}], ids=str)
def test_a_polynomial_of_what_is_no_number_is_refused(given):
    [name] = given
    with pytest.raises(ParameterError, match=f"{name} must be one number"):
        Polynomial(2, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kernel": "gausian"}, "got 'gausian'; did you mean 'gaussian'?"),
        ({"metric": "learnt"}, "got 'learnt'; did you mean 'learned'?"),
        ({"solver": "Direct"}, "got 'Direct'; did you mean 'direct'?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(given, message):
    with pytest.raises(ParameterError) as refused:
        regressor(**given).fit(NUMBERS, Y)
    assert str(refused.value).endswith(message)


@pytest.mark.parametrize("rows", [MIXED, "rows.parquet"], ids=["frame", "path"])
def test_predict_to_of_what_is_no_file_points_to_predict(tmp_path, rows):
    model = regressor().fit(MIXED, Y)
    with pytest.raises(ParameterError, match=r"source must be the result of scan_parquet.*got "):
        model.predict_to(rows, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_fit_of_a_path_points_to_scan_parquet():
    with pytest.raises(ParameterError, match=r"fit\(scan_parquet\('t.parquet', target=...\)\)"):
        regressor().fit("t.parquet")


@pytest.mark.parametrize("method", ["save", "to_onnx", "show_report"])
def test_a_file_in_a_missing_folder_names_the_folder(tmp_path, method):
    model, path = regressor().fit(NUMBERS.to_numpy(), Y), tmp_path / "missing" / "file"
    with pytest.raises(StorageError) as refused:
        getattr(model, method)(path)
    assert str(refused.value) == (
        f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}; create it or "
        f"choose another one"
    )


def test_a_model_is_not_saved_as_a_folder(tmp_path):
    with pytest.raises(StorageError, match="cannot be written: it is a folder; name a file in it"):
        regressor().fit(NUMBERS, Y).save(tmp_path)


def write_table(path):
    MIXED.to_parquet(path)


def write_pickle(path):
    path.write_bytes(pickle.dumps(regressor()))


def write_text(path):
    path.write_text("a,b\n1,2\n" * 10)


def write_page(path):
    path.write_text("<!doctype html><html></html>")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_table, "it is Parquet, which scan_parquet reads"),
        (write_pickle, "it is a pickle, which pickle.load or joblib.load reads; models are wri"),
        (write_text, "it is text"),
        (write_page, "it is HTML or XML, such as a report; its model is the file beside it"),
    ],
)
def test_what_is_no_model_is_named_for_what_it_is(tmp_path, write, message):
    write(tmp_path / "other")
    with pytest.raises(ModelFileError) as refused:
        load(tmp_path / "other")
    start = f"{str(tmp_path / 'other')!r} is not a file of parkrr: {message}"
    assert str(refused.value).startswith(start)


@pytest.mark.parametrize("path", [None, regressor(), 3], ids=["None", "model", "number"])
def test_load_of_what_is_no_path_is_refused(path):
    with pytest.raises(ParameterError, match="a path must be a str or a Path, got "):
        load(path)


MANY = np.random.default_rng(1).normal(size=(2000, 2))


def test_fewer_cells_than_asked_for_come_with_a_warning_that_gives_the_reason():
    with pytest.warns(UserWarning, match="n_cells=500 gave ") as warned:
        model = regressor(n_cells=500).fit(MANY, MANY[:, 0])
    assert [str(each.message) for each in warned] == [
        f"n_cells=500 gave {model.n_cells_} cells: a balanced cell has at least 32 of 2,000 rows "
        f"(their weights, if they have any); set balance=False for smaller cells"
    ]
    assert warned[0].filename == __file__


def test_without_balance_there_are_as_many_cells_as_asked_for():
    few = MANY[:200]
    assert regressor(n_cells=50, balance=False).fit(few, few[:, 0]).n_cells_ == 50


def test_copies_of_rows_that_make_fewer_cells_are_named_as_the_reason():
    X = np.repeat([[0.0], [1.0], [2.0]], 100, axis=0)
    with pytest.warns(UserWarning, match=r"n_cells=9 gave . cells?: .* that no row is nearest to"):
        regressor(n_cells=9, balance=False).fit(X, X[:, 0])


@pytest.mark.parametrize("n_cells", ["auto", 20])
def test_as_many_cells_as_asked_for_come_without_a_warning(n_cells):
    assert regressor(n_cells=n_cells).fit(MANY, MANY[:, 0]).n_cells_ <= 30
