"""Columns as numbers, by hand-made tables whose codes can be written down."""

import json
from datetime import date, datetime, time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from parkrr import Gaussian, ParKClassifier, ParKRegressor
from parkrr.data.encoded_table import learn_frame_encoder
from parkrr.data.encoders import (
    FOLDS,
    ONE_HOT,
    SHRINK,
    TableEncoder,
    add_counts,
    assign_folds,
    count_categories,
    learn_columns,
)
from parkrr.errors import ParameterError


def encoded(values, counts=None, kind=None):
    table = pa.table({"c": pa.array(values, type=kind)})
    return learn_columns(table, counts or {}).new_rows.encode(table)


def count(values, Y, w=None):
    """Counts of rows that are all in the first fold."""
    return count_categories(values, Y, np.zeros(len(Y), dtype=int), w)


def test_a_missing_value_is_filled_with_the_median_and_flagged():
    X = encoded([3.0, None, 1.0, float("nan"), 2.0])
    np.testing.assert_array_equal(X, [[3, 0], [2, 1], [1, 0], [2, 1], [2, 0]])


def test_infinity_is_refused_with_the_name_of_its_column():
    with pytest.raises(ParameterError, match=r"column 'c' .* contains infinity in 1 rows; replace"):
        encoded([3.0, float("inf")])


def test_numbers_without_missing_values_have_one_column():
    np.testing.assert_array_equal(encoded([1, 2, 3]), [[1], [2], [3]])


def test_booleans_are_zero_and_one():
    np.testing.assert_array_equal(encoded([True, False]), [[1], [0]])


def test_a_date_has_seconds_week_and_year_and_no_time_of_day():
    X = encoded([date(1970, 1, 1), date(1970, 1, 8), date(1971, 6, 1)])
    assert X.shape == (3, 5)
    np.testing.assert_array_equal(X[:, 0], [0, 7 * 86400, 516 * 86400])
    np.testing.assert_allclose(X[0, 1:], X[1, 1:] * [1, 1, 0, 0] + [0, 0, 0, 1], atol=1e-12)


def test_a_time_of_day_is_a_point_on_a_circle():
    X = encoded([time(0), time(6), time(12)])
    np.testing.assert_allclose(X, [[0, 1], [1, 0], [0, -1]], atol=1e-12)


def test_a_time_stamp_without_value_is_flagged():
    X = encoded([datetime(2020, 1, 1, 5), None, datetime(2022, 1, 1)])
    np.testing.assert_array_equal(X[:, -1], [0, 1, 0])


def test_few_categories_have_a_column_each_and_a_missing_value_is_one_of_them():
    values = ["a"] * 10 + ["b"] * 12 + [None] * 11
    counted = count(pa.chunked_array([values]), np.zeros((33, 1)))
    X = encoded(values, {"c": counted})
    np.testing.assert_array_equal(X.sum(0), [10, 12, 11])
    np.testing.assert_array_equal(X.sum(1), 1)


def test_a_rare_or_unseen_category_is_none_of_the_others():
    values = ["a"] * 50 + ["rare"]
    counted = count(pa.chunked_array([values]), np.zeros((51, 1)))
    columns = learn_columns(pa.table({"c": values}), {"c": counted}).new_rows
    np.testing.assert_array_equal(
        columns.encode(pa.table({"c": ["rare", "new", "a"]})), [[0], [0], [1]]
    )


def test_many_categories_become_shrunk_means_and_frequencies():
    names = [f"c{k}" for k in range(ONE_HOT + 1)]
    values, y = np.repeat(names, 40), np.repeat(np.arange(ONE_HOT + 1.0), 40)
    counted = count(pa.chunked_array([values]), y[:, None])
    columns = learn_columns(pa.table({"c": values}), {"c": counted}).new_rows
    mean = y.mean()
    wanted = [(40 * 3 + SHRINK * mean) / (40 + SHRINK), np.log1p(40)]
    np.testing.assert_allclose(columns.encode(pa.table({"c": ["c3"]})), [wanted])
    np.testing.assert_allclose(columns.encode(pa.table({"c": ["new"]})), [[mean, 0]])


