"""Intervals, quantiles, standard deviations and novelty: do they hold?"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import reference
from parkrr import ParKRegressor, load, scan_parquet
from parkrr.errors import ParameterError
from parkrr.kernels import FeatureMap, Gaussian, Laplacian, Linear, Matern, Polynomial
from parkrr.park import LeaveOneOutRows, Model
from parkrr.uncertainty.intervals import (
    LEVELS,
    Intervals,
    Posterior,
    cell_factors,
    conformal_quantiles,
    last_pivot,
    left_out_complements,
    schur_complement,
)
from plain import PLAIN


def uneven(n, seed):
    """Rows whose noise is six times as large on one side."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    noise = np.where(X[:, 0] > 0, 0.3, 0.05)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + noise * rng.normal(size=n)


def settled(**changes):
    given = {"kernel": Gaussian(1.0), "n_cells": 6, "random_state": 0}
    return ParKRegressor(**{**PLAIN, "penalty": 1e-5, **given, **changes})


@pytest.fixture(scope="module")
def model():
    return settled().fit(*uneven(6000, 0))


def coverage(model, X, y, target):
    lower, upper = model.predict_interval(X, target)
    return (lower <= y) & (y <= upper)


PATHS = [
    {},
    {"n_cells": 1},
    {"n_centers": 300, "solver": "direct"},
    {"n_centers": 600, "solver": "falkon"},
]


@pytest.mark.parametrize("changes", PATHS)
def test_an_interval_holds_new_rows_as_often_as_requested(changes):
    model = settled(**changes).fit(*uneven(6000, 0))
    X, y = uneven(20_000, 1)
    held = [coverage(model, X, y, target).mean() for target in (0.8, 0.9, 0.95)]
    np.testing.assert_allclose(held, [0.8, 0.9, 0.95], atol=0.02)


def test_it_holds_in_each_cell(model):
    X, y = uneven(40_000, 2)
    cell = model.model_.route(torch.from_numpy(X)).numpy()
    held = np.bincount(cell, coverage(model, X, y, 0.9)) / np.bincount(cell)
    assert np.abs(held - 0.9).mean() < 0.02


def test_it_is_wide_where_errors_are_large(model):
    X, _ = uneven(5000, 3)
    lower, upper = model.predict_interval(X)
    quiet = X[:, 0] < -0.5
    loud = X[:, 0] > 0.5
    assert np.mean((upper - lower)[loud]) > 3 * np.mean((upper - lower)[quiet])


def test_it_is_shorter_than_one_of_constant_width():
    model = settled(n_cells=1).fit(*uneven(3000, 0))
    widths = {r["scale"]: r["width"] for r in model.chosen_.tried if r["step"] == "intervals"}
    assert model.chosen_.uncertainty == min(widths, key=widths.get)
    assert widths[model.chosen_.uncertainty] < 0.85 * widths["constant"]


def test_a_higher_coverage_is_wider(model):
    X, _ = uneven(1000, 4)
    inner, outer = model.predict_interval(X, 0.8), model.predict_interval(X, 0.95)
    assert np.mean(outer[1] - outer[0]) > np.mean(inner[1] - inner[0])


def test_quantiles_are_in_order_and_hold_their_share(model):
    X, y = uneven(20_000, 5)
    Q = model.predict_quantile(X, [0.1, 0.5, 0.9])
    assert (np.diff(Q, axis=1) >= 0).all()
    np.testing.assert_allclose((y[:, None] <= Q).mean(0), [0.1, 0.5, 0.9], atol=0.02)


def test_a_standard_deviation_is_that_of_the_errors(model):
    X, y = uneven(20_000, 6)
    mean, std = model.predict(X, return_std=True)
    loud = X[:, 0] > 1
    assert np.mean(std[loud]) == pytest.approx(np.std((y - mean)[loud]), rel=0.15)
    np.testing.assert_array_equal(mean, model.predict(X))


def test_several_targets_have_several_intervals():
    X, y = uneven(1500, 0)
    model = settled().fit(X, np.column_stack([y, 100 * y]))
    lower, upper = model.predict_interval(X[:10])
    assert lower.shape == upper.shape == (10, 2)
    assert model.predict_quantile(X[:10], [0.2, 0.8]).shape == (10, 2, 2)
    np.testing.assert_allclose((upper - lower)[:, 1], 100 * (upper - lower)[:, 0], rtol=1e-6)


def test_saving_changes_no_interval(model, tmp_path):
    X, _ = uneven(300, 7)
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    np.testing.assert_array_equal(again.predict(X, return_std=True), model.predict(X, True))
    np.testing.assert_array_equal(again.novelty(X), model.novelty(X))
    assert again.chosen_.uncertainty == model.chosen_.uncertainty


