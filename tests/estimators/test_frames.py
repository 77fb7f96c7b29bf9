"""Frames and arrays as people have them: each test is the call of a user and its message."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import real_data
from parkrr import Gaussian, ParKClassifier, ParKRegressor, load, scan_parquet
from parkrr.data import (
    VALIDATION_SHARE,
    as_table,
    assign_folds,
    learn_frame_encoder,
)
from parkrr.errors import ParameterError

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = X[:, 0] + X[:, 1] ** 2
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
QUICK = {"metric": "standard", "n_cells": 1, "blend": 1, "coarse": 0, "random_state": 0}


def regressor(**more):
    return ParKRegressor(Gaussian(), 1e-3, **QUICK, **more)


def with_missing(frame):
    """The frame without its second number in every fifth row."""
    gaps = frame.copy()
    gaps.loc[::5, "b"] = np.nan
    return gaps


def kinds_of(model):
    return {row["column"]: row["kind"] for row in model.columns_.describe()}


# Missing values, infinity, order and names.


def test_a_frame_with_a_missing_value_in_one_fold_is_cross_validated():
    frame = FRAME.copy()
    frame.loc[3, "b"] = np.nan
    scores = cross_val_score(regressor(), frame, Y)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores, cross_val_score(regressor(), frame.to_numpy(), Y))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(lambda f: f, id="frame"),
        pytest.param(lambda f: f.to_numpy(), id="array"),
        pytest.param(lambda f: f.to_numpy().tolist(), id="lists"),
        pytest.param(lambda f: f.astype(object).where(f.notna(), None).to_numpy(), id="None"),
        pytest.param(lambda f: f.astype(object).where(f.notna(), pd.NA).to_numpy(), id="NA"),
        pytest.param(lambda f: f.convert_dtypes(), id="nullable"),
        pytest.param(lambda f: f.convert_dtypes(dtype_backend="pyarrow"), id="pyarrow"),
        pytest.param(lambda f: f.astype(object).where(f.notna(), None), id="objects"),
        pytest.param(pl.from_pandas, id="polars"),
        pytest.param(pa.Table.from_pandas, id="arrow"),
    ],
)
def test_missing_values_mean_the_same_in_whatever_holds_them(rows):
    gaps = with_missing(FRAME)
    expected = regressor().fit(gaps, Y).predict(gaps)
    model = regressor().fit(rows(gaps), Y)
    np.testing.assert_allclose(model.predict(rows(gaps)), expected, rtol=1e-12)
    assert model.n_features_in_ == 3


@pytest.mark.parametrize("rows", [FRAME, X], ids=["frame", "array"])
def test_a_value_that_is_only_missing_later_is_filled_by_the_median(rows):
    model = regressor().fit(rows, Y)
    median = FRAME.assign(b=FRAME["b"].median())
    gaps = FRAME.assign(b=np.nan)
    given = gaps if rows is FRAME else gaps.to_numpy()
    filled = median if rows is FRAME else median.to_numpy()
    np.testing.assert_array_equal(model.predict(given), model.predict(filled))


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "numbers and text"])
@pytest.mark.parametrize("when", ["fit", "predict"])
def test_infinity_is_refused_whatever_the_other_columns_hold(text, when):
    frame = FRAME.assign(sky=np.where(X[:, 0] > 0, "sun", "rain")) if text else FRAME
    model = regressor() if when == "fit" else regressor().fit(frame, Y)
    wrong = frame.copy()
    wrong.loc[2, "b"] = np.inf
    call = {"fit": lambda: model.fit(wrong, Y), "predict": lambda: model.predict(wrong)}[when]
    with pytest.raises(ParameterError, match=r"column 'b' of X .* contains infinity in 1 rows"):
        call()


def test_infinity_in_an_array_is_refused():
    wrong = X.copy()
    wrong[2, 1] = -np.inf
    with pytest.raises(ValueError, match="contains infinity"):
        regressor().fit(wrong, Y)
    with pytest.raises(ValueError, match="contains infinity"):
        regressor().fit(X, Y).predict(wrong)


def test_infinity_in_a_file_is_refused(tmp_path):
    wrong = FRAME.assign(y=Y)
    wrong.loc[2, "b"] = np.inf
    pq.write_table(pa.Table.from_pandas(wrong), tmp_path / "rows.parquet")
    with pytest.raises(ParameterError, match=r"column 'b' of X .* contains infinity"):
        regressor(progress=False).fit(scan_parquet(tmp_path / "rows.parquet", target="y"))


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "numbers and text"])
def test_columns_go_by_name_and_extra_ones_are_ignored(text):
    frame = FRAME.assign(sky=np.where(X[:, 0] > 0, "sun", "rain")) if text else FRAME
    model = regressor().fit(frame, Y)
    shuffled = frame[frame.columns[::-1]].assign(more="of it")
    np.testing.assert_array_equal(model.predict(shuffled), model.predict(frame))


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "numbers and text"])
def test_a_column_that_is_not_there_is_named(text):
    frame = FRAME.assign(sky=np.where(X[:, 0] > 0, "sun", "rain")) if text else FRAME
    model = regressor().fit(frame, Y)
    with pytest.raises(ParameterError, match=r"but \['b'\] are missing among \['a', 'c'"):
        model.predict(frame.drop(columns="b"))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_a_column_of_another_spelling_is_suggested(kind):
    model = regressor().fit(FRAME, Y)
    with pytest.raises(ParameterError, match=r"\['b'\] are missing .* did you mean 'B'\?"):
        model.predict(kind(FRAME.rename(columns={"b": "B"})))


def test_an_array_for_a_model_of_a_frame_goes_by_position_with_a_warning():
    model = regressor().fit(FRAME, Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        predicted = model.predict(X)
    np.testing.assert_array_equal(predicted, model.predict(FRAME))


def test_an_array_for_a_model_of_files_goes_by_position_with_a_warning(tmp_path):
    pq.write_table(pa.Table.from_pandas(FRAME.assign(y=Y)), tmp_path / "rows.parquet")
    model = regressor(progress=False).fit(scan_parquet(tmp_path / "rows.parquet", target="y"))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        predicted = model.predict(X)
    np.testing.assert_array_equal(predicted, model.predict(FRAME))


def test_a_frame_for_a_model_of_an_array_goes_by_position_with_a_warning():
    model = regressor().fit(X, Y)
    with pytest.warns(UserWarning, match="X has feature names, but ParKRegressor was fitted"):
        predicted = model.predict(FRAME)
    np.testing.assert_array_equal(predicted, model.predict(X))


def test_labels_that_are_no_strings_are_no_names():
    model = regressor().fit(pd.DataFrame(X), Y)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict(X), model.predict(pd.DataFrame(X)))


def test_an_array_without_missing_values_is_not_copied():
    model = regressor().fit(X, Y)
    rows = model._rows(X).numpy()
    assert np.shares_memory(rows, X)


@pytest.mark.parametrize("estimator", [ParKRegressor, ParKClassifier])
def test_scikit_learn_knows_that_values_may_be_missing(estimator):
    assert get_tags(estimator()).input_tags.allow_nan


def test_a_saved_model_of_an_array_fills_what_is_missing(tmp_path):
    model = regressor().fit(X, Y)
    model.save(tmp_path / "model.park")
    gaps = with_missing(FRAME).to_numpy()
    np.testing.assert_array_equal(load(tmp_path / "model.park").predict(gaps), model.predict(gaps))


def test_validation_rows_of_a_frame_may_be_in_another_order():
    model = regressor().fit(FRAME, Y, X_val=FRAME[["c", "b", "a"]][:20], y_val=Y[:20])
    again = regressor().fit(FRAME, Y, X_val=FRAME[:20], y_val=Y[:20])
    np.testing.assert_array_equal(model.predict(FRAME), again.predict(FRAME))


def test_files_for_a_model_of_an_array_fill_what_is_missing(tmp_path):
    gaps = with_missing(FRAME)
    pq.write_table(pa.Table.from_pandas(gaps), tmp_path / "rows.parquet")
    model = regressor(progress=False).fit(X, Y)
    model.predict_to(scan_parquet(tmp_path / "rows.parquet"), tmp_path / "out")
    written = pq.read_table(tmp_path / "out")["prediction"].to_numpy()
    np.testing.assert_allclose(written, model.predict(gaps.to_numpy()), rtol=1e-12)


# Text that is something else, and kinds that are declared.

HOURS = pd.date_range("2024-01-01", periods=N, freq="7h")
TEXTS = {
    "price": [f"{1000 * v:,.2f}" for v in RNG.uniform(0, 90, N)],
    "big": [f"{v:.3e}" for v in RNG.uniform(0, 90, N)],
    "day": HOURS.strftime("%Y-%m-%d").tolist(),
    "when": HOURS.strftime("%Y-%m-%dT%H:%M:%S").tolist(),
    "zoned": HOURS.strftime("%Y-%m-%d %H:%M:%S+02:00").tolist(),
    "clock": HOURS.strftime("%H:%M").tolist(),
    "open": RNG.choice(["yes", "no"], N).tolist(),
    "flag": RNG.choice(["TRUE", "False"], N).tolist(),
    "zip": [f"{k % 5:05d}" for k in range(N)],
    "sky": RNG.choice(["sun", "rain"], N).tolist(),
}
KINDS = {
    "price": "number",
    "big": "number",
    "day": "datetime",
    "when": "datetime",
    "zoned": "datetime",
    "clock": "time",
    "open": "boolean",
    "flag": "boolean",
    "zip": "category",
    "sky": "category",
}


def test_text_that_is_numbers_dates_times_or_booleans_is_recognised():
    assert kinds_of(regressor().fit(pd.DataFrame(TEXTS), Y)) == KINDS


def test_text_in_files_is_recognised_as_in_a_frame(tmp_path):
    frame = pd.DataFrame(TEXTS)
    pq.write_table(pa.Table.from_pandas(frame.assign(y=Y)), tmp_path / "rows.parquet")
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    model = regressor(progress=False).fit(rows)
    assert kinds_of(model) == KINDS
    expected = regressor().fit(frame, Y).predict(frame)
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("price", [float(v.replace(",", "")) for v in TEXTS["price"]]),
        ("when", HOURS),
        ("zoned", HOURS.tz_localize("Etc/GMT-2")),
        ("day", HOURS.normalize()),
        ("clock", pd.Series(HOURS).dt.floor("min").dt.time),
        ("open", [v == "yes" for v in TEXTS["open"]]),
    ],
)
def test_text_becomes_what_the_values_it_spells_become(name, plain):
    text, typed = pd.DataFrame({name: TEXTS[name]}), pd.DataFrame({name: plain})
    model = regressor().fit(text, Y)
    np.testing.assert_allclose(model.predict(text), regressor().fit(typed, Y).predict(typed))
    np.testing.assert_allclose(model.predict(typed), model.predict(text))


@pytest.mark.parametrize(
    ("pattern", "first"),
    [
        ("%Y/%m/%d %H:%M:%S", "year"),
        ("%d/%m/%Y %H:%M:%S", "day"),
        ("%d.%m.%Y %H:%M:%S", "day"),
        ("%m/%d/%Y %H:%M:%S", "month"),
        ("%m-%d-%Y %I:%M:%S %p", "month"),
    ],
)
def test_dates_are_read_in_the_order_of_year_month_and_day_that_all_rows_have(
    pattern, first, tmp_path
):
    text, typed = (pd.DataFrame({"t": each}) for each in (HOURS.strftime(pattern), HOURS))
    model = regressor().fit(text, Y)
    assert model.columns_.columns[0].first == first
    np.testing.assert_allclose(model.predict(text), regressor().fit(typed, Y).predict(typed))
    model.save(tmp_path / "m.park")
    # By itself, the first of March could be the third of January.
    early = pd.DataFrame({"t": [pd.Timestamp("2024-03-01").strftime(pattern)]})
    expected = model.predict(pd.DataFrame({"t": [pd.Timestamp("2024-03-01")]}))
    np.testing.assert_array_equal(load(tmp_path / "m.park").predict(early), expected)


def test_dates_whose_day_could_be_their_month_are_categories():
    days = [f"0{k % 3 + 1}/0{k % 4 + 1}/2024" for k in range(N)]
    assert kinds_of(regressor().fit(pd.DataFrame({"t": days}), Y)) == {"t": "category"}
    declared = regressor(columns={"t": "datetime"})
    with pytest.raises(ParameterError, match="where one value tells day from month"):
        declared.fit(pd.DataFrame({"t": days}), Y)


def test_a_date_that_no_calendar_has_is_missing():
    days = ["31/02/2024", *HOURS.strftime("%d/%m/%Y")[1:]]
    model = regressor().fit(pd.DataFrame({"t": days, "b": X[:, 1]}), Y)
    assert model.columns_.columns[0].missing == pytest.approx(1 / N)


def test_up_to_a_twentieth_of_text_that_is_no_number_is_missing():
    prices = ["about 5", "7", *TEXTS["price"][2:]]
    model = regressor().fit(pd.DataFrame({"price": prices, "b": X[:, 1]}), Y)
    assert kinds_of(model)["price"] == "number"
    [row, _] = model.columns_.describe()
    assert row == {
        "column": "price",
        "type": "string",
        "kind": "number",
        "becomes": "itself; whether it is missing",
        "missing": "1.7%",
        "numbers": "2",
    }


def test_text_with_more_names_than_that_is_categories():
    prices = ["a", "b", "c", "d", *TEXTS["price"][4:]]
    with pytest.warns(UserWarning, match="'price' "):
        model = regressor().fit(pd.DataFrame({"price": prices, "b": X[:, 1]}), Y)
    assert kinds_of(model)["price"] == "category"


def test_one_word_among_numbers_is_a_missing_value():
    prices = [v if k % 3 else "unknown" for k, v in enumerate(TEXTS["price"])]
    missing = [v if k % 3 else None for k, v in enumerate(TEXTS["price"])]
    word, none = (regressor().fit(pd.DataFrame({"price": each}), Y) for each in (prices, missing))
    assert kinds_of(word) == {"price": "number"}
    np.testing.assert_array_equal(
        word.predict(pd.DataFrame({"price": prices})),
        none.predict(pd.DataFrame({"price": missing})),
    )


def test_two_words_among_numbers_are_categories():
    prices = [v if k % 3 else f"word {k % 2}" for k, v in enumerate(TEXTS["price"])]
    model = regressor().fit(pd.DataFrame({"price": prices}), Y)
    assert kinds_of(model) == {"price": "category"}


def test_spellings_of_a_missing_value_do_not_count():
    prices = [v if k % 2 else "n/a" for k, v in enumerate(TEXTS["price"])]
    model = regressor().fit(pd.DataFrame({"price": prices}), Y)
    assert kinds_of(model) == {"price": "number"}


def test_yes_beside_none_is_a_category():
    frame = pd.DataFrame({"telephone": ["yes", "none", "none"] * (N // 3)})
    assert kinds_of(regressor().fit(frame, Y)) == {"telephone": "category"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([None] * N, "missing in every row"),
        ([7] * N, "constant"),
        (["same"] * N, "constant"),
        ([f"note {k}" for k in range(N)], "no value is in 10 rows or more"),
    ],
)
def test_a_column_that_tells_nothing_is_named_in_one_warning(values, why):
    frame = FRAME.assign(note=values)
    with pytest.warns(UserWarning, match=rf"tell nothing: 'note' \({why}\); leave them") as caught:
        model = regressor().fit(frame, Y)
    assert len(caught) == 1
    assert model.columns_.describe()[3]["becomes"] == f"no information: {why}"


def test_kinds_that_are_declared_are_kept():
    frame = pd.DataFrame({**TEXTS, "k": np.arange(N) % 4, "note": [f"{k}x" for k in range(N)]})
    declared = {"k": "category", "note": "ignore", "zip": "number", "open": "category"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = regressor(columns=declared).fit(frame, Y)
    expected = {"k": "category", "note": "ignored", "zip": "number", "open": "category"}
    assert kinds_of(model) == KINDS | expected
    predicted = model.predict(frame.drop(columns="note").assign(k=(np.arange(N) % 4) * 1.0))
    np.testing.assert_array_equal(predicted, model.predict(frame))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_column_that_is_ignored_may_hold_anything(frame):
    plain = {"a": X[:, 0], "b": X[:, 1]}
    rows, more = frame({**plain, "tags": [["x"], []] * (N // 2)}), [{"k": 1}] * N
    model = regressor(columns={"tags": "ignore"}).fit(rows, Y)
    expected = regressor().fit(frame(plain), Y).predict(frame(plain))
    np.testing.assert_array_equal(model.predict(frame({"more": more, **plain})), expected)


def test_a_column_that_is_ignored_may_hold_objects_of_any_class():
    rows = FRAME.assign(own=[object() for _ in range(N)])
    model = regressor(columns={"own": "ignore"}).fit(rows, Y)
    np.testing.assert_array_equal(model.predict(rows), model.predict(FRAME))


def test_kinds_of_files_are_declared_as_those_of_a_frame(tmp_path):
    frame = FRAME.assign(k=np.arange(N) % 4)
    pq.write_table(pa.Table.from_pandas(frame.assign(y=Y)), tmp_path / "rows.parquet")
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    declared = {"k": "category", "c": "ignore"}
    model = regressor(columns=declared, progress=False).fit(rows)
    expected = regressor(columns=declared).fit(frame, Y)
    assert model.columns_ == expected.columns_
    np.testing.assert_allclose(model.predict(frame), expected.predict(frame), rtol=1e-9)


def test_columns_of_an_array_are_declared_by_number():
    codes = np.column_stack([X, np.arange(N) % 4])
    model = regressor(columns={3: "category", 0: "ignore"}).fit(codes, Y)
    assert [row["kind"] for row in model.columns_.describe()] == [
        "ignored",
        "number",
        "number",
        "category",
    ]
    assert model.predict(codes).shape == (N,)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("zip", "columns must be a dict"),
        ({"sky": "words"}, r"columns must declare one of .* got 'words' for 'sky'"),
        ({"n": "text"}, "'n' is int64, not 'text'; convert it first"),
        ({"sly": "category"}, r"but \['sly'\] are not among"),
        ({"sky": "number"}, "'sky' holds text such as '(rain|sun)', not 'number'; convert it"),
        ({"n": "datetime"}, "'n' is int64, not 'datetime'; convert it first"),
    ],
)
def test_a_kind_that_cannot_be_is_refused(columns, message):
    frame = pd.DataFrame({**TEXTS, "n": np.arange(N)})
    with pytest.raises(ParameterError, match=message):
        regressor(columns=columns).fit(frame, Y)


def test_what_columns_became_prints_as_a_table():
    frame = pd.DataFrame({"price": TEXTS["price"], "b": X[:, 1], "sky": TEXTS["sky"]})
    frame.loc[::4, "b"] = np.nan
    model = regressor(columns={"sky": "ignore"}).fit(frame, Y)
    assert str(model.columns_).splitlines() == [
        "column  type     kind     becomes                        missing  numbers",
        "price   string   number   itself                                  1",
        "b       float64  number   itself; whether it is missing  25.0%    2",
        "sky     string   ignored  nothing                                 0",
    ]


def test_declared_kinds_and_columns_are_saved(tmp_path):
    frame = pd.DataFrame(TEXTS)
    model = regressor(columns={"zip": "number", "sky": "ignore"}).fit(frame, Y)
    model.save(tmp_path / "model.park")
    again = load(tmp_path / "model.park")
    assert again.columns_ == model.columns_
    assert again.columns == model.columns == again.chosen_.params["columns"]
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


# Another type than in fit.


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "n",
            "red",
            r"'n' must hold numbers \(int64 in fit\), but holds text \(.*\) here, such as",
        ),
        ("n", HOURS, r"'n' must hold numbers \(int64 in fit\), but holds dates \(timestamp"),
        ("when", 5, r"'when' must hold dates \(timestamp.* in fit\), but holds numbers \(int64\)"),
        ("when", "soon", r"'when' must hold dates .* holds text .* such as 'soon'; convert it"),
        ("zip", 7, r"'zip' must hold categories \(string in fit\), .* numbers .* read it as text"),
        ("spent", 5, r"'spent' must hold durations .* but holds numbers"),
    ],
)
def test_another_type_is_refused_with_that_of_the_fit_and_a_way_out(column, values, message):
    frame = typed_frame()
    model = regressor().fit(frame, Y)
    with pytest.raises(ParameterError, match=message):
        model.predict(frame.assign(**{column: values}))


def typed_frame():
    return pd.DataFrame(
        {
            "n": np.arange(N),
            "when": HOURS,
            "zip": TEXTS["zip"],
            "ok": X[:, 0] > 0,
            "spent": pd.to_timedelta(np.arange(N), unit="min"),
        }
    )


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("n", lambda v: v.astype("category")),
        ("n", lambda v: v.astype("Int64")),
        ("n", lambda v: v.astype("int64[pyarrow]")),
        ("n", lambda v: v.astype(str)),
        ("n", lambda v: v.astype(object)),
        ("n", lambda v: pd.Series(pd.arrays.SparseArray(v))),
        ("ok", lambda v: v.astype("boolean")),
        ("ok", lambda v: v.astype(object)),
        ("ok", lambda v: v.astype(int)),
        ("ok", lambda v: v.map({True: "yes", False: "no"})),
        ("when", lambda v: v.astype(str)),
        ("when", lambda v: v.astype("category")),
        ("when", lambda v: v.astype("timestamp[ms][pyarrow]")),
        ("zip", lambda v: v.astype("category")),
        ("zip", lambda v: v.astype("string")),
        ("zip", lambda v: v.astype("string[pyarrow]")),
        ("zip", lambda v: v.astype(object)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*Allocating.*")
def test_the_same_values_in_another_type_give_the_same_predictions(column, change):
    frame = typed_frame()
    model = regressor().fit(frame, Y)
    other = frame.assign(**{column: change(frame[column])})
    np.testing.assert_array_equal(model.predict(other), model.predict(frame))


@pytest.mark.parametrize("column", ["n", "when", "zip", "ok", "spent"])
def test_a_column_may_be_missing_in_every_new_row(column):
    frame = typed_frame()
    model = regressor().fit(frame, Y)
    assert np.isfinite(model.predict(frame.assign(**{column: None}))).all()


def test_categories_of_numbers_are_numbers_unless_declared():
    frame = FRAME.assign(k=pd.Categorical(np.arange(N) % 4))
    assert kinds_of(regressor().fit(frame, Y))["k"] == "number"
    assert kinds_of(regressor(columns={"k": "category"}).fit(frame, Y))["k"] == "category"


def test_objects_of_several_types_are_text():
    frame = FRAME.assign(k=pd.Series([1, "two", None, 2.5] * (N // 4), dtype=object))
    model = regressor().fit(frame, Y)
    assert kinds_of(model)["k"] == "category"
    assert np.isfinite(model.predict(frame)).all()


def test_partition_keys_of_files_may_come_from_pandas(tmp_path):
    table = pa.Table.from_pandas(FRAME.assign(y=Y, year=2020 + np.arange(N) % 3))
    hive = ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive")
    ds.write_dataset(table, tmp_path / "rows", format="parquet", partitioning=hive)
    model = regressor(progress=False).fit(scan_parquet(tmp_path / "rows", target="y"))
    frame = pd.read_parquet(tmp_path / "rows")
    assert str(frame["year"].dtype) == "category"
    predicted = model.predict(frame.drop(columns="y"))
    np.testing.assert_array_equal(
        predicted, model.predict(frame.assign(year=frame.year.astype(int)))
    )


@pytest.mark.parametrize("guarantee", ["split", "jackknife+"])
def test_a_guarantee_takes_a_frame_and_its_target_as_they_are(guarantee):
    frame = with_missing(FRAME).assign(sky=TEXTS["sky"], note=[[k] for k in range(N)])
    frame["spent"] = pd.to_timedelta(np.arange(N), unit="min")
    model = regressor(guarantee=guarantee, columns={"note": "ignore"})
    lower, upper = model.fit(frame, pd.Series(Y)).predict_interval(frame, 0.8)
    assert (lower <= upper).all()


# The page about columns.


def test_the_table_in_the_docs_is_the_one_that_prints():
    if real_data.folder() is None:
        pytest.skip("set PARKRR_DATA to the folder of the benchmark datasets")
    frame = pd.read_parquet(real_data.folder() / "tables" / "adult.parquet")
    table, y = as_table(frame.drop(columns="target")), pd.factorize(frame["target"])[0]
    fold = assign_folds(np.arange(len(table)), 0, VALIDATION_SHARE)
    columns = learn_frame_encoder(table, y[:, None] * 1.0, fold, None, {}).new_rows
    page = (Path(__file__).parents[2] / "docs" / "columns.md").read_text()
    assert f"```text\n{columns}\n```" in page
