"""Models with sums and products of kernels, and with functions as kernels."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel

from parkrr import Gaussian, Linear, Matern, ParKClassifier, ParKRegressor, load, scan_parquet
from parkrr.errors import ModelFileError, ParameterError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=600)
NEW = RNG.normal(size=(100, 2))
KNOWN = {"fit_intercept": False, "blend": 1, "coarse": 0, "random_state": 0, "progress": False}
COMPOSED = [Gaussian(1.0) + 0.5 * Linear(), Gaussian([1.0, 2.0]) * Matern(3.0)]


def exact(K, K_new, y, penalty):
    return KernelRidge(alpha=penalty * len(y), kernel="precomputed").fit(K, y).predict(K_new)


@pytest.mark.parametrize("kernel", COMPOSED, ids=repr)
def test_one_cell_is_kernel_ridge_regression(kernel):
    model = ParKRegressor(kernel, 1e-3, n_cells=1, **KNOWN).fit(X, Y)
    rows, new = torch.from_numpy(X), torch.from_numpy(NEW)
    expected = exact(kernel(rows, rows), kernel(new, rows), Y, 1e-3)
    np.testing.assert_allclose(model.predict(NEW), expected, atol=1e-8)


def test_a_function_in_one_cell_is_kernel_ridge_regression():
    model = ParKRegressor(laplacian_kernel, 1e-3, n_cells=1, **KNOWN).fit(X, Y)
    expected = exact(laplacian_kernel(X, X), laplacian_kernel(NEW, X), Y, 1e-3)
    np.testing.assert_allclose(model.predict(NEW), expected, atol=1e-8)


def test_a_matrix_that_is_looked_up_by_row_numbers_is_a_precomputed_kernel():
    everything = np.concatenate([X, NEW])
    K = torch.from_numpy(laplacian_kernel(everything, everything))
    numbers = np.arange(len(everything))[:, None]
    model = ParKRegressor(
        lambda a, b: K[a[:, 0].long()][:, b[:, 0].long()], 1e-3, n_cells=1, **KNOWN
    ).fit(numbers[:600], Y)
    expected = exact(K[:600, :600], K[600:, :600], Y, 1e-3)
    np.testing.assert_allclose(model.predict(numbers[600:]), expected, atol=1e-8)


@pytest.mark.parametrize("solver", ["direct", "falkon"])
@pytest.mark.parametrize("kernel", [*COMPOSED, laplacian_kernel], ids=["sum", "product", "code"])
def test_cells_and_centres_work_with_every_solver(kernel, solver):
    given = {"n_cells": 4, "n_centers": 200, "centroids": "greedy", "solver": solver}
    model = ParKRegressor(kernel, 1e-5, **KNOWN | given).fit(X, Y)
    assert np.sqrt(np.mean((model.predict(NEW) - np.sin(2 * NEW[:, 0]) - NEW[:, 1]) ** 2)) < 0.3
    low, high = model.predict_interval(NEW)
    assert bool((low < high).all())
    np.testing.assert_allclose(model.predict(NEW[:1]), model.predict(NEW)[:1])


def test_the_penalty_is_chosen_for_them():
    model = ParKRegressor(COMPOSED[0], n_cells=2, random_state=0, progress=False).fit(X, Y)
    assert model.chosen_.params["kernel"] == COMPOSED[0]
    assert 1e-8 < model.chosen_.params["penalty"] < 1


@pytest.mark.parametrize("kernel", COMPOSED, ids=repr)
def test_a_model_file_keeps_sums_and_products(kernel, tmp_path):
    model = ParKClassifier(kernel, 1e-3, n_cells=2, random_state=0).fit(X, np.sign(Y))
    model.save(tmp_path / "model.park")
    loaded = load(tmp_path / "model.park")
    np.testing.assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))
    assert loaded.kernel == kernel == clone(loaded).kernel


def test_rows_on_disk_take_sums(tmp_path):
    columns = {"a": X[:, 0], "b": X[:, 1], "y": Y}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=200)
    given = {"n_cells": 2, "n_centers": 100, "checkpoint": tmp_path / "fit"}
    model = ParKRegressor(COMPOSED[0], 1e-4, **KNOWN | given)
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    assert model.fit(rows).score_files(rows)["r2"] > 0.95


def test_a_function_is_neither_saved_nor_exported(tmp_path):
    model = ParKRegressor(laplacian_kernel, 1e-3, **KNOWN).fit(X, Y)
    with pytest.raises(ModelFileError, match="keep such a model in Python"):
        model.save(tmp_path / "model.park")
    with pytest.raises(ParameterError, match="keep such a model in Python"):
        model.to_onnx(tmp_path / "model.onnx")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


def test_kernels_nested_without_end_are_not_saved(tmp_path):
    kernel = Gaussian()
    for _ in range(30):
        kernel = (1.0 * kernel) * Linear()
    model = ParKRegressor(kernel, 1e-3, **KNOWN).fit(X[:50], Y[:50])
    with pytest.raises(ModelFileError, match="nested at most 20 times"):
        model.save(tmp_path / "model.park")
