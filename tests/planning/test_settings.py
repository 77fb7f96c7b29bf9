"""Parameters become checked settings, and what is "auto" an open choice."""

import time

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.errors import ParameterError
from parkrr.kernels import FeatureMap, Gaussian, Laplacian, Linear, Matern, Polynomial, as_kernel
from parkrr.park import Coarse
from parkrr.partition import Blend
from parkrr.planning import settings as planning
from parkrr.planning.settings import (
    build_settings,
    check_blend,
    check_coarse,
    check_keep_statistics,
    check_precision,
    check_size,
    measure_spread,
    open_choices,
    size_fit,
    spend_time,
    tune_settings,
    tuning_seconds,
)
from parkrr.planning.sizes import EVEN
from plain import plain

rng = np.random.default_rng(0)


def params(**changes):
    return plain(**changes).get_params()


def rows(X):
    return ArraySource(torch.from_numpy(X), torch.from_numpy(X[:, :1]))


def test_parameters_that_are_named_leave_nothing_open():
    choices = open_choices(params(), 1000, 3)
    opens = (choices.lengthscale, choices.penalty, choices.learn_metric, choices.blend)
    assert (*opens, choices.coarse) == (False,) * 5
    assert choices.families == (Gaussian(),)


def test_an_automatic_kernel_is_one_of_four_families():
    choices = open_choices(params(kernel="auto"), 1000, 3)
    assert choices.lengthscale
    smooth_first = (Gaussian(), Matern(nu=2.5), Matern(nu=1.5), Laplacian())
    assert choices.families == smooth_first


LEARNING = [
    ("auto", "auto", 1000, 3, True),
    ("auto", "auto", 299, 3, False),
    ("auto", "auto", 999, 100, False),
    ("auto", "auto", 505, 101, True),
    ("auto", "auto", 504, 101, False),
    ("auto", "learned", 50, 3, True),
    ("gaussian", "auto", 1000, 3, True),
    ("gaussian", "auto", 299, 3, False),
    ("gaussian", "standard", 1000, 3, False),
    ("linear", "auto", 1000, 3, False),
    (Gaussian(2.0), "auto", 1000, 3, False),
    (Gaussian(2.0), "learned", 1000, 3, True),
    ("auto", "standard", 1000, 3, False),
]


@pytest.mark.parametrize(("kernel", "metric", "n", "d", "learns"), LEARNING)
def test_a_metric_is_learned_from_enough_rows(kernel, metric, n, d, learns):
    assert open_choices(params(kernel=kernel, metric=metric), n, d).learn_metric is learns


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "matern"])
@pytest.mark.parametrize("metric", ["auto", "standard", "euclidean", "learned", FeatureMap()])
def test_a_kernel_by_name_has_a_lengthscale_to_choose(name, metric):
    choices = open_choices(params(kernel=name, metric=metric), 1000, 3)
    assert (choices.families, choices.lengthscale) == ((as_kernel(name),), True)
    assert choices.metric is metric


@pytest.mark.parametrize("name", ["linear", "polynomial"])
def test_a_kernel_of_the_inner_product_by_name_has_standard_units(name):
    choices = open_choices(params(kernel=name, metric="auto"), 1000, 3)
    assert (choices.metric, choices.lengthscale) == ("standard", False)


@pytest.mark.parametrize("kernel", [Gaussian(), Laplacian(2.0), Polynomial(2), Linear()])
def test_an_instance_of_a_kernel_has_the_units_of_the_features(kernel):
    choices = open_choices(params(kernel=kernel, metric="auto"), 1000, 3)
    assert (choices.metric, choices.lengthscale) == ("euclidean", False)


def test_a_feature_map_stays():
    given = FeatureMap()
    assert open_choices(params(metric=given), 1000, 3).metric is given


def test_a_learned_metric_needs_a_radial_kernel():
    with pytest.raises(ParameterError, match="metric='learned' needs a radial kernel"):
        open_choices(params(kernel="linear", metric="learned"), 1000, 3)


