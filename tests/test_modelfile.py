"""Models as files: what comes back is what was saved, and nothing else is accepted."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from ondisk import frame, on_disk, write
from parkrr import ParKClassifier, ParKRegressor, load, scan_parquet
from parkrr.errors import ModelFileError
from parkrr.fit import Coarse
from parkrr.kernels import Gaussian, Matern, Radial
from parkrr.partition import Blend
from plain import PLAIN, plain


def data(n=600):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1]


SETTINGS = [
    pytest.param({"n_cells": 4}, id="cells"),
    pytest.param({"n_cells": 6, "blend": Blend(2, 0.5)}, id="blend"),
    pytest.param({"coarse": Coarse(50, Gaussian(3.0)), "n_cells": 3}, id="coarse"),
    pytest.param({"kernel": Matern(2.0, nu=2.5), "metric": "standard"}, id="matern"),
    pytest.param({"kernel": "polynomial", "penalty": 1e-2}, id="polynomial"),
    pytest.param({"precision": "float32", "penalty": 1e-12, "n_cells": 2}, id="wide cells"),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_loaded_model_predicts_the_same_numbers(settings, tmp_path):
    X, y = data()
    model = plain(**settings, random_state=0).fit(X, y)
    model.save(tmp_path / "m.park")
    np.testing.assert_array_equal(load(tmp_path / "m.park").predict(X), model.predict(X))


def test_a_loaded_model_knows_what_was_chosen(tmp_path):
    X, y = data(400)
    model = ParKRegressor(random_state=0, time_budget=2.0).fit(X, y)
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    assert again.report_ == model.report_
    assert again.seconds_ == model.seconds_
    assert again.chosen_.tried == model.chosen_.tried
    np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
    refitted = ParKRegressor(**again.chosen_.params).fit(X, y)
    np.testing.assert_array_equal(refitted.predict(X), model.predict(X))


def test_a_saved_model_can_be_saved_again(tmp_path):
    X, y = data()
    plain(random_state=0).fit(X, y).save(tmp_path / "a.park")
    load(tmp_path / "a.park").save(tmp_path / "b.park")
    assert (tmp_path / "a.park").read_bytes() == (tmp_path / "b.park").read_bytes()


def test_a_loaded_model_travels_to_a_process_in_about_the_size_of_its_file(tmp_path):
    X, y = data(3000)
    plain(n_cells=30, random_state=0).fit(X, y).save(tmp_path / "m.park")
    size = (tmp_path / "m.park").stat().st_size
    assert len(pickle.dumps(load(tmp_path / "m.park").model_)) < 1.5 * size


def test_labels_and_columns_come_back(tmp_path):
    X = pd.DataFrame({"word": ["a", "b"] * 100, "x": np.arange(200.0)})
    labels = np.where(np.arange(200) < 100, "low", "high")
    model = ParKClassifier(kernel="gaussian", metric="standard", penalty=1e-6, random_state=0)
    model.fit(X, labels).save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert again.classes_.tolist() == ["high", "low"]
    assert list(again.feature_names_in_) == ["word", "x"]


def test_a_model_fitted_from_files_comes_back(tmp_path):
    table = scan_parquet(write(tmp_path / "rows"), target="y")
    model = on_disk(tmp_path / "c").fit(table)
    model.save(tmp_path / "m.park")
    np.testing.assert_array_equal(
        load(tmp_path / "m.park").predict(frame()), model.predict(frame())
    )


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "m.park").write_bytes(b"something else")
    with pytest.raises(ModelFileError, match=r"m.park' is not a file of parkrr"):
        load(tmp_path / "m.park")


def test_a_later_format_is_refused_with_its_version(tmp_path):
    about = {"format": "parkrr model", "version": 99}
    path = tmp_path / "m.park"
    save_file({"x": torch.zeros(1)}, path, metadata={"parkrr": json.dumps(about)})
    with pytest.raises(ModelFileError, match="of version 99"):
        load(path)


def test_a_skeleton_of_an_unfinished_fit_is_no_model(tmp_path):
    on_disk(tmp_path / "c").fit(scan_parquet(write(tmp_path / "rows"), target="y"))
    with pytest.raises(ModelFileError, match="part of a fit"):
        load(tmp_path / "c" / "skeleton.park")


class Mine(Radial):
    lengthscale = 1.0
    coefficient = -1.0

    def profile(self, buffers, near):
        return buffers[0].exp_()

    def derivative(self, buffers):
        return buffers[0].exp_().neg_()


def test_a_kernel_of_the_users_own_cannot_be_saved_and_is_named(tmp_path):
    X, y = data(100)
    model = plain(Mine(), random_state=0).fit(X, y)
    with pytest.raises(ModelFileError, match="holds only kernels of parkrr"):
        model.save(tmp_path / "m.park")
    assert not list(tmp_path.iterdir())


class Renamed(ParKRegressor):
    """A subclass, as users make them."""


def test_a_model_of_a_subclass_is_loaded_as_what_it_is(tmp_path):
    X = np.linspace(0, 6, 100)[:, None]
    model = Renamed(**PLAIN, random_state=0).fit(X, np.sin(X[:, 0]))
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    assert type(again) is ParKRegressor
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
