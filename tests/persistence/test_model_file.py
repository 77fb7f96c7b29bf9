"""Models as files: what comes back is what was saved, and nothing else is accepted."""

import datetime
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import modelreader
from fuzz import as_rows, taken_apart
from ondisk import frame, on_disk, write
from parkrr import (
    Laplacian,
    Linear,
    ParKClassifier,
    ParKRegressor,
    Polynomial,
    load,
    scan_parquet,
)
from parkrr.errors import ModelFileError
from parkrr.kernels import Gaussian, Matern, Radial
from parkrr.kernels.feature_map import FeatureMap
from parkrr.park.algorithm import Coarse
from parkrr.partition import Blend
from plain import PLAIN, plain

FIXTURES = Path(__file__).parents[1] / "fixtures"


def data(n=600):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1]


SETTINGS = [
    pytest.param({"n_cells": 4}, id="cells"),
    pytest.param({"n_cells": 6, "blend": Blend(2, 0.5)}, id="blend"),
    pytest.param({"coarse": Coarse(50, Gaussian(3.0)), "n_cells": 3}, id="coarse"),
    pytest.param({"kernel": Matern(2.0, nu=2.5), "metric": "standard"}, id="matern"),
    pytest.param({"kernel": Polynomial(), "penalty": 1e-2}, id="polynomial"),
    pytest.param({"precision": "float32", "penalty": 1e-12, "n_cells": 2}, id="wide cells"),
    pytest.param({"precision": "float32", "penalty": 1e-2, "n_cells": 2}, id="narrow cells"),
    pytest.param({"metric": FeatureMap(torch.ones(3), torch.ones(3))}, id="float32 map"),
    pytest.param({"metric": FeatureMap()}, id="no map"),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_loaded_model_predicts_the_same_numbers(settings, tmp_path):
    X, y = data()
    model = plain(**settings, random_state=0).fit(X, y)
    model.save(tmp_path / "m.park")
    np.testing.assert_array_equal(load(tmp_path / "m.park").predict(X), model.predict(X))


def test_a_loaded_model_has_what_was_chosen(tmp_path):
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
    model = ParKClassifier(kernel=Gaussian(), metric="standard", penalty=1e-6, random_state=0)
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


def test_the_unfitted_model_of_an_unfinished_fit_is_no_model(tmp_path):
    on_disk(tmp_path / "c").fit(scan_parquet(write(tmp_path / "rows"), target="y"))
    with pytest.raises(ModelFileError, match="part of a fit"):
        load(tmp_path / "c" / "unfitted.park")


class Mine(Radial):
    lengthscale = 1.0
    coefficient = -1.0

    def profile(self, buffers, no_underflow):
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


class Extended(ParKRegressor):
    """A subclass with a parameter of its own."""

    label = "mine"

    @classmethod
    def _get_param_names(cls):
        return [*super()._get_param_names(), "label"]


def test_a_parameter_of_a_subclass_is_left_behind(tmp_path):
    X, y = data(100)
    model = Extended(**PLAIN, random_state=0).fit(X, y)
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    assert "label" in model.get_params()
    assert "label" not in again.get_params()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


# A file of this version predicts the same in every later version.


def read_record(name):
    return json.loads((FIXTURES / f"{name}.json").read_text())


def test_the_regressor_of_version_3_predicts_as_it_did():
    known = read_record("regressor-4")
    model, rows = load(FIXTURES / "regressor-4.park"), as_rows(known["rows"])
    mean, std = model.predict(rows, return_std=True)
    lower, upper = model.predict_interval(rows, coverage=0.8)
    outputs = {"predict": mean, "std": std, "lower": lower, "upper": upper}
    outputs["novelty"] = model.novelty(rows)
    for name, values in outputs.items():
        np.testing.assert_allclose(values, known["answers"][name], rtol=1e-4, atol=1e-4)


def test_the_classifier_of_version_3_predicts_as_it_did():
    known = read_record("classifier-4")
    model, rows = load(FIXTURES / "classifier-4.park"), as_rows(known["rows"])
    assert model.predict(rows).tolist() == known["answers"]["predict"]
    P = model.predict_proba(rows)
    np.testing.assert_allclose(P, known["answers"]["predict_proba"], rtol=1e-9, atol=1e-9)
    assert model.class_weight == {"left": 2.0}


def test_fixtures_are_small():
    assert all(path.stat().st_size < 60_000 for path in FIXTURES.glob("*.park"))


def test_a_regressor_can_be_read_with_numpy_alone_as_documented():
    t, about = modelreader.read(FIXTURES / "regressor-4.park")
    known = read_record("regressor-4")
    days = {"day": [86400 * day for day in known["rows"]["day"]]}
    X = modelreader.encoded(about["facts"]["columns"], known["rows"] | days)
    Z = modelreader.mapped(X, t)
    lower, upper = modelreader.interval(t, about, Z, coverage=0.8)
    outputs = {"predict": modelreader.values(t, about, Z), "std": modelreader.std(t, about, Z)}
    for name, values in (outputs | {"lower": lower, "upper": upper}).items():
        np.testing.assert_allclose(values, known["answers"][name], rtol=1e-3, atol=1e-3)


def test_a_classifier_can_be_read_with_numpy_alone_as_documented():
    t, about = modelreader.read(FIXTURES / "classifier-4.park")
    known = read_record("classifier-4")
    F = modelreader.values(t, about, modelreader.mapped(np.array(known["rows"]), t))
    P = modelreader.probabilities(about["facts"]["uncertainty"], F)
    np.testing.assert_allclose(P, known["answers"]["predict_proba"], atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": Laplacian()},
        {"kernel": Matern(2.0, nu=2.5), "n_cells": 6, "blend": Blend(2, 0.5)},
        {"kernel": Polynomial(), "penalty": 1e-2, "n_cells": 3, "blend": Blend(2, 2.0)},
        {"kernel": Linear(), "n_cells": 2},
    ],
    ids=lambda settings: str(settings["kernel"]),
)
def test_every_kernel_is_as_documented(settings, tmp_path):
    X, y = data()
    model = plain(**settings, random_state=0).fit(X, y)
    model.save(tmp_path / "m.park")
    t, about = modelreader.read(tmp_path / "m.park")
    values = modelreader.values(t, about, modelreader.mapped(X, t))
    np.testing.assert_allclose(values[:, 0], model.predict(X), rtol=1e-6, atol=1e-6)