@pytest.mark.parametrize(("blend", "expected"), [(1, Blend()), ("auto", Blend())])
def test_one_cell_and_auto_start_with_the_nearest(blend, expected):
    assert check_blend(blend) == expected


@pytest.mark.parametrize("blend", [3, 0, "none", None])
def test_another_blend_is_refused_with_what_to_write(blend):
    with pytest.raises(ParameterError, match=r"blend must be 1, 'auto' or a Blend.*Blend\(n_near"):
        check_blend(blend)


@pytest.mark.parametrize(
    ("coarse", "level"), [(0, None), ("auto", None), (50, Coarse(50)), (Coarse(7), Coarse(7))]
)
def test_a_coarse_level_is_a_number_of_centres(coarse, level):
    assert check_coarse(coarse) == level


@pytest.mark.parametrize(
    ("precision", "n", "dtype"),
    [
        ("auto", 10_000, torch.float64),
        ("auto", 10_001, torch.float32),
        ("float64", 10**6, torch.float64),
        ("float32", 10, torch.float32),
    ],
)
def test_many_rows_are_float32_unless_told_otherwise(precision, n, dtype):
    assert check_precision(precision, n) == dtype


@pytest.mark.parametrize(("kept", "expected"), [("auto", False), (True, True), (False, False)])
def test_statistics_are_kept_if_told(kept, expected):
    assert check_keep_statistics(kept) is expected


def test_statistics_are_kept_or_not():
    with pytest.raises(ParameterError, match="keep_statistics must be True, False or 'auto'"):
        check_keep_statistics("yes")


@pytest.mark.parametrize(("budget", "seconds"), [("auto", 40.0), (10.0, 5.0)])
def test_tuning_has_half_of_the_time_budget(budget, seconds):
    assert tuning_seconds(params(time_budget=budget)) == seconds


def test_settings_hold_the_parameters():
    given = params(n_cells=3, max_iter=7, tol=1e-3, balance=False, precision="float32")
    made = build_settings(given, open_choices(given, 90, 2), size_fit(given, 90, 2, 1, EVEN), 90, 5)
    assert (made.n_cells, made.n_centers, made.seed) == (3, 90, 5)
    assert (made.falkon.max_iter, made.falkon.tol) == (7, 1e-3)
    assert (made.penalty, made.dtype, made.balance) == (1e-6, torch.float32, False)


def test_nothing_open_is_not_tuned():
    given = params()
    choices = open_choices(given, 90, 2)
    made = build_settings(given, choices, size_fit(given, 90, 2, 1, EVEN), 90, 0)
    tuned, log = tune_settings(given, made, choices, rows(rng.normal(size=(90, 2))))
    assert tuned is made
    assert (log.tried, log.seconds) == ([], {})


def test_one_cell_is_even():
    assert measure_spread(params(), rows(rng.normal(size=(50, 2))), 1) == EVEN


def test_copies_of_one_row_are_one_cell():
    spread = measure_spread(params(balance=False), rows(np.ones((5000, 2))), 4)
    assert spread.largest == pytest.approx(4.0)
    assert spread.squares == pytest.approx(4.0**2 / 4)
    assert spread.cubes == pytest.approx(4.0**3 / 4)


def test_a_fit_larger_than_what_is_free_warns(monkeypatch):
    monkeypatch.setattr(planning, "free_bytes", lambda: 1e6)
    with pytest.warns(ResourceWarning, match="set max_memory to have it smaller"):
        check_size(params(), rows(rng.normal(size=(50, 2))))


def test_tuning_has_what_other_steps_leave_of_the_time_budget():
    assert tuning_seconds(params(time_budget=10.0), fitting_seconds=2.0) == 8.0
    assert tuning_seconds(params(time_budget=10.0), fitting_seconds=9.0) == 5.0


def test_seconds_that_have_passed_are_no_longer_in_the_time_budget():
    started = time.perf_counter() - 4.0
    assert spend_time(params(time_budget=10.0), started)["time_budget"] == pytest.approx(6.0, abs=1)
    assert spend_time(params(time_budget=2.0), started)["time_budget"] == pytest.approx(0.2)
    assert spend_time(params(), started)["time_budget"] == "auto"
