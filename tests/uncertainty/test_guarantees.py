"""Does the theorem that a guarantee names hold, and is the rest as documented?"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import reference
from parkrr import Blend, ParKRegressor, load, scan_parquet
from parkrr.data import ArraySource
from parkrr.errors import ParameterError
from parkrr.estimators.base import fit_rows_leaving_out
from parkrr.kernels import Gaussian, Linear
from parkrr.uncertainty import keep_leave_one_out_fits
from parkrr.uncertainty.conformal import calibrate, group_cells, weighted_rank
from plain import PLAIN

GUARANTEES = ["split", "cell", "jackknife+"]


def wave(n, seed, d=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


def settled(guarantee, **changes):
    given = {"kernel": Gaussian(1.0), "penalty": 1e-3, "n_cells": 4, "random_state": 0}
    return ParKRegressor(**{**PLAIN, **given, "guarantee": guarantee, **changes})


def coverage(model, X, y, target=0.9):
    lower, upper = model.predict_interval(X, target)
    return np.mean((lower <= y) & (y <= upper))


@pytest.fixture(scope="module", params=GUARANTEES)
def model(request):
    return settled(request.param).fit(*wave(800, 0))


# The formulas.


@pytest.mark.parametrize("weights", [None, "given"])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Linear()], ids=repr)
def test_jackknife_plus_equals_explicit_refits(kernel, weights):
    X, y = wave(40, 0)
    T, _ = wave(25, 1)
    w = np.ones(40) if weights is None else np.random.default_rng(2).uniform(0.5, 2, 40)
    model = settled("jackknife+", kernel=kernel, penalty=1e-2, n_cells=1, fit_intercept=False)
    found = model.fit(X, y, sample_weight=w if weights else None).predict_interval(T, 0.8)
    expected = reference.jackknife_plus(kernel, X, y, w / w.mean(), 1e-2 * 40, T, 0.2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


def fit_in_parts(seen, others, penalty, **changes):
    params = settled("jackknife+", penalty=penalty, **changes).get_params(deep=False)
    return fit_rows_leaving_out(seen, others, params, 0, None).result


@pytest.mark.parametrize(
    "changes",
    [
        {"n_cells": 3},
        {"n_cells": 3, "n_centers": 60},
        {"n_cells": 3, "blend": Blend(2, 0.5)},
        {"n_cells": 1, "n_centers": 40, "coarse": 20},
    ],
)
def test_the_fit_without_a_row_is_the_fit_to_the_other_rows(changes):
    rows = ArraySource(*(torch.from_numpy(a) for a in (wave(160, 0)[0], wave(160, 0)[1][:, None])))
    seen, others = rows.rows(slice(0, 130)), rows.rows(slice(130, None))
    result = fit_in_parts(seen, others, 1e-3, **changes)
    fits = keep_leave_one_out_fits(result.influence, torch.zeros(30, 1))
    T = torch.from_numpy(wave(20, 1)[0])
    H = fits.influence(result.model, result.model.map_rows(T))  # (20, 30)
    for i in (0, 11, 29):
        mapped = result.model.map_rows(others.X)
        row = int((mapped == result.left_out.X[i]).all(1).nonzero())
        kept = ArraySource(others.X[np.arange(30) != row], others.Y[np.arange(30) != row])
        again = fit_in_parts(seen, kept, 1e-3 * 160 / 159, **changes).model.predict(T)
        found = result.model.predict(T) - H[:, i : i + 1] * fits.changes[i]
        np.testing.assert_allclose(found, again, rtol=0, atol=1e-8)


def test_the_rank_is_that_of_split_conformal_prediction():
    z = np.random.default_rng(0).normal(size=57)
    for level in (0.5, 0.8, 0.9, 0.95):
        found = weighted_rank(torch.from_numpy(z)[:, None], torch.ones(57).double(), level)
        assert float(found) == reference.conformal_end(z, level)


def test_the_new_row_counts_as_the_heaviest():
    z, w = torch.arange(1.0, 6.0)[:, None].double(), torch.tensor([1.0, 1, 1, 1, 4]).double()
    assert float(weighted_rank(z, w, 4 / 12)) == 4.0
    assert float(weighted_rank(z, w, 8 / 12)) == 5.0
    scores = calibrate("split", z, w, torch.zeros(5).long(), torch.zeros(1).long())
    assert scores.largest_coverage == pytest.approx(8 / 12)


def test_small_cells_are_grouped_and_large_ones_are_not():
    C = torch.tensor([[0.0, 0], [1, 0], [10, 0], [11, 0]])
    assert group_cells(C, np.array([200.0, 200, 200, 200]), 100).unique().numel() == 4
    few = group_cells(C, np.array([60.0, 60, 60, 60]), 100)
    assert few[0] == few[1] != few[2] == few[3]
    assert group_cells(C, np.array([10.0, 10, 10, 10]), 100).unique().numel() == 1


# What they promise.


def test_coverage_is_what_the_theorem_says(model):
    T, u = wave(4000, 1)
    assert 0.85 < coverage(model, T, u) < 0.95


def test_split_coverage_over_many_fits_is_exact():
    held = []
    for seed in range(60):
        X, y = wave(60, seed)
        model = settled("split", n_cells=1, penalty=1e-2, random_state=seed).fit(X, y)
        held.append(coverage(model, *wave(50, 1000 + seed), 0.8))
    expected = np.ceil(0.8 * 31) / 31  # of 30 rows set aside
    assert np.mean(held) == pytest.approx(expected, abs=3 * np.std(held) / 60**0.5)


def test_where_the_plain_jackknife_fails_jackknife_plus_holds():
    """As many features as rows: predictions swing, leave-one-out residuals do not tell."""
    plain, plus = [], []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        X, T = rng.normal(size=(2, 40, 40))
        beta = rng.normal(size=40) / 40**0.5
        y, u = X @ beta + 0.3 * rng.normal(size=40), T @ beta + 0.3 * rng.normal(size=40)
        given = {"kernel": Linear(), "penalty": 1e-9, "n_cells": 1, "fit_intercept": False}
        model = settled("jackknife+", **given).fit(X, y)
        plus.append(coverage(model, T, u))
        size = np.sort(model.intervals_.jackknife.residuals[:, 0].numpy())[36]
        plain.append(np.mean(np.abs(model.predict(T) - u) <= size))
    assert np.mean(plain) < 0.75
    assert np.mean(plus) > 0.8  # 1 - 2 alpha


@pytest.mark.parametrize("guarantee", ["split", "cell"])
def test_rows_set_aside_are_in_no_fit(guarantee):
    X, y = wave(500, 0)
    model = settled(guarantee).fit(X, y)
    fitted = sum(cell.rows for cell in model.report_)
    [row] = [one for one in model.chosen_.tried if one["step"] == "guarantee"]
    assert (fitted, row["rows"]) == (400, 100)
    centres = {tuple(z) for Z in model.model_.centers for z in (Z + 0).numpy().round(9).tolist()}
    assert len(centres) == 400


def test_jackknife_plus_fits_all_rows():
    model = settled("jackknife+").fit(*wave(500, 0))
    assert sum(cell.rows for cell in model.report_) == 500
    assert model.intervals_.jackknife.n == 100


def test_without_choices_jackknife_plus_leaves_out_every_row():
    model = settled("jackknife+", n_cells=1, fit_intercept=False).fit(*wave(120, 0))
    assert model.intervals_.jackknife.n == 120


def test_targets_of_rows_set_aside_do_not_become_codes():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"level": rng.integers(0, 300, 900).astype(str), "x": rng.normal(size=900)}
    )
    y = rng.normal(size=900)
    given = {"kernel": Gaussian(), "penalty": "auto", "metric": "standard", "n_cells": 1}
    model = settled("split", **given).fit(frame[:800], y[:800])
    assert coverage(model, frame[800:], y[800:]) == pytest.approx(0.9, abs=0.06)


def test_the_order_of_rows_does_not_decide_which_are_set_aside():
    X, y = wave(300, 0)
    T, _ = wave(20, 1)
    order = np.random.default_rng(0).permutation(300)
    given = {"n_cells": 1, "n_centers": 10**6}
    first = settled("split", **given).fit(X, y).predict_interval(T)
    again = settled("split", **given).fit(X[order], y[order]).predict_interval(T)
    np.testing.assert_allclose(first, again, atol=1e-6)


# What works with them, and what does not.


def test_saving_keeps_the_guarantee(model, tmp_path):
    T, _ = wave(50, 2)
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    assert again.guarantee == again.intervals_.guarantee == model.guarantee
    np.testing.assert_array_equal(again.predict_interval(T), model.predict_interval(T))
    np.testing.assert_array_equal(again.predict(T, True), model.predict(T, True))


def test_the_parameters_chosen_hold_the_guarantee(model):
    assert model.chosen_.params["guarantee"] == model.guarantee


def test_files_in_memory_have_it_too(tmp_path):
    X, y = wave(800, 0)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), tmp_path / "rows.parquet")
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    model = settled("split").fit(rows)
    model.predict_to(rows, tmp_path / "out", outputs=["interval"], coverage=0.8)
    found = pq.read_table(tmp_path / "out")
    lower, upper = model.predict_interval(pa.table({"a": X[:, 0], "b": X[:, 1]}), 0.8)
    np.testing.assert_allclose(found["lower"].to_numpy(), lower)
    np.testing.assert_allclose(found["upper"].to_numpy(), upper)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_files_on_disk_are_refused(guarantee, tmp_path):
    X, y = wave(100, 0)
    pq.write_table(pa.table({"a": X[:, 0], "y": y}), tmp_path / "rows.parquet")
    rows = scan_parquet(tmp_path / "rows.parquet", target="y")
    with pytest.raises(ParameterError, match="guarantee must be 'none' for files that stay on"):
        settled(guarantee, checkpoint=tmp_path / "c").fit(rows)


@pytest.mark.parametrize("guarantee", ["conformal", None, 1])
def test_an_unknown_guarantee_is_refused(guarantee):
    with pytest.raises(ParameterError, match="guarantee must be one of"):
        settled(guarantee).fit(*wave(50, 0))


def test_too_few_rows_are_refused():
    with pytest.raises(ParameterError, match="guarantee='split' needs at least 10 rows, got 9"):
        settled("split").fit(*wave(9, 0))


def test_a_coverage_beyond_the_rows_set_aside_is_refused():
    model = settled("split", n_cells=1).fit(*wave(40, 0))
    model.predict_interval([[0.0, 0.0]], 0.95)
    with pytest.raises(ParameterError, match=r"at most 0\.952 after a fit with 20 rows set aside"):
        model.predict_interval([[0.0, 0.0]], 0.96)
    with pytest.raises(ParameterError, match=r"levels must be between 0\.0476 and 0\.952"):
        model.predict_quantile([[0.0, 0.0]], [0.01])


def test_jackknife_plus_has_no_quantiles_and_no_falkon():
    model = settled("jackknife+").fit(*wave(300, 0))
    with pytest.raises(ParameterError, match="guarantee must be 'none', 'split' or 'cell'"):
        model.predict_quantile([[0.0, 0.0]], 0.5)
    with pytest.raises(ParameterError, match="solver must be 'auto' or 'direct'"):
        settled("jackknife+", solver="falkon").fit(*wave(100, 0))


def test_split_quantiles_hold_their_share():
    model = settled("split").fit(*wave(3000, 0))
    T, u = wave(4000, 1)
    held = (u[:, None] <= model.predict_quantile(T, [0.1, 0.5, 0.9])).mean(0)
    np.testing.assert_allclose(held, [0.1, 0.5, 0.9], atol=0.04)


def test_a_model_with_a_guarantee_is_not_updated(model):
    X, y = wave(50, 3)
    with pytest.raises(ParameterError, match="guarantee must be 'none' to update a model"):
        model.partial_fit(X, y)
    with pytest.raises(ParameterError, match="guarantee must be 'none' to update a model"):
        settled("split").partial_fit(X, y)


def test_rows_of_weight_zero_are_nowhere():
    X, y = wave(200, 0)
    w = np.repeat([1.0, 0.0], 100)
    y[100:] = 1e6
    model = settled("split", n_cells=1).fit(X, y, sample_weight=w)
    lower, upper = model.predict_interval(X[:5])
    assert np.all(upper - lower < 10)


def test_several_targets_each_have_their_intervals(model):
    X, y = wave(300, 0)
    both = settled(model.guarantee).fit(X, np.column_stack([y, 10 * y]))
    lower, upper = both.predict_interval(X[:7])
    assert lower.shape == (7, 2)
    np.testing.assert_allclose((upper - lower)[:, 1], 10 * (upper - lower)[:, 0], rtol=1e-6)
