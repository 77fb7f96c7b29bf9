"""Everything on a device that is not there: no tensor is left behind, none is looked at there."""

import numpy as np
import pytest
import torch

from ondisk import frame, on_disk, write
from parkrr import Matern, ParKClassifier, Polynomial, load, scan_parquet
from parkrr.out_of_core.fit import own_device
from parkrr.partition import Blend
from plain import plain
from pretend import NAME, Elsewhere, pretending

rng = np.random.default_rng(0)
X = rng.normal(size=(1500, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=1500)
labels = np.digitize(y, [-1, 1])
w = rng.uniform(0.5, 2, size=1500)
SMALL = {"n_cells": 4, "n_centers": 160, "random_state": 0}
SETTINGS = {
    "plain": {},
    "falkon": {"solver": "falkon"},
    "direct": {"solver": "direct"},
    "greedy": {"centroids": "greedy"},
    "rpcholesky": {"centroids": "rpcholesky"},
    "standard": {"metric": "standard"},
    "blended": {"blend": Blend(3, 0.5), "coarse": 50},
    "float32": {"precision": "float32"},
    "matern": {"kernel": Matern()},
    "polynomial": {"kernel": Polynomial()},
}
QUESTIONS = {
    "one row": lambda model: model.predict(X[:1]),
    "ten rows": lambda model: model.predict(X[:10]),
    "std": lambda model: model.predict(X[:50], return_std=True)[1],
    "interval": lambda model: model.predict_interval(X[:50]),
    "quantile": lambda model: model.predict_quantile(X[:50], [0.1, 0.5]),
    "novelty": lambda model: model.novelty(X[:50]),
    "importances": lambda model: model.feature_importances_,
    "validation rows": lambda model: model.validation_rows_["predicted"],
}


def elsewhere(model):
    """Whether all of a model is on the other device."""
    parts = [model.centroids, *model.centers, *model.weights, model.intercept]
    return all(isinstance(part, Elsewhere) for part in parts)


def test_tensors_of_two_devices_do_not_meet():
    with pretending(), pytest.raises(RuntimeError, match="expects all tensors to be on one device"):
        torch.ones(3, device=NAME) + torch.ones(3)


def test_numpy_does_not_see_a_tensor_elsewhere():
    with pretending(), pytest.raises(TypeError, match="can't convert"):
        np.asarray(torch.ones(3).to(NAME))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_fit_elsewhere_is_the_fit_here(settings):
    here = plain(**SMALL, **settings).fit(X, y, sample_weight=w)
    with pretending():
        there = plain(**SMALL, **settings, device=NAME).fit(X, y, sample_weight=w)
        assert elsewhere(there.model_)
        np.testing.assert_array_equal(there.predict(X), here.predict(X))


@pytest.fixture(scope="module")
def both():
    here = plain(**SMALL, keep_statistics=True).fit(X, y)
    with pretending():
        return here, plain(**SMALL, keep_statistics=True, device=NAME).fit(X, y)


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_result_from_elsewhere_is_the_one_from_here(both, ask):
    here, there = both
    with pretending():
        np.testing.assert_array_equal(ask(there), ask(here))


def test_a_model_saved_from_elsewhere_is_loaded_here(both, tmp_path):
    here, there = both
    with pretending():
        there.save(tmp_path / "m.park")
    np.testing.assert_array_equal(load(tmp_path / "m.park").predict(X), here.predict(X))


def test_updates_elsewhere_are_those_here(both):
    with pretending():
        for model in both:
            model.partial_fit(X[:50] + 0.1, y[:50]).forget(X[:20], y[:20])
        here, there = both
        np.testing.assert_array_equal(there.predict(X), here.predict(X))


def test_probabilities_from_elsewhere_are_those_from_here():
    names, given = ParKClassifier().get_params(), plain(**SMALL).get_params()
    settings = {name: value for name, value in given.items() if name in names}
    here = ParKClassifier(**settings).fit(X, labels)
    with pretending():
        there = ParKClassifier(**{**settings, "device": NAME}).fit(X, labels)
        np.testing.assert_array_equal(there.predict_proba(X[:50]), here.predict_proba(X[:50]))


def test_choices_are_made_elsewhere():
    with pretending():
        model = plain(
            **{"random_state": 0, "device": NAME, "time_budget": 5, "n_cells": 2},
            **dict.fromkeys(["kernel", "penalty", "metric", "blend", "coarse"], "auto"),
        ).fit(X[:500], y[:500])
        assert elsewhere(model.model_)
        assert model.score(X[500:], y[500:]) > 0.95


@pytest.mark.parametrize(
    "settings", [{}, {"solver": "falkon"}, {"coarse": 40, "blend": Blend(2, 0.5)}], ids=str
)
def test_rows_on_disk_are_fitted_elsewhere(tmp_path, settings):
    table = scan_parquet(write(tmp_path / "rows", n=3000), target="y")
    here = on_disk(tmp_path / "here", **settings).fit(table)
    with pretending():
        there = on_disk(tmp_path / "there", **settings, device=NAME).fit(table)
        assert elsewhere(there.model_)
        for ask in (lambda m: m.predict(frame()), lambda m: m.predict_interval(frame())):
            np.testing.assert_array_equal(ask(there), ask(here))


def test_rows_that_are_loaded_from_disk_are_fitted_elsewhere(tmp_path):
    table = scan_parquet(write(tmp_path / "rows", n=3000), target="y")
    with pretending():
        assert elsewhere(on_disk(None, device=NAME).fit(table).model_)


def test_the_driver_of_a_cluster_needs_no_device_of_its_workers():
    assert own_device({"engine": "ray", "device": "cuda"}) == "cpu"
    assert own_device({"engine": "local", "device": "cuda"}) == "cuda"
