"""Models from files, as users load them."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from parkrr import ParKClassifier, ParKRegressor, load
from parkrr.errors import ModelFileError
from plain import PLAIN

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (200, 2))


class Renamed(ParKRegressor):
    """A subclass of a user."""


@pytest.mark.parametrize("kind", [ParKRegressor, ParKClassifier])
def test_every_attribute_of_a_fit_comes_back(kind, tmp_path):
    frame = pd.DataFrame({"sky": ["sun", "rain"] * 100, "km": X[:, 0]})
    model = kind(**PLAIN, keep_statistics=True, random_state=0).fit(frame, X[:, 0] > 0)
    model.save(tmp_path / "model.park")
    again = load(tmp_path / "model.park")
    assert set(vars(again)) == set(vars(model))
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(
        again.partial_fit(frame, X[:, 0] > 0).predict(frame),
        model.partial_fit(frame, X[:, 0] > 0).predict(frame),
    )


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (pd.Series(X[:, 0], name="minutes"), ["minutes"]),
        (pd.DataFrame({"minutes": X[:, 0], "km": X[:, 1]}), ["minutes", "km"]),
        (pl.Series("minutes", X[:, 0]), ["minutes"]),
        (pl.DataFrame({"minutes": X[:, 0]}), ["minutes"]),
        (pa.table({"minutes": X[:, 0]}), ["minutes"]),
        (X[:, 0], None),
        (pd.Series(X[:, 0]), None),
        (pd.DataFrame(X), None),
    ],
    ids=["column", "frame", "polars", "polars frame", "Arrow", "array", "no name", "numbers"],
)
def test_names_of_targets_are_kept_and_come_back(y, names, tmp_path):
    model = ParKRegressor(**PLAIN, random_state=0).fit(X, y)
    model.save(tmp_path / "model.park")
    assert model.target_names_ == load(tmp_path / "model.park").target_names_ == names


def test_a_subclass_is_loaded_as_the_estimator_it_is(tmp_path):
    model = Renamed(**PLAIN, random_state=0).fit(X, X[:, 0])
    model.save(tmp_path / "model.park")
    assert type(load(str(tmp_path / "model.park"))) is ParKRegressor


def test_a_file_that_is_not_there_or_no_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.park")
    (tmp_path / "text.park").write_text("no model")
    with pytest.raises(ModelFileError, match=r"text\.park"):
        load(tmp_path / "text.park")