@pytest.mark.parametrize("target", [0.0, 1.0, -1, np.nan])
def test_a_coverage_that_cannot_be_is_refused(model, target):
    with pytest.raises(ParameterError, match="coverage must be above 0 and at most"):
        model.predict_interval([[0.0, 0.0]], target)


def test_few_rows_cannot_promise_much():
    X, y = uneven(20, 0)
    model = settled(n_cells=1).fit(X, y)
    model.predict_interval(X, 0.9)
    with pytest.raises(
        ParameterError, match=r"at most 0\.904 after a fit with 20 leave-one-out rows"
    ):
        model.predict_interval(X, 0.91)


def level_of(z, level):
    return conformal_quantiles(z, np.ones(len(z)))[np.searchsorted(LEVELS, level - 1e-9)]


@pytest.mark.parametrize("level", [0.9, 0.95, 0.975])
def test_quantiles_are_those_of_split_conformal_prediction(level):
    z = np.random.default_rng(0).normal(size=199)
    assert level_of(z, level) == reference.conformal_end(z, level)
    assert level_of(z, 1 - level) == -reference.conformal_end(-z, level)


@pytest.mark.parametrize("coverage", [0.9, 0.99, 0.995, 0.998])
def test_no_end_lies_beyond_the_leave_one_out_rows(coverage):
    z = np.random.default_rng(0).exponential(size=50_000)
    nothing = torch.ones(1, 1, dtype=torch.float64)
    table = torch.from_numpy(conformal_quantiles(z, np.ones(len(z))))[:, None]
    posterior = Posterior(nothing, nothing[0])
    bars = Intervals(posterior, "constant", None, nothing, table, len(z), 1.0, False)
    low, high = (float(bars.scaled_quantile(level)) for level in bars.end_levels(coverage))
    assert np.mean((low <= z) & (z <= high)) >= coverage - 1e-4


def test_a_cell_in_which_no_row_was_left_out_has_the_factor_of_all():
    Z, cell = torch.ones(4, 1, dtype=torch.float64), torch.tensor([0, 0, 2, 2])
    torch.testing.assert_close(
        cell_factors(Z, torch.ones(4), cell, 3), torch.ones(3, 1, dtype=torch.float64)
    )


def test_a_weight_counts_as_copies_do():
    rng = np.random.default_rng(0)
    z, w = rng.normal(size=50), rng.integers(1, 4, 50)
    weighted = conformal_quantiles(z, w.astype(float))
    np.testing.assert_array_equal(weighted, conformal_quantiles(z.repeat(w), np.ones(w.sum())))


KERNELS = [Gaussian(2.0), Laplacian(2.0), Matern(2.0, nu=2.5), Polynomial(degree=2), Linear()]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_schur_complement_is_that_of_the_formula(kernel):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(5, 3)), rng.normal(size=(20, 3))
    K = np.stack([reference.kernel_matrix(kernel, *[np.vstack([x, Z])] * 2) for x in X])
    found = schur_complement(kernel, torch.from_numpy(X), torch.from_numpy(Z), 0.1, leave_out=False)
    np.testing.assert_allclose(found.numpy(), reference.last_pivots(K, 0.1), rtol=1e-4, atol=1e-7)
    pivots = last_pivot(torch.from_numpy(K), 0.1)
    np.testing.assert_allclose(pivots.numpy(), found.numpy(), rtol=1e-6)


def test_a_row_is_not_its_own_neighbour_when_it_is_a_centre():
    Z = torch.from_numpy(np.random.default_rng(0).normal(size=(10, 3)))
    own = schur_complement(Gaussian(), Z, Z, 1e-6, leave_out=False)
    others = schur_complement(Gaussian(), Z, Z, 1e-6, leave_out=True)
    assert own.max() < 1e-5 < others.min()


def test_no_row_of_a_group_is_a_neighbour_of_another_when_the_group_is_left_out():
    Z = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 3)))
    none = torch.zeros(12, 1, dtype=torch.float64)
    model = Model(Gaussian(), FeatureMap(), Z[:1], [Z], [none], none[0])
    groups = torch.arange(12) // 4
    cell = torch.zeros(12, dtype=torch.int64)
    left_out = LeaveOneOutRows(Z, none, None, cell, none, groups=groups)
    noise = torch.full((1,), 0.1, dtype=torch.float64)
    found = left_out_complements(model, left_out, noise, n_threads=1)
    first = schur_complement(Gaussian(), Z[:4], Z[4:], 0.1, leave_out=False)
    last = schur_complement(Gaussian(), Z[8:], Z[:8], 0.1, leave_out=False)
    torch.testing.assert_close(found[:4], first)
    torch.testing.assert_close(found[8:], last)


