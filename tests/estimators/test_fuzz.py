"""Anything may be passed, typed or opened: predictions are finite, or an error gives the reason.

Damaged model files are made by benchmarks/fuzz.py, which has run with 10^5 of them.
"""

import re
import tempfile
import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_properties import SETTINGS, tables
from typer.testing import CliRunner

import fuzz
from oddities import (
    ASKED,
    BASIC,
    FEATURES,
    OPTIONS,
    READING,
    TARGETS,
    WEIGHTS,
    arguments_of,
    damaged,
    place,
    rows,
    write_files,
)
from parkrr import ParKClassifier, ParKRegressor, load, scan_parquet
from parkrr.cli import exit_codes as exits
from parkrr.cli.app import app
from parkrr.errors import ParKError
from plain import PLAIN

FEW = settings(
    max_examples=300,
    # Milliseconds a case: none may hang. One of 48 took 13,717 beside four busy processes.
    deadline=60_000,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
NAMED = re.compile(r"\b(X|y|sample_weight|columns?|features?|labels?|estimator|predictions)\b")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files to read, and a model of each kind."""
    folder = tmp_path_factory.mktemp("files")
    names = write_files(folder)
    (folder / "file.park").write_bytes(b"a file")
    for target in ("y", "label"):
        arguments = [
            "fit",
            folder / "good.parquet",
            "--target",
            target,
            "-o",
            folder / f"{target}.park",
        ]
        assert run(*arguments, "--features", "a,b,word", "-q", "--no-report", *BASIC_ARGUMENTS) == 0
    return folder, names


def run(*arguments):
    """The exit code of a command."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CliRunner().invoke(app, [str(text) for text in arguments]).exit_code


BASIC_ARGUMENTS = [text for pair in BASIC.items() for text in pair]
EXPECTED = set(exits.MEANINGS) - {exits.UNEXPECTED}


# Damaged model files.


@pytest.mark.parametrize("first", range(0, 2000, 200))
def test_a_damaged_model_file_is_refused_by_name_or_predicts(first):
    counts, failures = fuzz.batch(range(first, first + 200), seed=1)
    assert failures == []
    assert sum(counts.values()) == 200


# Arrays and frames.


def predictions(model, X):
    """All that a model predicts."""
    return [model.predict(X), model.novelty(X), *more_predictions(model, X)]


def more_predictions(model, X):
    if hasattr(model, "classes_"):
        return [model.predict_proba(X)]
    return model.predict(X, return_std=True)


def outcome(work):
    """What came out, or the message of a TypeError or ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of scikit-learn about what it is given
        warnings.filterwarnings("ignore", module="sklearn|numpy")  # it adds numbers up to look
        try:
            return work(), "X"
        except (TypeError, ValueError) as error:
            return [], str(error)


def is_sound(found):
    """Whether predictions are finite numbers or labels, and a message names what it is about."""
    values, message = found
    finite = all(a.dtype.kind not in "fc" or np.isfinite(a).all() for a in map(np.asarray, values))
    return finite and NAMED.search(message) is not None


ESTIMATORS = st.sampled_from([ParKRegressor, ParKClassifier])


@FEW
@given(
    ESTIMATORS,
    st.sampled_from(sorted(FEATURES)),
    st.sampled_from(sorted(TARGETS)),
    st.sampled_from(sorted(WEIGHTS)),
    st.sampled_from(["X", "y", "w", "all"]),
)
def test_a_fit_to_anything_is_finite_or_refused_by_name(kind, x, y, w, odd):
    x = x if odd in ("X", "all") else "as they are"
    y = y if odd in ("y", "all") else {ParKRegressor: "as they are"}.get(kind, "two labels")
    w = w if odd in ("w", "all") else "none"
    X = rows()
    given_X, given_y, given_w = FEATURES[x](X), TARGETS[y](X[:, 0]), WEIGHTS[w](len(X))
    model = kind(**PLAIN, random_state=0)
    found = outcome(lambda: predictions(model.fit(given_X, given_y, given_w), given_X))
    assert is_sound(found), found


@pytest.fixture(scope="module")
def fitted():
    """A model of an array, one of labels, and one of a frame."""
    X = rows()
    frame = FEATURES["a frame with categories"](X)
    return [
        ParKRegressor(**PLAIN, random_state=0).fit(X, X[:, 0]),
        ParKClassifier(**PLAIN, random_state=0).fit(X, X[:, 0] > 0),
        ParKRegressor(**PLAIN, random_state=0).fit(frame, X[:, 0]),
    ]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["array", "labels", "frame"])
@pytest.mark.parametrize("x", sorted(FEATURES))
def test_predictions_of_anything_are_finite_or_refused_by_name(fitted, which, x):
    found = outcome(lambda: predictions(fitted[which], FEATURES[x](rows(seed=1))))
    assert is_sound(found), found


# What was found, one by one.


@pytest.mark.parametrize(
    ("X", "y", "w", "message"),
    [
        ("as they are", "some None", "none", "y must have a value in every row"),
        ("as they are", "strings", "none", "y must be numbers, but row 0 is"),
        ("as they are", "sparse", "none", "y must be an array of one value a row, got"),
        ("as they are", "huge", "none", "y must lie between -1e\\+150 and 1e\\+150"),
        ("a frame with categories", "nothing", "none", "y must be given with X"),
        ("a frame with categories", "one too few", "none", "y must have one entry for each of"),
        ("a frame with categories", "complex", "none", "y must be real numbers"),
        ("as they are", "as they are", "complex", "sample_weight: numbers must be real"),
        ("as they are", "as they are", "a string", "sample_weight: could not convert string"),
        ("a frame of complex numbers", "as they are", "none", "a frame that Arrow can read"),
        ("an Arrow table with two of a name", "as they are", "none", "'a' twice"),
        ("a column", "as they are", "none", "X: Expected a 2-dimensional container"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_the_reason(X, y, w, message):
    given_X, given_y = FEATURES[X](rows()), TARGETS[y](rows()[:, 0])
    with pytest.raises(ValueError, match=message):
        ParKRegressor(**PLAIN).fit(given_X, given_y, WEIGHTS[w](len(rows())))


def test_labels_that_cannot_be_compared_are_refused_by_name():
    with pytest.raises(ValueError, match="y must be labels of one type, got 'a'"):
        ParKClassifier(**PLAIN).fit(rows(), TARGETS["strings and numbers"](rows()[:, 0]))


def test_a_seed_below_zero_is_refused_by_name():
    with pytest.raises(ValueError, match="random_state must be >= 0, got -1"):
        ParKRegressor(**PLAIN, random_state=-1).fit(rows(), rows()[:, 0])


def test_only_ratios_of_weights_matter_for_a_frame_with_categories():
    w = np.random.default_rng(0).uniform(1, 2, 250)
    frame = {"a": np.arange(250.0), "b": np.array([f"category {k % 25}" for k in range(250)])}
    frame, y = pa.table(frame), np.sin(np.arange(250))
    model = ParKRegressor(**PLAIN, random_state=0)
    expected = model.fit(frame, y, w).predict(frame)
    np.testing.assert_allclose(model.fit(frame, y, 1e300 * w).predict(frame), expected, 1e-6, 1e-6)


def test_rows_at_the_ends_of_what_floats_hold_are_fitted():
    X = 1.7e308 * np.sign(rows())
    predictions, _ = outcome(lambda: [ParKRegressor(**PLAIN).fit(X, rows()[:, 0]).predict(X)])
    assert np.isfinite(predictions[0]).all()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"target": ["y", "y"]}, "must name a column once, got 'y' twice"),
        ({"target": "y", "features": ["a", "a"]}, "must name a column once, got 'a' twice"),
        ({"target": "y", "weight": "y"}, "must name a column once, got 'y' twice"),
        ({"target": "y", "weight": ""}, "must be columns, but '' is not one of"),
    ],
    ids=str,
)
def test_columns_that_are_named_twice_are_refused_by_name(files, names, message):
    with pytest.raises(ValueError, match=message):
        scan_parquet(files[0] / "good.parquet", **names)


def test_labels_that_no_model_file_holds_are_refused_before_a_fit(files):
    dates = scan_parquet(files[0] / "good.parquet", target="day", features=["a"])
    with pytest.raises(ValueError, match="target must be strings, numbers or booleans"):
        ParKClassifier(**PLAIN).fit(dates)


# What is saved.


def round_trip(model, X, y):
    """Predictions before and after a file, or nothing of a fit that was refused."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            before = model.fit(X, y).predict(X)
        except ParKError:
            return [], []
        model.save(f"{folder}/m.park")
        return before, load(f"{folder}/m.park").predict(X)


@settings(FEW, max_examples=60)
@given(tables(), SETTINGS)
def test_whatever_regressor_can_be_fitted_predicts_the_same_from_a_file(table, parameters):
    before, after = round_trip(ParKRegressor(**PLAIN | parameters, random_state=0), *table)
    np.testing.assert_array_equal(after, before)


@settings(FEW, max_examples=60)
@given(tables(), SETTINGS, st.integers(1, 5))
def test_whatever_classifier_can_be_fitted_predicts_the_same_from_a_file(table, parameters, k):
    X, y = table
    model = ParKClassifier(**PLAIN | parameters, random_state=0)
    before, after = round_trip(model, X, np.arange(len(y)) % k)
    np.testing.assert_array_equal(after, before)


# The command line.


@pytest.mark.parametrize("seed", range(60))
def test_a_fit_of_odd_files_and_options_ends_with_a_code_that_gives_the_reason(
    files, tmp_path, seed
):
    folder, names = files
    rng = np.random.default_rng(seed)
    data = folder / names[rng.integers(len(names))]
    options = arguments_of({**BASIC, "--target": "y"}, OPTIONS, rng, 3)
    out = tmp_path / place(rng, ".park")
    assert run("fit", data, "-o", out, "-q", "--no-report", *options) in EXPECTED


@pytest.mark.parametrize("name", ["good.csv", "good.parquet", "good.arrow"])
@pytest.mark.parametrize("seed", range(20))
def test_a_fit_of_damaged_files_ends_with_a_code_that_gives_the_reason(files, tmp_path, name, seed):
    data = damaged(files[0] / name, tmp_path, np.random.default_rng(seed))
    arguments = ("--target", "y", "-o", tmp_path / "m.park", "-q", "--no-report", *BASIC_ARGUMENTS)
    assert run("fit", data, *arguments) in EXPECTED


@pytest.mark.parametrize("seed", range(60))
def test_predictions_of_odd_files_end_with_a_code_that_gives_the_reason(files, tmp_path, seed):
    folder, names = files
    rng = np.random.default_rng(seed)
    data = folder / names[rng.integers(len(names))]
    model = folder / ["y.park", "label.park", "file.park", "none.park"][rng.integers(4)]
    out = tmp_path / place(rng, [".csv", ".parquet", ".arrow", ""][rng.integers(4)])
    options = arguments_of({}, ASKED, rng, 3)
    assert run("predict", model, data, "-o", out, "-q", *options) in EXPECTED


@pytest.mark.parametrize("seed", range(40))
def test_scores_of_odd_files_end_with_a_code_that_gives_the_reason(files, seed):
    folder, names = files
    rng = np.random.default_rng(seed)
    data = folder / names[rng.integers(len(names))]
    model = folder / ["y.park", "label.park", "file.park", "none.park"][rng.integers(4)]
    options = arguments_of({}, {**READING, "--target": OPTIONS["--target"]}, rng, 3)
    assert run("score", model, data, "-q", *options) in EXPECTED


@pytest.mark.parametrize("seed", range(40))
def test_what_is_in_a_damaged_model_is_told_or_refused_with_a_code(files, tmp_path, seed):
    model = damaged(files[0] / "y.park", tmp_path, np.random.default_rng(seed))
    assert run("inspect", model, "--cells") in {0, exits.MODEL}
