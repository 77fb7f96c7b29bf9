"""A whole weight w is w copies of the row, whatever path the fit takes."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parkrr import ParKClassifier, ParKRegressor, scan_parquet
from parkrr.kernels import Gaussian, Matern
from plain import PLAIN


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=n), rng.integers(1, 4, n)


def settled(estimator=ParKRegressor, **changes):
    given = {"kernel": Matern(1.0), "penalty": 1e-3, "n_cells": 1, "precision": "float64"}
    return estimator(**{**PLAIN, **given, "random_state": 0, **changes})


PATHS = [
    {"solver": "direct"},
    {"solver": "falkon", "tol": 1e-12, "max_iter": 500},
    {"solver": "direct", "precision": "float64", "kernel": Gaussian(0.5)},
]


@pytest.mark.parametrize("settings", PATHS)
def test_a_fit_with_weights_is_a_fit_with_copies(settings):
    X, y, w = rows()
    weighted = settled(**settings).fit(X, y, sample_weight=w)
    copied = settled(**settings).fit(X.repeat(w, 0), y.repeat(w))
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), rtol=1e-8, atol=1e-8)


def test_in_several_cells_too():
    """Every row a centre, and cells placed on the same centroids whatever the copies."""
    X, y, w = rows(600)
    far = X + 50 * (np.arange(600) % 3)[:, None]  # three clouds, one for each cell
    settings = {"n_cells": 3, "centroids": "greedy", "balance": False, "kernel": Gaussian(3.0)}
    weighted = settled(**settings).fit(far, y, sample_weight=w)
    copied = settled(**settings).fit(far.repeat(w, 0), y.repeat(w))
    assert len(weighted.report_) == len(copied.report_) == 3
    np.testing.assert_allclose(weighted.predict(far), copied.predict(far), rtol=1e-8, atol=1e-8)


def test_choices_on_few_rows_are_the_same():
    X, y, w = rows(80)
    weighted = ParKRegressor(random_state=0).fit(X, y, sample_weight=w)
    copied = ParKRegressor(random_state=0).fit(X.repeat(w, 0), y.repeat(w))
    assert weighted.chosen_.params["kernel"] == copied.chosen_.params["kernel"]
    assert weighted.chosen_.params["penalty"] == pytest.approx(copied.chosen_.params["penalty"])
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), rtol=1e-6, atol=1e-6)


def test_a_weight_of_zero_leaves_a_row_out():
    X, y, _ = rows()
    w = (np.arange(300) % 3 > 0).astype(float)
    weighted = settled().fit(X, y, sample_weight=w)
    fewer = settled().fit(X[w > 0], y[w > 0])
    np.testing.assert_allclose(weighted.predict(X), fewer.predict(X), rtol=1e-10)
    np.testing.assert_allclose(weighted.predict_interval(X), fewer.predict_interval(X), rtol=1e-10)


def written(folder, X, y, w=None):
    columns = {"a": X[:, 0], "b": X[:, 1], "y": y} | ({} if w is None else {"w": w})
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=200)
    return scan_parquet(folder, target="y", weight=None if w is None else "w")


@pytest.mark.parametrize("solver", ["direct", "falkon"])
def test_a_column_of_weights_is_copies_in_the_files(tmp_path, solver):
    X, y, w = rows(400)
    settings = {"solver": solver, "tol": 1e-12, "max_iter": 500, "n_centers": 2000}
    weighted = settled(checkpoint=tmp_path / "1", **settings)
    copied = settled(checkpoint=tmp_path / "2", **settings)
    weighted.fit(written(tmp_path / "weighted", X, y, w))
    copied.fit(written(tmp_path / "copied", X.repeat(w, 0), y.repeat(w)))
    frame = pa.table({"a": X[:, 0], "b": X[:, 1]})
    np.testing.assert_allclose(weighted.predict(frame), copied.predict(frame), rtol=1e-8, atol=1e-8)


def test_probabilities_follow_weights():
    X, _, _ = rows(3000)
    labels = np.random.default_rng(1).random(3000) < 1 / (1 + np.exp(-X[:, 0]))
    w = np.where(labels, 5.0, 1.0)
    plain = settled(ParKClassifier).fit(X, labels).predict_proba(X)[:, 1]
    weighted = settled(ParKClassifier).fit(X, labels, sample_weight=w).predict_proba(X)[:, 1]
    odds = weighted / (1 - weighted) / (plain / (1 - plain))
    assert np.median(odds) == pytest.approx(5, rel=0.25)


def test_intervals_follow_weights():
    """Rows that count for nothing have no say in how wide intervals are."""
    X, y, _ = rows(3000)
    wild = np.arange(3000) % 4 == 0
    y = y + wild * 20 * np.random.default_rng(1).normal(size=3000)
    w = np.where(wild, 1e-9, 1.0)
    lower, upper = settled().fit(X, y, sample_weight=w).predict_interval(X)
    assert np.median(upper - lower) < 1.0
