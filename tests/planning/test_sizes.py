"""Cells and centres of a fit in memory, its bytes and its seconds."""

from dataclasses import replace

import numpy as np
import pytest

from parkrr.errors import BudgetError
from parkrr.planning.machine_speed import MachineSpeed
from parkrr.planning.sizes import (
    EVEN,
    INDEX_BYTES,
    LIBRARIES_BYTES,
    CellSpread,
    FitSize,
    SizeLimits,
    choose_sizes,
    estimate_bytes,
    estimate_seconds,
    model_bytes,
)

STEADY = MachineSpeed(
    comparison=1e-3,
    descent_step=1e-3,
    near=1e-9,
    distance=1e-9,
    value=1e-9,
    short_value=1e-9,
    product=1e-10,
    schur=1e-5,
)
SIZE = FitSize(
    n=200_000,
    d=9,
    t=1,
    n_cells=100,
    n_centers=200_000,
    spread=CellSpread(2.0, 6.0, 1.3, 2.0),
    float64=False,
    cores=2,
    families=3,
    learns=True,
    chooses=True,
    tries=True,
    keeps=False,
    tuning_seconds=40.0,
)
SETTLED = replace(SIZE, learns=False, chooses=False, tries=False, families=0, spread=EVEN)


def choose(size=SIZE, cells=None, centers=None, seconds=None, memory=None, **changes):
    return choose_sizes(size, cells, centers, seconds, memory, **changes)


@pytest.mark.parametrize(
    ("n", "cells"),
    [(100, 1), (14_000, 1), (20_000, 5), (100_000, 25), (200_000, 100), (5_000_000, 2500)],
)
def test_without_a_budget_cells_are_of_one_four_or_two_thousand_rows(n, cells):
    assert choose(replace(SIZE, n=n)).n_cells == cells


@pytest.mark.parametrize(("n", "centers"), [(100, 100), (200_000, 200_000), (5_000_000, 3_000_000)])
def test_every_row_is_a_centre_up_to_three_million(n, centers):
    assert choose(replace(SIZE, n=n)).n_centers == centers


def test_a_bounded_model_has_as_many_centres_as_it_may():
    size = choose(max_model_size=1e6)
    # Normal scores stand beside 9 features; each cell but the last may have a centre more.
    assert size.n_centers == int(1e6 / (8 * 18 + 8)) - size.n_cells + 1
    assert model_bytes(size) <= 1e6
    assert choose(centers=200_000, max_model_size=1e6).n_centers == 200_000


def test_a_cell_too_large_for_every_row_has_a_bounded_number_of_centres():
    limits = SizeLimits(one_cell=100, large_cell_centers=40)
    assert choose(replace(SIZE, n=300), cells=2, limits=limits).n_centers == 80


def test_statistics_that_are_kept_bound_the_centres_of_a_cell():
    assert choose(replace(SIZE, keeps=True), cells=10).n_centers == 5000


def test_sizes_that_are_given_stay():
    size = choose(cells=7, centers=900)
    assert (size.n_cells, size.n_centers) == (7, 900)


@pytest.mark.parametrize("budget", [20.0, 200.0])
def test_all_steps_but_the_searches_take_half_of_the_time_budget(budget):
    seconds = estimate_seconds(choose(seconds=budget, speed=STEADY), STEADY)
    del seconds["sample search"], seconds["metric search"]
    assert sum(seconds.values()) <= budget / 2


def test_a_coarse_level_is_not_tried_where_it_does_not_fit_the_time_budget():
    assert choose(seconds=1000.0, speed=STEADY).tries
    assert not choose(seconds=0.5, speed=STEADY).tries


def test_a_larger_time_budget_gives_larger_cells():
    assert choose(seconds=400.0, speed=STEADY).n_cells < choose(seconds=40.0, speed=STEADY).n_cells


@pytest.mark.parametrize("memory", [7e8, 1e9, 3e9])
def test_sizes_keep_the_memory(memory):
    assert estimate_bytes(choose(replace(SIZE, n=14_000), memory=memory)) <= memory


WAYS_OUT = [
    (SIZE, None, "or set kernel, penalty, metric, blend and coarse"),
    (SETTLED, None, "or fit files"),
    (SETTLED, 3, "or leave n_cells and n_centers to be chosen, or lower n_centers"),
]


@pytest.mark.parametrize(("size", "cells", "way_out"), WAYS_OUT)
def test_too_little_memory_is_refused_with_a_way_out(size, cells, way_out):
    with pytest.raises(BudgetError, match=f"max_memory must be at least .* raise it, {way_out}"):
        choose(size, cells=cells, memory=1e6)


@pytest.mark.parametrize("n_cells", [1, 4])
def test_bytes_are_those_of_the_arrays_of_a_fit(n_cells):
    n, d, cores = 4000, 9, 2
    size = replace(
        SETTLED, n=n, n_centers=n, n_cells=n_cells, spread=CellSpread(1.0, 2.0, 1.0, 1.0)
    )
    rows = n // n_cells
    centers, weights = np.empty((n, d), np.float32), np.empty((n, 1))
    matrices = [np.empty((rows, rows + 1)) for _ in range(cores)]
    model = 2 * (centers.nbytes + weights.nbytes)  # as tasks return it, and joined
    at_once = sum(matrix.nbytes for matrix in matrices)
    expected = LIBRARIES_BYTES + model + at_once + INDEX_BYTES * n
    assert estimate_bytes(size) == pytest.approx(expected)


def test_kept_statistics_are_a_matrix_of_every_cell():
    size = replace(SETTLED, n=4000, n_centers=400, n_cells=4)
    matrices = [np.empty((100, 100 + 1)) for _ in range(4)]
    more = estimate_bytes(replace(size, keeps=True)) - estimate_bytes(size)
    assert more == pytest.approx(sum(matrix.nbytes for matrix in matrices))


def test_tuning_takes_memory():
    assert estimate_bytes(replace(SETTLED, chooses=True)) > estimate_bytes(SETTLED)


def test_more_rows_in_a_cell_take_longer_and_more_memory():
    small, large = replace(SIZE, n_cells=100), replace(SIZE, n_cells=20)
    assert estimate_seconds(large, STEADY)["cells"] > estimate_seconds(small, STEADY)["cells"]
    assert estimate_bytes(large) > estimate_bytes(small)


def test_a_fit_with_nothing_open_has_no_steps_of_tuning():
    assert list(estimate_seconds(SETTLED, STEADY)) == ["partition", "cells", "uncertainty"]


def test_steps_of_descents_are_counted_from_the_seconds_of_tuning():
    short, long = (replace(SIZE, tuning_seconds=s) for s in (0.3, 1e9))
    slow = replace(STEADY, descent_step=1.0)
    shorter, longer = (estimate_seconds(size, slow)["metric search"] for size in (short, long))
    assert shorter < longer / 5


def test_two_cells_take_no_coarse_comparison():
    assert estimate_seconds(replace(SIZE, n_cells=2), STEADY)["coarse comparison"] == 0.0


@pytest.mark.parametrize(("solver", "iterates"), [("direct", False), ("falkon", True)])
def test_a_solver_that_is_given_decides_whether_cells_iterate(solver, iterates):
    assert replace(SIZE, solver=solver).iterates is iterates


@pytest.mark.parametrize(("d", "width", "matrices"), [(9, 18, 2), (100, 200, 2), (101, 101, 1)])
def test_scores_and_matrices_are_for_up_to_a_hundred_features(d, width, matrices):
    size = replace(SIZE, d=d)
    assert (size.width, size.matrices) == (width, matrices)
