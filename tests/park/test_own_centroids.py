"""Centroids of yours: cells are their Voronoi cells, and nothing moves them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import pairwise_distances_argmin

from parkrr import Gaussian, ParKClassifier, ParKRegressor, Polynomial, load, scan_parquet
from parkrr.errors import ParameterError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 2)) * [1.0, 10.0]
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1] + 0.05 * RNG.normal(size=500)
CENTROIDS = np.array([[-2.0, 0.0], [0.0, 0.0], [2.0, 0.0]])  # of uneven cells
KNOWN = {"penalty": 1e-4, "blend": 1, "coarse": 0, "random_state": 0, "progress": False}


def test_cells_are_those_of_the_nearest_centroid():
    model = ParKRegressor(Gaussian(1.0), centroids=CENTROIDS, **KNOWN).fit(X, Y)
    np.testing.assert_array_equal(model.apply(X), pairwise_distances_argmin(X, CENTROIDS))
    assert model.n_cells_ == 3


def test_each_cell_is_kernel_ridge_regression_of_its_rows():
    model = ParKRegressor(Gaussian(1.0), centroids=CENTROIDS, fit_intercept=False, **KNOWN)
    predicted, cell = model.fit(X, Y).predict(X), pairwise_distances_argmin(X, CENTROIDS)
    for q in range(3):
        own = cell == q
        ridge = KernelRidge(alpha=1e-4 * 500, kernel="rbf", gamma=0.5).fit(X[own], Y[own])
        np.testing.assert_allclose(predicted[own], ridge.predict(X[own]), atol=1e-8)


def test_centroids_are_in_the_units_of_the_rows_whatever_the_metric():
    model = ParKRegressor(Gaussian(1.0), metric="standard", centroids=CENTROIDS, **KNOWN).fit(X, Y)
    scale = model.model_.metric.scale.numpy()
    expected = pairwise_distances_argmin(X * scale, CENTROIDS * scale)
    np.testing.assert_array_equal(model.apply(X), expected)


def test_cells_of_a_polynomial_kernel_are_those_of_feature_space():
    kernel = Polynomial(2, gamma=0.1)
    model = ParKRegressor(kernel, centroids=CENTROIDS.tolist(), **KNOWN).fit(X, Y)
    K = lambda A, B: (0.1 * A @ B.T + 1) ** 2  # noqa: E731
    D = np.diag(K(CENTROIDS, CENTROIDS)) - 2 * K(X, CENTROIDS)
    np.testing.assert_array_equal(model.apply(X), D.argmin(1))


def test_the_blend_is_chosen_on_these_cells_and_a_refit_is_the_same():
    model = ParKRegressor(Gaussian(1.0), centroids=CENTROIDS, random_state=0, progress=False)
    model.fit(X, Y)
    again = ParKRegressor(**model.chosen_.params).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert model.n_cells_ == 3


def test_frames_and_classifiers_take_them():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = ParKClassifier(Gaussian(1.0), centroids=CENTROIDS, **KNOWN).fit(frame, np.sign(Y))
    np.testing.assert_array_equal(model.apply(frame), pairwise_distances_argmin(X, CENTROIDS))


def test_a_model_file_keeps_them(tmp_path):
    model = ParKRegressor(Gaussian(1.0), centroids=CENTROIDS, **KNOWN).fit(X, Y)
    model.save(tmp_path / "model.park")
    loaded = load(tmp_path / "model.park")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(loaded).centroids, CENTROIDS)


def test_a_centroid_without_rows_has_no_cell():
    far = np.array([[0.0, 0.0], [1e6, 0.0], [1e7, 0.0], [1e8, 0.0]])
    with pytest.warns(UserWarning, match="centroids that no row is nearest to"):
        model = ParKRegressor(Gaussian(1.0), centroids=far, n_cells=4, **KNOWN).fit(X, Y)
    assert model.n_cells_ == 1


@pytest.mark.parametrize(
    ("centroids", "n_cells", "message"),
    [
        (CENTROIDS[0], "auto", "centroids must be one of .*, or finite numbers"),
        (CENTROIDS[:0], "auto", "centroids must be one of .*, or finite numbers"),
        (CENTROIDS * np.nan, "auto", "centroids must be one of .*, or finite numbers"),
        ([["a", "b"]], "auto", "centroids must be one of .*, or finite numbers"),
        (CENTROIDS[:, :1], "auto", "centroids must have 2 columns"),
        (CENTROIDS, 4, "n_cells must be 'auto' or 3"),
        (None, "auto", "centroids must be one of"),
    ],
)
def test_what_cannot_be_centroids_is_refused(centroids, n_cells, message):
    model = ParKRegressor(Gaussian(1.0), centroids=centroids, n_cells=n_cells, **KNOWN)
    with pytest.raises(ParameterError, match=message):
        model.fit(X, Y)


def test_rows_that_stay_on_disk_need_a_rule(tmp_path):
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    model = ParKRegressor(Gaussian(1.0), centroids=CENTROIDS, **KNOWN)
    assert model.fit(rows).n_cells_ == 3
    model.set_params(checkpoint=tmp_path / "fit")
    with pytest.raises(ParameterError, match="centroids must be a rule such as 'uniform' for rows"):
        model.fit(rows)