def folded_rows():
    """Rows of 30 categories with their folds, of which the last are validation rows."""
    rng = np.random.default_rng(0)
    values = np.char.add("c", rng.integers(30, size=3000).astype(str))
    fold = rng.integers(FOLDS + 1, size=3000)
    return values, rng.normal(size=3000), fold


def means_by_hand(values, y, others):
    """The shrunk mean of each row's category over the other rows."""
    mean = y[others].mean()
    sums = {v: y[others & (values == v)].sum() for v in set(values)}
    rows = {v: (others & (values == v)).sum() for v in set(values)}
    return [(sums[v] + SHRINK * mean) / (rows[v] + SHRINK) for v in values]


@pytest.mark.parametrize("k", range(FOLDS))
def test_the_code_of_a_training_row_is_the_mean_over_other_folds(k):
    values, y, fold = folded_rows()
    table = pa.table({"c": values})
    encoder = learn_columns(table, {"c": count_categories(table["c"], y[:, None], fold)})
    codes, own = encoder.encode(table, fold)[:, 0], fold == k
    wanted = np.array(means_by_hand(values, y, (fold != k) & (fold != FOLDS)))
    np.testing.assert_allclose(codes[own], wanted[own])


def test_the_code_of_a_validation_row_is_that_of_a_new_row_without_validation_rows():
    values, y, fold = folded_rows()
    table = pa.table({"c": values})
    encoder = learn_columns(table, {"c": count_categories(table["c"], y[:, None], fold)})
    codes, own = encoder.encode(table, fold)[:, 0], fold == FOLDS
    np.testing.assert_allclose(codes[own], np.array(means_by_hand(values, y, fold != FOLDS))[own])


def number_rows():
    """Numbers of 40 values, of which every third has a target of its own, beside a category."""
    values, _, fold = folded_rows()
    x = np.random.default_rng(1).integers(40, size=3000).astype(float)
    y = (x % 3 == 0) + np.random.default_rng(2).normal(0, 0.3, 3000)
    return pa.table({"x": x, "c": values}), x, y, fold


@pytest.mark.parametrize("k", range(FOLDS))
def test_single_values_of_a_number_have_the_mean_over_other_folds(k):
    table, x, y, fold = number_rows()
    encoder = learn_frame_encoder(table, y[:, None], fold, None, {})
    codes, own = encoder.encode(table, fold)[:, 1], fold == k
    wanted = np.array(means_by_hand(x, y, (fold != k) & (fold != FOLDS)))
    np.testing.assert_allclose(codes[own], wanted[own])


def test_a_new_value_between_two_others_has_a_mean_between_theirs():
    table, x, y, fold = number_rows()
    encoder = learn_frame_encoder(table, y[:, None], fold, None, {}).new_rows
    means = dict(zip(x, means_by_hand(x, y, np.full(3000, True)), strict=True))
    code = encoder.encode(pa.table({"x": [3.25], "c": ["c1"]}))[0, 1]
    np.testing.assert_allclose(code, 0.75 * means[3.0] + 0.25 * means[4.0])


def test_a_number_that_acts_smoothly_stays_one_number():
    table, x, _, fold = number_rows()
    y = x**2 + np.random.default_rng(2).normal(0, 0.3, 3000)
    encoder = learn_frame_encoder(table, y[:, None], fold, None, {}).new_rows
    assert encoder.columns[0].becomes == "itself"


def test_single_values_of_pure_noise_have_no_means():
    table, _, _, fold = number_rows()
    y = np.random.default_rng(2).normal(size=3000)
    encoder = learn_frame_encoder(table, y[:, None], fold, None, {}).new_rows
    assert encoder.columns[0].becomes == "itself"


def test_means_at_single_values_are_named_in_the_table_of_columns():
    table, _, y, fold = number_rows()
    encoder = learn_frame_encoder(table, y[:, None], fold, None, {}).new_rows
    assert encoder.columns[0].becomes == "itself; means of the target at 40 values"
    assert encoder.by_target == ["x", "c"]


def test_means_at_single_values_survive_json():
    table, _, y, fold = number_rows()
    encoder = learn_frame_encoder(table, y[:, None], fold, None, {}).new_rows
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.plain())))
    np.testing.assert_array_equal(again.encode(table), encoder.encode(table))