def test_quantiles_of_groups_are_moved_outwards_by_a_group():
    z = np.arange(100.0)  # ten groups of ten rows
    by_group = conformal_quantiles(z, np.ones(100), own=10.0)
    level = np.searchsorted(LEVELS, 0.8 - 1e-9)
    assert by_group[level] == np.sort(z)[int(np.ceil(0.8 * 110)) - 1]


def test_novelty_is_zero_at_centres_and_one_far_away(model):
    X, _ = uneven(500, 8)
    centres = uneven(6000, 0)[0][:500]  # every row of the fit is one
    seen, between, far = (model.novelty(rows) for rows in (centres, X, X + 100))
    assert seen.max() < 1e-6
    assert between.max() < 0.5
    np.testing.assert_allclose(far, 1, atol=1e-6)


@pytest.mark.parametrize("solver", ["auto", "falkon"])
def test_predictions_of_files_are_those_of_frames(tmp_path, solver):
    X, y = uneven(9000, 0)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    model = settled(n_centers=300, checkpoint=tmp_path / "c", solver=solver).fit(rows)
    outputs = ("prediction", "interval", "std", "novelty")
    model.predict_to(rows, tmp_path / "out", outputs=outputs, coverage=0.8)
    found = pq.read_table(tmp_path / "out" / "part-00000.parquet")
    frame = table.select(["a", "b"])
    mean, std = model.predict(frame, return_std=True)
    lower, upper = model.predict_interval(frame, 0.8)
    expected = {"prediction": mean, "lower": lower, "upper": upper, "std": std}
    for name, values in {**expected, "novelty": model.novelty(frame)}.items():
        np.testing.assert_allclose(np.array(found[name]), values, rtol=1e-6, atol=1e-8)
    assert np.mean((lower <= y) & (y <= upper)) == pytest.approx(0.8, abs=0.05)  # rows seen


def test_novelty_is_a_number_where_all_centres_are_zero():
    X = np.zeros((40, 2))
    model = settled(kernel=Linear(), n_cells=1).fit(X, np.ones(40))
    np.testing.assert_array_equal(model.novelty([[0.0, 0.0], [1.0, 1.0]]), [0, 1])


def test_a_coverage_that_cannot_be_leaves_no_folder_behind(model, tmp_path):
    pq.write_table(pa.table({"a": [1.0], "b": [1.0]}), tmp_path / "x.parquet")
    rows = scan_parquet(tmp_path / "x.parquet")
    with pytest.raises(ParameterError, match="coverage must be"):
        model.predict_to(rows, tmp_path / "out", outputs=["interval"], coverage=1.0)
    assert not (tmp_path / "out").exists()


def test_a_column_of_outputs_cannot_be_a_key(model, tmp_path):
    pq.write_table(pa.table({"a": [1.0], "b": [1.0], "lower": [1]}), tmp_path / "x.parquet")
    rows = scan_parquet(tmp_path / "x.parquet", features=["a", "b"])
    with pytest.raises(ParameterError, match="keys must not hold 'lower'"):
        model.predict_to(rows, tmp_path / "out", keys=["lower"], outputs=["interval"])
    with pytest.raises(ParameterError, match="outputs must be one of"):
        model.predict_to(rows, tmp_path / "out", outputs=["probability"])


def repeated(n, seed):
    """Rows that are there three times."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    return X.repeat(3, 0), y.repeat(3)


def test_copies_of_rows_do_not_shorten_intervals():
    X, y = repeated(200, 0)
    new_X, new_y = repeated(1000, 1)
    model = settled(kernel=Gaussian(), metric="standard", penalty="auto", n_cells=1).fit(X, y)
    assert coverage(model, new_X, new_y, 0.9).mean() > 0.85


@pytest.mark.parametrize("n", [20, 40])
def test_few_rows_on_which_everything_was_chosen_cover_as_requested(n):
    held = []
    for seed in range(25):
        X, y = repeated(n, seed)
        new_X, new_y = repeated(500, 1000 + seed)
        model = ParKRegressor(progress=False, random_state=seed).fit(X[::3], y[::3])
        held.append(coverage(model, new_X, new_y, 0.9).mean())
    assert np.mean(held) > 0.875


def loud_and_quiet(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 1]) + np.where(X[:, 0] > 0, 1.0, 0.05) * rng.normal(size=n)


def test_loud_and_quiet_rows_are_covered_alike():
    given = {"kernel": Gaussian(0.5), "penalty": 1e-3, "n_cells": 1, "n_centers": 200}
    model = settled(**given).fit(*loud_and_quiet(8000, 0))
    X, y = loud_and_quiet(8000, 1)
    held = coverage(model, X, y, 0.9)
    assert min(held[X[:, 0] > 0].mean(), held[X[:, 0] <= 0].mean()) > 0.86
