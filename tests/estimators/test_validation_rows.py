"""Groups, time, splitters and validation rows of one's own: which rows are left out of what."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import GroupKFold, TimeSeriesSplit

from parkrr import ParKClassifier, ParKRegressor, scan_parquet
from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian, Laplacian

PLAIN = {
    "kernel": Gaussian(1.0),
    "penalty": 1e-4,
    "metric": "euclidean",
    "blend": 1,
    "coarse": 0,
    "random_state": 0,
    "progress": False,
}
CHOOSING = PLAIN | {"kernel": Gaussian(), "metric": "standard", "penalty": "auto"}


def patients(n_groups=60, rows=10, seed=0):
    """Rows whose target has a part of its own in each group, which a new group does not share."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rows)
    X = rng.normal(size=(n_groups, 3))[group] + 0.05 * rng.normal(size=(len(group), 3))
    own = rng.normal(size=n_groups)
    return X, own[group] + 0.1 * rng.normal(size=len(group)), group


def rmse(rows):
    return float(np.sqrt(np.mean((rows["truth"] - rows["predicted"]) ** 2)))


def test_errors_with_groups_are_those_of_new_groups():
    X, y, group = patients(n_groups=200, rows=5)
    narrow = PLAIN | {"kernel": Gaussian(0.3)}
    by_row = ParKRegressor(**narrow).fit(X, y)
    by_group = ParKRegressor(**narrow).fit(X, y, groups=group)
    X_new, y_new, _ = patients(n_groups=200, rows=5, seed=1)
    on_new = float(np.sqrt(np.mean((by_group.predict(X_new) - y_new) ** 2)))
    assert rmse(by_row.validation_rows_) < 0.5
    assert rmse(by_group.validation_rows_) == pytest.approx(on_new, rel=0.2)


def test_choices_with_groups_shrink_what_new_groups_do_not_share():
    X, y, group = patients()
    by_row = ParKRegressor(**CHOOSING).fit(X, y)
    by_group = ParKRegressor(**CHOOSING).fit(X, y, groups=group)
    X_new, y_new, _ = patients(seed=1)
    assert by_group.score(X_new, y_new) > by_row.score(X_new, y_new)
    assert by_group.score(X_new, y_new) == pytest.approx(0.0, abs=0.05)


def test_intervals_with_groups_cover_new_groups():
    X, y, group = patients(n_groups=400, rows=4)
    X_new, y_new, _ = patients(n_groups=400, rows=4, seed=1)
    lower, upper = ParKRegressor(**PLAIN).fit(X, y, groups=group).predict_interval(X_new)
    assert np.mean((lower <= y_new) & (y_new <= upper)) == pytest.approx(0.9, abs=0.06)


def test_intervals_with_blocks_of_a_map_cover_the_holes_of_the_map():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (4000, 2))
    waves, phases = rng.normal(size=(2, 200)) / rng.gamma(1.0, size=200), rng.uniform(0, 7, 200)
    y = np.cos(X @ waves + phases).sum(1) / 10 + 0.1 * rng.normal(size=4000)
    block = np.floor(2 * X).astype(int) @ [12, 1]
    in_hole = np.isin(block, rng.permutation(144)[:30])
    settings = PLAIN | {"kernel": Laplacian(3.0), "penalty": 1e-6, "n_cells": 4}
    model = ParKRegressor(**settings).fit(X[~in_hole], y[~in_hole], groups=block[~in_hole])
    lower, upper = model.predict_interval(X[in_hole])
    assert np.mean((lower <= y[in_hole]) & (y[in_hole] <= upper)) == pytest.approx(0.9, abs=0.03)


def test_validation_rows_of_time_are_the_last_and_predicted_from_those_before():
    t = np.linspace(0, 10, 1000)
    y = np.sin(t)
    shuffled = np.random.default_rng(0).permutation(1000)
    model = ParKRegressor(**PLAIN).fit(t[shuffled, None], y[shuffled], time=t[shuffled])
    rows = model.validation_rows_
    np.testing.assert_allclose(np.sort(rows["truth"]), np.sort(y[-200:]))
    before = ParKRegressor(**PLAIN).fit(t[:800, None], y[:800])
    expected = np.sqrt(np.mean((before.predict(t[800:, None]) - y[800:]) ** 2))
    assert rmse(rows) == pytest.approx(expected, rel=1e-3)
    np.testing.assert_allclose(model.predict(t[:, None]), y, atol=5e-2)  # fitted to all rows


def test_time_may_be_dates():
    days = pd.date_range("2020-01-01", periods=500)
    X = np.arange(500.0)[:, None] / 100
    one = ParKRegressor(**PLAIN).fit(X, np.sin(X[:, 0]), time=days)
    two = ParKRegressor(**PLAIN).fit(X, np.sin(X[:, 0]), time=np.arange(500))
    np.testing.assert_array_equal(one.validation_rows_["truth"], two.validation_rows_["truth"])


@pytest.mark.parametrize(("cv", "grouped"), [(GroupKFold(4), True), (TimeSeriesSplit(4), False)])
def test_validation_rows_of_a_splitter_are_the_test_rows_of_its_last_split(cv, grouped):
    X, y, group = patients()
    group = group if grouped else None
    *_, (_, test) = cv.split(X, y, group)
    rows = ParKRegressor(**PLAIN).fit(X, y, groups=group, cv=cv).validation_rows_
    np.testing.assert_array_equal(np.sort(rows["truth"]), np.sort(y[test]))