def test_a_posterior_scale_is_as_documented(tmp_path):
    X, y = data()
    model = plain(n_cells=3, random_state=0).fit(X, y)
    model.intervals_ = replace(model.intervals_, scale_name="posterior", learned=None)
    model.save(tmp_path / "m.park")
    t, about = modelreader.read(tmp_path / "m.park")
    lower, upper = modelreader.interval(t, about, modelreader.mapped(X[:5], t), coverage=0.9)
    ends = model.predict_interval(X[:5], coverage=0.9)
    np.testing.assert_allclose([lower[:, 0], upper[:, 0]], ends, rtol=1e-4, atol=1e-4)


def test_the_reader_of_safetensors_finds_the_same_tensors():
    with safe_open(FIXTURES / "regressor-4.park", framework="np") as file:
        theirs = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    ours, _ = taken_apart((FIXTURES / "regressor-4.park").read_bytes())
    assert theirs.keys() == ours.keys()
    assert all(np.array_equal(theirs[name], ours[name]) for name in ours)


# Narrower centres.


@pytest.mark.parametrize(("kind", "most"), [("float32", 1e-4), ("float16", 0.02)])
def test_narrow_centres_make_a_smaller_file_that_loses_what_save_returns(kind, most, tmp_path):
    X, y = data(1000)
    model = plain(n_cells=3, penalty=1e-3, random_state=0).fit(X, y)
    model.save(tmp_path / "whole.park")
    loss = model.save(tmp_path / "m.park", centers=kind)
    again, before = load(tmp_path / "m.park"), model.predict(X)
    change = np.sqrt(np.mean((again.predict(X) - before) ** 2)) / before.std()
    assert 0 < loss < most
    assert change == pytest.approx(loss, rel=0.2)
    assert (tmp_path / "m.park").stat().st_size < 0.85 * (tmp_path / "whole.park").stat().st_size


def test_float32_centres_lose_nothing_where_they_are_float32(tmp_path):
    X, y = data()
    model = plain(precision="float32", penalty=1e-2, random_state=0).fit(X, y)
    assert model.save(tmp_path / "m.park", centers="float32") == 0.0


def test_centres_too_large_for_float16_are_refused(tmp_path):
    X, y = data()
    model = plain(Gaussian(1e6), random_state=0).fit(X * 1e6, y)
    with pytest.raises(ValueError, match=r"centers must be None or 'float32' .* as large as"):
        model.save(tmp_path / "m.park", centers="float16")


def test_a_dtype_that_centres_cannot_have_is_refused(tmp_path):
    X, y = data(100)
    with pytest.raises(ValueError, match=r"centers must be one of .*float16.*, got 'int8'"):
        plain(random_state=0).fit(X, y).save(tmp_path / "m.park", centers="int8")


# Files in memory.


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_the_cells_of_a_loaded_model_are_views_of_its_file(tmp_path):
    X, y = data()
    plain(n_cells=4, random_state=0).fit(X, y).save(tmp_path / "m.park")
    centers = load(tmp_path / "m.park").model_.centers
    assert len({Z.untyped_storage().data_ptr() for Z in centers}) == 1
    maps = Path("/proc/self/maps").read_text()
    assert "m.park" in maps


def test_writing_into_a_loaded_model_does_not_change_its_file(tmp_path):
    X, y = data()
    plain(random_state=0).fit(X, y).save(tmp_path / "m.park")
    before = (tmp_path / "m.park").read_bytes()
    load(tmp_path / "m.park").model_.centers[0].zero_()
    assert (tmp_path / "m.park").read_bytes() == before


def test_a_file_can_be_replaced_while_its_model_is_in_use(tmp_path):
    X, y = data()
    first, second = (plain(Gaussian(s), random_state=0).fit(X, y) for s in (1.0, 3.0))
    first.save(tmp_path / "m.park")
    used = load(tmp_path / "m.park")
    second.save(tmp_path / "m.park")
    np.testing.assert_array_equal(used.predict(X), first.predict(X))
    np.testing.assert_array_equal(load(tmp_path / "m.park").predict(X), second.predict(X))


# A model that cannot be saved is refused by name, and leaves nothing.


def test_labels_that_json_cannot_hold_are_refused_when_saved(tmp_path):
    X, _ = data(100)
    days = np.array([datetime.date(2020, 1, 1 + k % 2) for k in range(100)], dtype="datetime64[D]")
    model = ParKClassifier(**PLAIN, random_state=0).fit(X, days)
    with pytest.raises(ModelFileError, match=r"cannot hold this model: .*classes.* got dat"):
        model.save(tmp_path / "m.park")
    assert not list(tmp_path.iterdir())


def test_numbers_that_are_not_finite_come_back(tmp_path):
    X, y = data(100)
    model = plain(random_state=0).fit(X, y)
    model.chosen_.tried.append({"step": "comparison on cells", "error": float("inf")})
    model.feature_importances_ = np.array([np.nan, 0.5, 0.5])
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    assert again.chosen_.tried == model.chosen_.tried
    np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
