"""Nystrom centres of yours: the exact estimator on their span, cell by cell."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import pairwise_distances_argmin
from sklearn.metrics.pairwise import rbf_kernel

import reference
from parkrr import Gaussian, ParKRegressor, load, scan_parquet
from parkrr.errors import ParameterError

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (500, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.05 * RNG.normal(size=500)
NEW = RNG.uniform(-2, 2, (100, 2))
CENTERS = np.stack(np.meshgrid(np.linspace(-2, 2, 7), np.linspace(-2, 2, 7)), 2).reshape(-1, 2)
CENTROIDS = np.array([[-1.1, 0.0], [1.0, 0.0]])  # no centre lies on their border
KNOWN = {"penalty": 1e-5, "blend": 1, "coarse": 0, "fit_intercept": False, "random_state": 0}


def kernel(A, B):
    return rbf_kernel(A, B, gamma=0.5)


@pytest.mark.parametrize("solver", ["direct", "falkon"])
def test_one_cell_is_the_nystrom_estimator_with_these_centres(solver):
    model = ParKRegressor(Gaussian(1.0), n_centers=CENTERS, n_cells=1, solver=solver, **KNOWN)
    predicted = model.set_params(tol=1e-8).fit(X, Y).predict(NEW)
    K_nm, K_mm = kernel(X, CENTERS), kernel(CENTERS, CENTERS)
    expected = kernel(NEW, CENTERS) @ reference.nystrom_weights(K_nm, K_mm, Y, 1e-5)
    np.testing.assert_allclose(predicted, expected, atol=1e-5)
    assert model.report_[0].centers == 49


def test_each_cell_has_the_centres_that_lie_in_it():
    model = ParKRegressor(Gaussian(1.0), n_centers=CENTERS, centroids=CENTROIDS, **KNOWN).fit(X, Y)
    rows, own = (pairwise_distances_argmin(part, CENTROIDS) for part in (X, CENTERS))
    new = pairwise_distances_argmin(NEW, CENTROIDS)
    for q in range(2):
        A, Z = X[rows == q], CENTERS[own == q]
        ridge = 1e-5 * 500 / len(A)  # lambda_q
        weights = reference.nystrom_weights(kernel(A, Z), kernel(Z, Z), Y[rows == q], ridge)
        expected = kernel(NEW[new == q], Z) @ weights
        np.testing.assert_allclose(model.predict(NEW[new == q]), expected, atol=1e-5)


def test_a_cell_without_centres_gets_the_nearest_one():
    few = np.array([[-1.0, 0.0], [-0.5, 0.5]])
    model = ParKRegressor(Gaussian(1.0), n_centers=few, centroids=CENTROIDS, **KNOWN).fit(X, Y)
    assert [cell.centers for cell in model.report_] == [2, 1]
    np.testing.assert_allclose(model.model_.centers[1] + model.model_.metric.origin, few[1:])


def test_weights_of_rows_and_a_refit_keep_them(tmp_path):
    model = ParKRegressor(Gaussian(1.0), n_centers=CENTERS.tolist(), n_cells=2, random_state=0)
    model.fit(X, Y, sample_weight=RNG.uniform(0.5, 2.0, 500))
    assert sum(cell.centers for cell in model.report_) == 49
    assert np.shape(model.chosen_.params["n_centers"]) == (49, 2)
    model.save(tmp_path / "model.park")
    loaded = load(tmp_path / "model.park")
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    np.testing.assert_array_equal(loaded.n_centers, CENTERS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_centers": CENTERS[0]}, "n_centers must be a number, .auto., or finite numbers"),
        ({"n_centers": CENTERS * np.nan}, "n_centers must be a number, .auto., or finite numbers"),
        ({"n_centers": CENTERS[:, :1]}, "n_centers must have 2 columns"),
        ({"n_centers": CENTERS, "guarantee": "jackknife+"}, "n_centers must be a number or 'auto'"),
    ],
)
def test_what_cannot_be_centres_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        ParKRegressor(Gaussian(1.0), **KNOWN | given).fit(X, Y)


def test_rows_that_stay_on_disk_need_a_number(tmp_path):
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    model = ParKRegressor(Gaussian(1.0), n_centers=CENTERS, n_cells=1, **KNOWN)
    assert model.fit(rows).report_[0].centers == 49
    model.set_params(checkpoint=tmp_path / "fit")
    with pytest.raises(ParameterError, match="n_centers must be a number for rows that stay"):
        model.fit(rows)
