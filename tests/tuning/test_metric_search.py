"""The metric search: which descents start, which go on, and what cells decide."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import FeatureMap, Gaussian, Laplacian, Matern
from parkrr.kernels.feature_map import add_normal_scores
from parkrr.park import NystromModel
from parkrr.planning.settings import build_settings, open_choices
from parkrr.runtime import ChoiceProgress
from parkrr.tuning.log import Candidate, TuningLog
from parkrr.tuning.metric_search import (
    COMMON_BATCHES,
    EFFORTS,
    ComparedShape,
    DescentCandidate,
    DescentSteps,
    MetricSearch,
    count_descent_steps,
    count_screened_rows,
    leave_out_behind,
)
from plain import plain
from reference import refit_squares

N = 120
BALANCED = EFFORTS["balanced"]
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 3))
Y = np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(N, 1))
RAW = FeatureMap(torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
ONE_CELL = SimpleNamespace(n_cells=1, n_centers=N)
SCORES = add_normal_scores(RAW, torch.from_numpy(X))


def candidate(kernel=None, metric=RAW, map_name="standard", penalty=1e-3):
    kernel = kernel or Gaussian(1.0)
    Z = metric(torch.from_numpy(X[:2]), torch.float64)
    model = NystromModel(kernel, Z, torch.ones(2, 1, dtype=torch.float64))
    return Candidate(kernel, metric, penalty, 1.0, map_name, model)


def search(candidates, n=N, deadline=math.inf, seconds=math.inf, **changes):
    log = TuningLog(progress=ChoiceProgress(deadline=deadline))
    params = {"kernel": "auto", "penalty": "auto", "metric": "learned", **changes}
    params = plain().get_params() | params | {"progress": False, "engine": "local"}
    choices = open_choices(params, n, 3)
    settings = build_settings(params, choices, ONE_CELL, n, 0)
    rows = ArraySource(torch.from_numpy(X[:n]), torch.from_numpy(Y[:n]))
    return MetricSearch(settings, choices, rows, candidates, 0, log, seconds)


@pytest.mark.parametrize(
    ("n", "last", "other"), [(400, 40, 12), (2_000, 50, 15), (4_000, 100, 24), (40_000, 200, 24)]
)
def test_steps_are_all_there_are_where_the_budget_allows(n, last, other):
    assert count_descent_steps(n, [8, 4], 2, 1e9, BALANCED) == DescentSteps(8, 16, last, other)


def test_wide_rows_take_fewer_steps_for_the_same_seconds():
    narrow, wide = (count_descent_steps(20_000, [e] * 2, 2, 20.0, BALANCED) for e in (20, 600))
    assert wide.last < narrow.last
    assert wide.first < narrow.first


def test_fast_takes_a_quarter_of_the_steps_and_thorough_twice_as_many():
    fast, usual, twice = (count_descent_steps(8000, [8, 4], 2, 1e9, e) for e in EFFORTS.values())
    assert (fast.last, usual.last, twice.last) == (50, 200, 400)
    assert twice[:2] == usual[:2]  # early steps lead elsewhere if there are more of them


def test_no_step_is_taken_where_none_fits_the_budget():
    assert count_descent_steps(20_000, [20] * 2, 2, 1e-3, BALANCED) == DescentSteps(0, 0, 0, 0)
    assert search([candidate()], seconds=1e-6).learn_metric() == []


def test_the_place_where_the_clock_ends_a_search_is_recorded_once():
    searched = search([candidate()], deadline=-math.inf)
    searched.learn_metric()
    [stop] = [each for each in searched.log.tried if each["step"] == "time budget"]
    assert stop["stopped"].startswith("metric descent: standard, diagonal matrix, step 0 of 32")


def shapes(started):
    return [(each.start.map_name, each.shape, tuple(each.descent.matrix.shape)) for each in started]


def test_weights_are_learned_with_scores_and_matrices_without():
    started = search([candidate(), candidate(metric=SCORES, map_name="scores")]).start_descents()
    assert shapes(started) == [("standard", "full", (3, 3)), ("scores", "diagonal", (6,))]


def test_without_scores_weights_and_matrices_are_learned_from_the_same_columns():
    started = search([candidate()]).start_descents()
    assert shapes(started) == [("standard", "diagonal", (3,)), ("standard", "full", (3, 3))]


def test_no_matrix_is_learned_from_fewer_than_two_rows_for_each_entry():
    few, enough = (search([candidate()], n=n).start_descents() for n in (20, 30))
    assert [each.shape for each in few] == ["diagonal"]
    assert [each.shape for each in enough] == ["diagonal", "full"]


@pytest.mark.parametrize(("entries", "left"), [(9, ["full"]), (12, ["diagonal", "full"])])
def test_weights_far_behind_in_batches_stop_only_where_rows_are_many(entries, left):
    rows = SimpleNamespace(n_rows=15 * 9)
    weights = SimpleNamespace(error=2.0, rows=rows, matrix=torch.ones(3))
    matrix = SimpleNamespace(error=1.0, rows=rows, matrix=torch.ones(entries))
    started = [
        DescentCandidate(candidate(), "diagonal", weights),
        DescentCandidate(candidate(), "full", matrix),
    ]
    assert [each.shape for each in leave_out_behind(started)] == left


@pytest.mark.parametrize(
    ("none", "full", "selected"),
    [(1.0, 1.0, "diagonal"), (0.91, 1.0, "diagonal"), (0.89, 1.0, "none"), (1.0, 0.89, "full")],
)
def test_weights_are_selected_unless_an_error_is_lower_by_more_than_chance(none, full, selected):
    searched = search([candidate()])
    searched.validation_rows = 100
    errors = {"none": none, "diagonal": 1.0, "full": full}
    compared = [
        ComparedShape(candidate()._replace(error=error), shape) for shape, error in errors.items()
    ]
    assert compared[searched.select_shape(compared)].shape == selected


def test_the_first_candidate_stays_where_no_cell_compared_them():
    compared = [ComparedShape(candidate(), shape) for shape in ("none", "diagonal")]
    assert search([candidate()]).select_shape(compared) == 0


def test_a_matrix_is_learned_where_the_target_depends_on_a_sum_of_columns():
    searched = search([candidate()])
    searched.rows = ArraySource(searched.rows.X, torch.sin(2 * searched.rows.X.sum(1))[:, None])
    compared = searched.learn_metric()
    assert [each.shape for each in compared][:2] == ["diagonal", "full"]
    assert compared[searched.select_shape(compared)].shape == "full"


def test_descents_see_no_validation_row():
    searched = search([candidate()])
    [descent, _] = (each.descent for each in searched.start_descents())
    training = searched.rows.X[~searched.is_validation]
    assert 0 < int(searched.is_validation.sum()) < N
    torch.testing.assert_close(descent.rows.X, training)


def test_a_penalty_that_is_given_stays():
    [started, _] = search([candidate(penalty=1e-8)], penalty=1e-8).start_descents()
    assert started.descent.fixed
    assert started.descent.ridge == pytest.approx(1e-8 * N)


def test_an_open_penalty_starts_where_slopes_are_not_flat():
    [started, _] = search([candidate(penalty=1e-8)]).start_descents()
    assert started.descent.ridge == 1e-3


def test_no_descent_starts_from_a_single_training_row():
    assert search([candidate()], n=1).start_descents() == []


def test_matern_learns_the_metric_if_it_is_there():
    started = search([candidate(Gaussian(1.0)), candidate(Matern(2.0))]).start_descents()
    assert [each.start.kernel for each in started] == [Matern(2.0), Matern(2.0)]


def test_the_first_kernel_learns_the_metric_without_matern():
    started = search([candidate(Laplacian(1.0)), candidate(Gaussian(2.0))]).start_descents()
    assert [each.start.kernel for each in started] == [Laplacian(1.0), Laplacian(1.0)]


def test_other_kernels_start_from_the_best_matrix_and_keep_its_shape():
    searched = search([candidate(Matern(2.0)), candidate(Gaussian(1.0))])
    [_, full] = searched.start_descents()
    full.descent.matrix = 2 * full.descent.matrix
    [other] = searched.descend_others(full, 1, first_rows=100, last_rows=100)
    assert (other.start.kernel, other.shape) == (Gaussian(1.0), "full")
    assert len(other.descent.steps) == 1


@pytest.mark.parametrize(
    ("learned", "A"), [([2.0, 5.0], [[2, 0], [0, 5]]), ([[2.0, 1.0], [0.0, 5.0]], [[2, 1], [0, 5]])]
)
def test_columns_that_are_left_out_have_no_part_in_distances(learned, A):
    [diagonal, _] = search([candidate()]).start_descents()
    diagonal.descent.matrix = torch.tensor(learned, dtype=torch.float64)
    Z = diagonal._replace(columns=torch.tensor([0, 2])).metric(torch.from_numpy(X), torch.float64)
    np.testing.assert_allclose(Z, X[:, [0, 2]] @ np.array(A))


@pytest.mark.parametrize(
    ("n", "seconds", "rows"), [(500, 1e9, 500), (10**6, 1e9, 3000), (10**6, 40.0, 3000)]
)
def test_columns_are_screened_on_as_many_rows_as_there_is_time_for(n, seconds, rows):
    assert count_screened_rows(n, 200, seconds) == rows


def test_columns_are_screened_on_fewer_rows_in_a_short_time():
    assert count_screened_rows(10**6, 200, 10.0) < 3000


WIDE = np.random.default_rng(0).normal(size=(1000, 110))
OF_TWO = np.sin(2 * WIDE[:, :1]) + WIDE[:, 1:2] ** 2
NOISE = np.random.default_rng(1).normal(size=(1000, 1))


def wide_search(y, metric):
    raw = FeatureMap(torch.zeros(110).double(), torch.ones(110).double())
    model = NystromModel(Matern(20.0), torch.zeros(2, 110).double(), torch.ones(2, 1).double())
    params = plain().get_params() | {"kernel": "auto", "penalty": "auto", "metric": metric}
    choices = open_choices(params | {"progress": False, "engine": "local"}, 1000, 110)
    settings = build_settings(params, choices, SimpleNamespace(n_cells=1, n_centers=1000), 1000, 0)
    start = Candidate(Matern(20.0), raw, 1e-3, 1.0, "standard", model)
    rows = ArraySource(torch.from_numpy(WIDE), torch.from_numpy(y))
    return MetricSearch(settings, choices, rows, [start], 0, TuningLog(), math.inf)


def test_few_rows_of_many_features_learn_a_metric_of_those_that_matter():
    started = wide_search(OF_TWO, "auto").start_descents()
    assert [each.shape for each in started] == ["diagonal", "full"]
    assert {0, 1} <= set(started[0].columns.tolist())
    assert len(started[0].columns) < 60


def test_few_rows_of_many_features_learn_no_metric_where_none_stands_out():
    assert wide_search(NOISE, "auto").start_descents() == []


def test_a_metric_that_is_asked_for_is_learned_from_few_rows_of_many_features():
    [weighed] = wide_search(NOISE, "learned").start_descents()
    assert weighed.columns is None


def descended(kernel, error, searched):
    [diagonal, _] = searched.start_descents()
    descent = diagonal.descent.restart(kernel)
    descent.steps = [(error, 1.0)]
    return DescentCandidate(candidate(kernel), "diagonal", descent)


def kernels_of_which_the_second_fits(searched):
    return [
        descended(Gaussian(0.01), 0.1, searched),
        descended(Gaussian(1.0), 0.5, searched),
        descended(Gaussian(0.02), 0.3, searched),
    ]


def test_the_kernel_of_least_error_on_common_batches_is_selected():
    searched = search([candidate()])
    alike = kernels_of_which_the_second_fits(searched)
    assert searched.select_kernel(alike).start.kernel == Gaussian(1.0)


def test_errors_of_the_kernel_comparison_are_those_of_the_same_batches():
    searched = search([candidate()])
    alike = kernels_of_which_the_second_fits(searched)
    batches = alike[0].descent.restart(alike[0].start.kernel).draw_batches(COMMON_BATCHES, N)
    searched.select_kernel(alike)
    noted = [each["error"] for each in searched.log.tried if each["step"] == "kernel comparison"]
    assert noted == [each.descent.measure_error(batches) for each in alike]


def test_the_first_kernel_stays_where_the_time_is_over():
    late = search([candidate()], deadline=-math.inf)
    [one, other] = late.start_descents()
    assert late.select_kernel([one, other]) is one


def test_a_descent_gives_its_candidate_matrix_ridge_and_name():
    searched = search([candidate()])
    [each, _] = searched.start_descents()
    each.descent.matrix, each.descent.ridge = torch.full((3,), 2.0), 6.0
    each.descent.steps = [(1.0, 1.0)] * 7
    current = searched.current(each)
    assert current.metric.matrix.tolist() == [2.0, 2.0, 2.0]
    assert current.penalty == 6.0 / N
    assert current.map_name == "standard, diagonal matrix, step 7"


def test_nothing_descends_after_the_deadline():
    assert search([candidate()], deadline=-math.inf).learn_metric() == []


def test_the_error_in_cells_is_that_of_a_refit_over_the_baseline():
    searched = search([candidate()], penalty=1e-3)
    compared = searched.compare(candidate())
    v = searched.is_validation.numpy()
    ones = np.ones(N)
    squares = refit_squares(
        Gaussian(1.0), X[~v], Y[~v], ones[~v], X[~v], 1e-3 * N, X[v], Y[v], ones[v]
    )
    baseline = ((candidate().predict(torch.from_numpy(X[v])).numpy() - Y[v]) ** 2).sum()
    assert compared.error == pytest.approx(squares / baseline, rel=1e-5)
    assert compared.penalty == 1e-3
    assert searched.log.tried[-1]["step"] == "comparison on cells"


def test_another_lengthscale_is_chosen_only_if_it_lowers_the_error():
    searched = search([candidate()])
    stays = searched.compare(candidate(Gaussian(0.1)))
    moves = searched.compare(candidate(Gaussian(0.1)), (2.0,))
    assert stays.kernel == Gaussian(0.1)
    assert moves.kernel.lengthscale > 0.1
    assert moves.error < stays.error


def test_a_fixed_comparison_keeps_kernel_and_penalty():
    fixed = search([candidate()]).compare(candidate(), dtype=torch.float32, fixed=True)
    assert (fixed.kernel, fixed.penalty) == (Gaussian(1.0), 1e-3)


def test_a_candidate_stays_as_it_is_where_no_cell_can_compare_it():
    alone = candidate()
    assert search([alone], n=1).compare(alone) is alone


@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("float64", torch.float64)]
)
def test_a_precision_that_is_given_stays(precision, dtype):
    searched = search([candidate()], metric="standard", precision=precision)
    assert searched.run()[1] == dtype


def test_without_a_metric_to_learn_the_lengthscale_is_searched_twice():
    searched = search([candidate()], metric="standard")
    best, _ = searched.run()
    first, second = searched.log.tried
    assert second["error"] <= first["error"]
    assert best.map_name == "standard"


def divide_many(monkeypatch, n_cells, most):
    monkeypatch.setattr("parkrr.tuning.metric_search.MANY_CELLS", most)
    searched = search([candidate()])
    names = {"kernel": Gaussian(1.0), "centroids": "uniform", "n_candidates": 1}
    settings = replace(searched.settings, n_cells=n_cells, **names)
    many = torch.from_numpy(np.random.default_rng(1).normal(size=(4000, 3)))
    return [cell.index for cell in searched.divide(settings, ArraySource(many, many[:, :1]))]


def test_many_cells_to_compare_on_are_inside_of_regions(monkeypatch):
    regions, cells = divide_many(monkeypatch, 4, 4), divide_many(monkeypatch, 16, 4)
    assert len(regions) < len(cells)
    assert torch.equal(torch.cat(cells).sort().values, torch.arange(4000))
    region_of = torch.empty(4000, dtype=torch.int64)
    region_of[torch.cat(regions)] = torch.arange(len(regions)).repeat_interleave(
        torch.tensor([len(region) for region in regions])
    )
    assert [len(region_of[cell].unique()) for cell in cells] == [1] * len(cells)


def test_copies_of_one_row_are_one_cell_to_compare_on(monkeypatch):
    monkeypatch.setattr("parkrr.tuning.metric_search.MANY_CELLS", 4)
    searched = search([candidate()])
    copies = torch.ones(2000, 3, dtype=torch.float64)
    settings = replace(searched.settings, kernel=Gaussian(1.0), n_cells=16, centroids="uniform")
    [cell] = searched.divide(settings, ArraySource(copies, copies[:, :1]))
    assert cell.n_rows == 2000
