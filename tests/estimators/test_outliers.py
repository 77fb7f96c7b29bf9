"""One wild value, or a large offset, takes no feature out of a model."""

import pandas as pd
import pytest

from ondisk import rows, write
from parkrr import Gaussian, Laplacian, Matern, ParKClassifier, ParKRegressor, scan_parquet
from plain import PLAIN

CASES = [(1e12, 0.0), (1e30, 0.0), (-1e300, 0.0), (0.0, 1e13)]
IDS = ["1e12", "1e30", "-1e300", "offset 1e13"]
STANDARD = {**PLAIN, "metric": "standard", "penalty": 1e-4, "random_state": 0, "progress": False}
TEST, TRUTH = rows(1000, seed=1)


def spoil(X, wild, offset):
    """The rows with a wild value in the first of them and an offset, in column 0."""
    X = X.copy()
    X[0, 0] += wild
    X[:, 0] += offset
    return X


def change(model, n, case):
    """R2 on test rows with a wild value or an offset, less that without."""
    X, y = rows(n)
    spoiled = model.fit(spoil(X, *case), y).score(spoil(TEST, 0.0, case[1]), TRUTH)
    return spoiled - model.fit(X, y).score(TEST, TRUTH)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize(
    ("kernel", "precision", "n_centers"),
    [(Gaussian(), "float64", 2000), (Matern(), "float32", 300), (Laplacian(), "float32", 2000)],
)
def test_a_standardised_feature_stays(kernel, precision, n_centers, case):
    more = {"kernel": kernel, "precision": precision, "n_cells": 3, "n_centers": n_centers}
    assert change(ParKRegressor(**{**STANDARD, **more}), 2000, case) > -0.01


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_stays_among_few_rows(case):
    assert change(ParKRegressor(**STANDARD), 60, case) > -0.05
    assert change(ParKRegressor(random_state=0), 60, case) > -0.05


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_stays_when_all_is_chosen(case):
    model = ParKRegressor(metric="standard", kernel=Gaussian(), random_state=0)
    assert change(model, 1000, case) > -0.02


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_stays_in_a_coarse_level(case):
    model = ParKRegressor(**{**STANDARD, "coarse": 200, "n_cells": 3, "n_centers": 300})
    assert change(model, 2000, case) > -0.01


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_stays_in_a_classifier(case):
    X, y = rows(1000)
    model = ParKClassifier(**STANDARD)
    usual = model.fit(X, y > 0).score(TEST, TRUTH > 0)
    found = model.fit(spoil(X, *case), y > 0).score(spoil(TEST, 0.0, case[1]), TRUTH > 0)
    assert found > usual - 0.02


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_stays_in_rows_of_files(case, tmp_path):
    X, y = rows(3000)
    model = ParKRegressor(
        **{**STANDARD, "n_cells": 4, "n_centers": 400, "checkpoint": tmp_path / "job"}
    )
    files = write(tmp_path / "rows", 3000, a=spoil(X, *case)[:, 0])
    named = pd.DataFrame(spoil(TEST, 0.0, case[1]), columns=["a", "b", "c"])
    model.fit(scan_parquet(files, target="y"))
    usual = ParKRegressor(**{**STANDARD, "n_cells": 4, "n_centers": 400}).fit(X, y)
    assert model.score(named, TRUTH) > usual.score(TEST, TRUTH) - 0.02