def note_rows():
    """Notes of three tokens, one of which tells of the target, and their folds."""
    rng = np.random.default_rng(0)
    urgent = rng.random(600) < 0.2
    notes = [f"Order {k}: {'URGENT, please' if u else 'some time'}!" for k, u in enumerate(urgent)]
    return notes, urgent * 1.0 + rng.normal(0, 0.5, 600), rng.integers(FOLDS + 1, size=600)


def learn_notes(notes, y, fold, **declared):
    return learn_frame_encoder(pa.table({"note": notes}), y[:, None], fold, None, declared).new_rows


def test_tokens_that_tell_of_the_target_become_columns():
    encoder = learn_notes(*note_rows())
    assert encoder.columns[0].tokens == ("please", "some", "time", "urgent")
    assert encoder.columns[0].becomes == "number of tokens; whether it has each of 4 tokens"
    table = pa.table({"note": ["Urgent! urgent", None, "(time)"]})
    wanted = [[np.log(2), 0, 0, 0, 1], [0, 0, 0, 0, 0], [np.log(2), 0, 0, 1, 0]]
    np.testing.assert_allclose(encoder.encode(table), wanted)


def test_tokens_that_tell_nothing_are_left_out_and_named_as_unused():
    notes, _, fold = note_rows()
    encoder = learn_notes(notes, np.random.default_rng(5).normal(size=600), fold)
    assert encoder.columns[0].tokens == ()
    assert encoder.columns[0].unused == "no token of 10 rows or more tells of the target"
    assert encoder.encode(pa.table({"note": notes})).shape == (600, 1)


def test_no_token_is_chosen_by_the_target_of_a_validation_row():
    notes, y, fold = note_rows()
    other = np.where(fold == FOLDS, 100.0, y)
    assert learn_notes(notes, y, fold) == learn_notes(notes, other, fold)


def test_text_that_repeats_is_a_category_and_so_is_a_code_of_one_token():
    _, y, fold = note_rows()
    places = learn_notes([f"North Street {k % 7}" for k in range(600)], y, fold)
    codes = learn_notes([f"T{k}x" for k in range(600)], y, fold)
    assert [places.columns[0].holds, codes.columns[0].holds] == ["category", "category"]


def test_text_may_be_declared_a_category_and_a_category_text():
    notes, y, fold = note_rows()
    assert learn_notes(notes, y, fold, note="category").columns[0].holds == "category"
    places = [f"North Street {k % 7}" for k in range(600)]
    assert learn_notes(places, y, fold, note="text").columns[0].holds == "text"


def test_tokens_survive_json():
    notes, y, fold = note_rows()
    encoder = learn_notes(notes, y, fold)
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.plain())))
    assert again == encoder


def test_numbers_in_a_column_of_text_are_refused_with_both_types():
    encoder = learn_notes(*note_rows())
    with pytest.raises(ParameterError, match=r"'note' must hold text \(string in fit\)"):
        encoder.encode(pa.table({"note": [1.0, 2.0]}))


def test_no_code_depends_on_the_target_of_a_validation_row():
    values, y, fold = folded_rows()
    table, other = pa.table({"c": values}), np.where(fold == FOLDS, 100.0, y)
    one, two = (
        learn_columns(table, {"c": count_categories(table["c"], target[:, None], fold)})
        for target in (y, other)
    )
    np.testing.assert_array_equal(one.encode(table, fold), two.encode(table, fold))


def test_a_fifth_of_the_rows_are_validation_rows_and_numbers_share_their_fold():
    fold = assign_folds(np.arange(10_000), 0, 0.2)
    assert np.mean(fold == FOLDS) == pytest.approx(0.2, abs=0.02)
    np.testing.assert_allclose(np.bincount(fold) / 10_000, [0.16] * FOLDS + [0.2], atol=0.02)
    np.testing.assert_array_equal(
        assign_folds(np.repeat(np.arange(100), 3), 0, 0.2)[::3], fold[:100]
    )


def test_counts_of_parts_add_up_to_that_of_all():
    rng = np.random.default_rng(0)
    values, Y = rng.choice(["a", "b", None, "d"], 300), rng.normal(size=(300, 2))
    whole = count(pa.chunked_array([pa.array(values)]), Y)
    parts = [{"c": count(pa.chunked_array([pa.array(values[k::3])]), Y[k::3])} for k in range(3)]
    total = add_counts(parts)["c"]
    assert total.values == whole.values == ("a", "b", "d", None)
    np.testing.assert_allclose(total.sums, whole.sums)


