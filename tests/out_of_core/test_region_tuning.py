"""Lengthscale and penalty are chosen again on rows that are sorted by region."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ondisk import on_disk, rows, write
from parkrr import Gaussian, scan_parquet
from parkrr.data import ArraySource
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.fit import decide, run_passes
from parkrr.out_of_core.region_tuning import Candidate, left_out_error, nearest_rows, shortest
from parkrr.planning import disk_sizes, learn_table
from plain import PAPER
from reference import krr_weights

N, CELLS = 12_000, 24


@pytest.fixture(scope="module", autouse=True)
def small_regions():
    """Regions of some 2,500 rows, where by default none has fewer than 50,000."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_sizes, "LEAST_REGION", 1000)
        yield


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return scan_parquet(write(tmp_path_factory.mktemp("rows")), target="y")


def decided(table, folder, lengthscale, **changes):
    """What the sample decides, with another lengthscale, of a sample with a quarter of the rows."""
    model = on_disk(folder, n_cells=CELLS, n_centers="auto", **changes)
    params = model.get_params(deep=False)
    made = decide(learn_table(table, params, 0, classify=False), params, seed=0)
    sizes = replace(made.sizes, n_sample=N // 4)
    settings = replace(made.settings, kernel=Gaussian(lengthscale))
    return made._replace(sizes=sizes, settings=settings)


def passes(made, folder):
    folder.mkdir()
    return run_passes(made, Checkpoint(str(folder)))


def test_the_error_is_that_of_fits_without_each_row():
    X, y = rows(60)
    cell = ArraySource(torch.from_numpy(X), torch.from_numpy(y)[:, None])
    settings = replace(PAPER, n_cells=1, n_centers=60, kernel=Gaussian(0.8), penalty=1e-3)
    found = left_out_error(settings, cell, cell, 5)
    squares = []
    for row in range(55, 60):
        others = np.arange(60) != row
        K = settings.kernel(cell.X, cell.X).numpy()
        # The ridge lambda n is that of all 60 rows.
        weights = krr_weights(K[np.ix_(others, others)], y[others], 1e-3 * 60 / 59)
        squares.append((K[row, others] @ weights - y[row]) ** 2)
    assert found == pytest.approx(np.mean(squares), rel=1e-6)


def test_a_neighbourhood_is_the_nearest_rows_in_their_order():
    X = torch.tensor([[0.0], [5.0], [1.0], [-2.0], [9.0]])
    assert nearest_rows(X, torch.tensor([0.4]), 3).tolist() == [0, 2, 3]


def test_of_almost_equal_errors_the_shortest_lengthscale_is_taken():
    candidates = [
        Candidate(None, 1.0),
        Candidate(4.0, 2.0),
        Candidate(2.0, 3.0),
        Candidate(1.0, 4.0),
    ]
    assert shortest(candidates, [1.0, 1.001, 1.0015, 1.1]) == Candidate(2.0, 3.0)
    assert shortest(candidates, [1.0, 1.1, np.inf, 1.1]) == Candidate(None, 1.0)


def test_a_lengthscale_far_too_long_is_mended_on_the_sorted_rows(table, tmp_path):
    made = decided(table, tmp_path / "c", 12.0, kernel="gaussian", penalty="auto")
    result, settings = passes(made, tmp_path / "tuned")
    assert settings.kernel.lengthscale < 5.0
    assert result.model.kernel == settings.kernel
    plain, _ = passes(made._replace(choices=None), tmp_path / "plain")
    X, y = rows(2000, seed=1)
    errors = [
        float((each.model.predict(torch.from_numpy(X))[:, 0] - torch.from_numpy(y)).square().mean())
        for each in (result, plain)
    ]
    assert errors[0] < 0.5 * errors[1]


def test_what_is_fixed_stays_and_nothing_is_compared(table, tmp_path):
    made = decided(table, tmp_path / "c", 12.0)
    _, settings = passes(made, tmp_path / "passes")
    assert (settings.kernel, settings.penalty) == (Gaussian(12.0), 1e-6)
    assert not list((tmp_path / "passes").glob("tuning-*"))


def test_a_penalty_alone_is_chosen_behind_a_fixed_kernel(table, tmp_path):
    made = decided(table, tmp_path / "c", 2.0, penalty="auto")
    made = made._replace(settings=replace(made.settings, penalty=10.0))
    _, settings = passes(made, tmp_path / "passes")
    assert settings.kernel == Gaussian(2.0)
    assert settings.penalty < 1.0


def test_comparisons_that_are_finished_are_not_run_again(table, tmp_path):
    made = decided(table, tmp_path / "c", 2.0, kernel="gaussian", penalty="auto")
    first, _ = passes(made, tmp_path / "passes")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "passes").iterdir()}
    again, _ = run_passes(made, Checkpoint(str(tmp_path / "passes")))
    assert before == {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "passes").iterdir()
    }
    assert all(
        torch.equal(a, b) for a, b in zip(first.model.weights, again.model.weights, strict=True)
    )
