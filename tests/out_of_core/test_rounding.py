"""A fit from disk whose statistics leave no solution is one from the rows, or of a larger ridge."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from ondisk import on_disk, rows, write
from parkrr import scan_parquet
from parkrr.kernels import Gaussian
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.fit import bound_penalty, decide, run_passes
from parkrr.planning import learn_table
from parkrr.solvers import smallest_penalty
from parkrr.tuning import TuningLog

# Wide kernels, under which K of the centres is singular up to rounding.
WIDE = {"kernel": Gaussian(4.0), "n_cells": 4, "n_centers": 120, "penalty": 1e-16}


def smooth(n, seed=0):
    """Rows with a target without noise, for which the smallest penalty is the best."""
    X, _ = rows(n, seed)
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] * X[:, 2]


TEST, TRUTH = smooth(1000, seed=1)
TEST = pd.DataFrame(TEST, columns=["a", "b", "c"])


def write_smooth(folder, n=1500):
    return scan_parquet(write(folder, n, y=smooth(n)[1]), target="y")


def rmse(predicted):
    return np.sqrt(np.mean((predicted - TRUTH) ** 2))


def fallbacks(report):
    return ", ".join(cell.fallback for cell in report)


@pytest.mark.parametrize(
    ("penalty", "precision"), [(1e-14, "float32"), (1e-16, "float64"), (1e-40, "float32")]
)
def test_a_penalty_next_to_zero_leaves_a_solution(tmp_path, penalty, precision):
    # Cells of random rows are uneven, and the largest has centres enough to need another ridge.
    settings = {**WIDE, "penalty": penalty, "precision": precision, "balance": False}
    model = on_disk(tmp_path / "job", **settings).fit(write_smooth(tmp_path / "rows"))
    assert "ridge raised" in fallbacks(model.report_)
    assert all(cell.converged for cell in model.report_)
    assert rmse(model.predict(TEST)) < 0.02


def test_falkon_solves_what_statistics_cannot(tmp_path):
    settings = {**WIDE, "kernel": Gaussian(3.0), "n_cells": 8, "n_centers": 240}
    fit = on_disk(tmp_path / "job", **settings).fit
    table = write_smooth(tmp_path / "rows", 4000)
    model = fit(table)
    assert "falkon in float64" in fallbacks(model.report_)
    assert rmse(model.predict(TEST)) < 0.02
    again = fit(table)  # from the same checkpoint
    np.testing.assert_array_equal(again.predict(TEST), model.predict(TEST))
    assert again.report_ == model.report_


def test_a_cell_too_large_for_memory_keeps_a_raised_ridge(tmp_path):
    settings = {**WIDE, "kernel": Gaussian(3.0), "n_cells": 8, "n_centers": 240}
    params = on_disk(tmp_path / "job", **settings).get_params()
    table = write_smooth(tmp_path / "rows", 4000)
    decided = decide(learn_table(table, params, 0, classify=False), params, 0)
    small = decided._replace(sizes=replace(decided.sizes, room=1.0))
    (tmp_path / "passes").mkdir()
    result, _ = run_passes(small, Checkpoint(str(tmp_path / "passes")))
    assert "ridge raised" in fallbacks(result.report)
    assert "falkon" not in fallbacks(result.report)
    predicted = result.model.predict(torch.tensor(TEST.to_numpy()))
    assert rmse(predicted[:, 0].numpy()) < 0.02


def test_an_automatic_penalty_is_one_that_statistics_carry(tmp_path):
    params = on_disk(tmp_path / "job", **WIDE).get_params()
    table = learn_table(write_smooth(tmp_path / "rows"), params, 0, classify=False)
    unfitted = decide(table, params, 0).unfitted
    log = TuningLog()
    assert bound_penalty(1e-3, unfitted, log) == 1e-3
    assert log.tried == []
    found = bound_penalty(5e-14, unfitted, log)
    shares = np.array(unfitted.sizes) / sum(unfitted.sizes)
    assert min(found / shares / list(map(smallest_penalty, unfitted.sizes))) == pytest.approx(1)
    assert log.tried == [{"step": "statistics", "penalty": found, "instead_of": 5e-14}]