def test_columns_survive_json():
    table = pa.table(
        {"n": [1.0, None], "t": [datetime(2020, 1, 1), datetime(2023, 5, 5, 5)], "c": ["a", "b"]}
    )
    counted = {"c": count(table["c"], np.ones((2, 1)))}
    columns = learn_columns(table, counted).new_rows
    assert TableEncoder.from_plain(json.loads(json.dumps(columns.plain()))) == columns


def test_a_column_of_lists_is_refused_by_name():
    with pytest.raises(ParameterError, match="'c' is list"):
        encoded([[1], [2]])


def test_weights_count_in_counts():
    counted = count(pa.chunked_array([["a", "b"]]), np.array([[1.0], [5.0]]), np.array([2.0, 3.0]))
    np.testing.assert_array_equal(counted.sums.sum(1), [[2, 2], [3, 15]])


def test_time_stamps_may_be_finer_than_microseconds():
    X = encoded([1, 86_400_000_000_001], kind=pa.timestamp("ns"))
    np.testing.assert_array_equal(X[:, 0], [0, 86_400])


def test_categories_may_be_numbers():
    table = pa.table({"c": pa.array([7, 7, 8] * 10).dictionary_encode()})
    counted = {"c": count(table["c"], np.ones((30, 1)))}
    np.testing.assert_array_equal(
        learn_columns(table, counted, {"c": "category"}).new_rows.encode(table).sum(0), [20, 10]
    )


def test_the_index_of_pandas_is_no_feature():
    columns, y = mixed_columns(300)
    X = pd.DataFrame(columns).sample(frac=1.0, random_state=0)
    model = ParKRegressor(kernel=Gaussian(), penalty=1e-6, random_state=0).fit(X, y[X.index])
    assert list(model.feature_names_in_) == ["color", "size"]


FRAMES = [
    pytest.param(pd.DataFrame, id="pandas"),
    pytest.param(pl.DataFrame, id="polars"),
    pytest.param(pa.table, id="arrow"),
]


def mixed_columns(n):
    rng = np.random.default_rng(0)
    color, size = rng.choice(["red", "blue"], n), rng.normal(size=n)
    y = np.where(color == "red", np.sin(3 * size), -size) + 0.01 * rng.normal(size=n)
    some = [None if k % 10 == 0 else float(v) for k, v in enumerate(size)]
    return {"color": color.tolist(), "size": some}, y


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_with_categories_and_missing_values_fits_without_preparation(frame):
    columns, y = mixed_columns(1000)
    X = frame(columns)
    model = ParKRegressor(
        kernel=Gaussian(), metric="standard", penalty=1e-6, blend=1, coarse=0, random_state=0
    ).fit(X, y)
    whole = np.array([v is not None for v in columns["size"]])
    assert np.mean((model.predict(X) - y)[whole] ** 2) < 0.01 * y.var()
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["color", "size"]
    assert model.feature_importances_.shape == (2,)


def test_a_classifier_takes_a_frame_with_categories():
    columns, y = mixed_columns(500)
    X = pd.DataFrame(columns)
    labels = np.where(y > 0, "up", "down")
    model = ParKClassifier(
        kernel=Gaussian(), metric="standard", penalty=1e-6, blend=1, coarse=0, random_state=0
    ).fit(X, labels)
    assert np.mean(model.predict(X) == labels) > 0.9


def test_columns_may_come_in_another_order_and_a_missing_one_is_named():
    columns, y = mixed_columns(400)
    model = ParKRegressor(
        kernel=Gaussian(), metric="standard", penalty=1e-6, blend=1, coarse=0, random_state=0
    ).fit(pd.DataFrame(columns), y)
    there = model.predict(pd.DataFrame(columns))
    other = pd.DataFrame({"size": columns["size"], "color": columns["color"], "more": 1})
    np.testing.assert_array_equal(model.predict(other), there)
    with pytest.raises(ParameterError, match="size"):
        model.predict(pd.DataFrame({"color": columns["color"]}))