def test_a_model_is_not_fitted_to_validation_rows_that_are_given():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(400, 2)), rng.normal(size=(300, 2))
    y, y_val = np.sin(X[:, 0]), np.full(300, 5.0)
    model = ParKRegressor(**PLAIN).fit(X, y, X_val=X_val, y_val=y_val)
    alone = ParKRegressor(**PLAIN).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_array_equal(model.validation_rows_["truth"], y_val)
    lower, upper = model.predict_interval(X_val)
    assert np.mean((lower <= 5.0) & (upper >= 5.0)) > 0.85


def test_choices_are_made_on_the_validation_rows_that_are_given():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(500, 2)), rng.normal(size=(300, 2))
    y, y_val = rng.normal(size=500), rng.normal(size=300)
    y[::2], X[::2] = y[1::2], X[1::2]  # every row twice: noise looks like something to learn
    misled = ParKRegressor(**CHOOSING).fit(X, y).score(X_val, y_val)
    assert (
        ParKRegressor(**CHOOSING).fit(X, y, X_val=X_val, y_val=y_val).score(X_val, y_val) > misled
    )


def test_categories_of_a_group_are_encoded_without_it():
    X, y, group = patients(n_groups=60, rows=20)
    frame = pd.DataFrame({"patient": group.astype(str), "x": X[:, 0]})
    model = ParKRegressor(**CHOOSING).fit(frame, y, groups=group)
    rows = model.validation_rows_
    assert np.corrcoef(rows["truth"], rows["predicted"])[0, 1] < 0.5


def test_a_classifier_calibrates_on_groups():
    X, y, group = patients(n_groups=100)
    X_new, y_new, _ = patients(n_groups=100, seed=1)
    by_row = ParKClassifier(**CHOOSING).fit(X, y > 0)
    by_group = ParKClassifier(**CHOOSING).fit(X, y > 0, groups=group)

    def confidence(model):
        return model.predict_proba(X_new).max(1).mean()

    hits = np.mean(by_group.predict(X_new) == (y_new > 0))
    assert confidence(by_row) > confidence(by_group)
    assert confidence(by_group) == pytest.approx(hits, abs=0.15)


@pytest.mark.parametrize(
    ("column", "kind"),
    [("groups", ParKRegressor), ("time", ParKRegressor), ("groups", ParKClassifier)],
)
def test_a_column_of_files_divides_rows_as_an_array_does(column, kind, tmp_path):
    X, y, group = patients()
    y = y > 0 if kind is ParKClassifier else y
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "who": group})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    table = scan_parquet(tmp_path / "rows.parquet", target="y", **{column: "who"})
    from_files = kind(**PLAIN).fit(table)
    from_arrays = kind(**PLAIN).fit(X[:, :2], y, **{column: group})
    assert table.features == ("a", "b")
    np.testing.assert_array_equal(
        from_files.validation_rows_["predicted"], from_arrays.validation_rows_["predicted"]
    )


def test_rows_of_files_without_a_target_are_skipped_with_groups_too(tmp_path):
    X, y, group = patients()
    y[::7] = np.nan
    rows = pa.table({"a": X[:, 0], "y": y, "who": group})  # NaN, where pandas writes nulls
    pq.write_table(rows, tmp_path / "rows.parquet")
    table = scan_parquet(tmp_path / "rows.parquet", target="y", groups="who")
    model, known = ParKRegressor(**PLAIN).fit(table), np.isfinite(y)
    again = ParKRegressor(**PLAIN).fit(X[known, :1], y[known], groups=group[known])
    np.testing.assert_array_equal(model.validation_rows_["truth"], again.validation_rows_["truth"])


def test_groups_of_files_on_disk_are_refused(tmp_path):
    X, y, group = patients()
    frame = pd.DataFrame({"a": X[:, 0], "y": y, "who": group})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    table = scan_parquet(tmp_path / "rows.parquet", target="y", groups="who")
    with pytest.raises(ParameterError, match="groups and time must be None for files that stay"):
        ParKRegressor(checkpoint=tmp_path / "fit", **PLAIN).fit(table)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": np.zeros(400)}, "groups must leave some rows to learn from"),
        ({"groups": np.arange(5)}, "groups must have one entry for each of 400 rows"),
        ({"time": np.full(400, np.nan)}, "time must have one finite number or date"),
        ({"time": np.arange(400), "cv": GroupKFold(2)}, "time must be given without groups and cv"),
        ({"cv": 5}, "cv must be a splitter of scikit-learn"),
        ({"X_val": np.zeros((3, 2))}, "X_val and y_val must be given together, but y_val is None"),
        (
            {"X_val": np.zeros((3, 5)), "y_val": np.zeros(3)},
            "X_val: X has 5 features, but the model is expecting 2",
        ),
        ({"X_val": np.zeros((3, 2)), "y_val": np.zeros(4)}, "y must be 3 finite rows"),
    ],
)
def test_arguments_that_cannot_divide_rows_are_refused_by_name(arguments, message):
    X = np.random.default_rng(0).normal(size=(400, 2))
    with pytest.raises(ParameterError, match=message):
        ParKRegressor(**PLAIN).fit(X, X[:, 0], **arguments)
