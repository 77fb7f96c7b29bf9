"""Models that go on learning are what a fit to all rows with the same centres would be."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from ondisk import on_disk, rows, write
from parkrr import Matern, ParKClassifier, ParKRegressor, load, scan_parquet
from parkrr.data import Block
from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian
from parkrr.park.algorithm import Coarse
from parkrr.park.incremental import compute_statistics
from parkrr.partition import Blend
from parkrr.report.summary import summarize
from plain import PLAIN, plain

FIRST, LATER = slice(0, 600), slice(600, 1000)
SETTINGS = {"n_cells": 4, "n_centers": 120, "penalty": 1e-4, "precision": "float64"}
X, y = rows(1000)
W = np.random.default_rng(1).integers(1, 4, 1000).astype(float)


def updatable(**changes):
    known = {"keep_statistics": True, "random_state": 0, "extrapolation": "free"}
    return plain(**{**SETTINGS, **known, **changes})


def named(Z):
    return pd.DataFrame(Z, columns=["a", "b", "c"])


def expected(model, Z, target, w=None):
    """Eq. (8) of every cell by one dense solve, at rows Z, for a model with one target."""
    inner, sums = model.model_, model.statistics_
    A = inner.map_rows(torch.from_numpy(Z)).double()
    cell_of = inner.assign(A.to(inner.centroids)).numpy()
    R = torch.from_numpy(target)[:, None] - inner.intercept
    w = torch.ones(len(Z)) if w is None else torch.from_numpy(w)
    out = np.empty(len(Z))
    for q, centers in enumerate(inner.centers):
        at = cell_of == q
        K = inner.kernel(A[at], centers.double())
        K_mm = inner.kernel(centers.double(), centers.double())
        v = (w[at] / sums.unit)[:, None].double()
        alpha = torch.linalg.solve(K.T @ (v * K) + sums.ridge * K_mm, K.T @ (v * R[at]))
        out[at] = (K @ alpha)[:, 0].numpy() + float(inner.intercept[0])
    return out


def test_rows_learned_later_count_as_if_they_had_been_there():
    model = updatable().fit(X[FIRST], y[FIRST]).partial_fit(X[LATER], y[LATER])
    np.testing.assert_allclose(model.predict(X), expected(model, X, y), atol=1e-8)


def test_rows_can_come_one_at_a_time():
    model = updatable().fit(X[FIRST], y[FIRST])
    together = updatable().fit(X[FIRST], y[FIRST]).partial_fit(X[600:620], y[600:620])
    for k in range(600, 620):
        model.partial_fit(X[k : k + 1], y[k : k + 1])
    np.testing.assert_allclose(model.predict(X), together.predict(X), atol=1e-8)


def test_weights_count_as_copies():
    model = updatable().fit(X[FIRST], y[FIRST], W[FIRST])
    model.partial_fit(X[LATER], y[LATER], W[LATER])
    np.testing.assert_allclose(model.predict(X), expected(model, X, y, W), atol=1e-8)


def test_what_is_forgotten_was_never_there():
    model = updatable().fit(X, y)
    model.forget(X[LATER], y[LATER])
    np.testing.assert_allclose(
        model.predict(X[FIRST]), expected(model, X[FIRST], y[FIRST]), atol=1e-8
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"blend": Blend(2, 0.5)},
        {"coarse": Coarse(50, Gaussian(3.0))},
        {"metric": "standard"},
        {"kernel": Matern()},
    ],
    ids=str,
)
def test_forgetting_undoes_learning(more):
    model = updatable(**more).fit(X[FIRST], y[FIRST])
    model.forget(X[:1], y[:1]).partial_fit(X[:1], y[:1])  # now from sums, as after an update
    model.partial_fit(X[FIRST], y[FIRST]).forget(X[FIRST], y[FIRST])
    before = model.predict(X)
    model.partial_fit(X[LATER], y[LATER], W[LATER]).forget(X[LATER], y[LATER], W[LATER])
    np.testing.assert_allclose(model.predict(X), before, atol=1e-8)


def test_only_cells_that_rows_reach_are_solved_again():
    model = updatable().fit(X[FIRST], y[FIRST])
    before = model.model_.weights
    model.partial_fit(X[600:601], y[600:601])
    [cell] = model.model_.route(torch.from_numpy(X[600:601])).tolist()
    same = [new is old for new, old in zip(model.model_.weights, before, strict=True)]
    assert same == [q != cell for q in range(len(before))]


def test_predictions_know_of_updates_after_they_were_asked():
    model = updatable().fit(X[FIRST], y[FIRST])
    before = model.predict(X)
    model.partial_fit(X[LATER], y[LATER] + 10)
    assert np.abs(model.predict(X) - before).max() > 1


def test_what_was_known_fades_with_decay():
    faded = updatable().fit(X[FIRST], y[FIRST])  # later rows reach every cell
    faded.partial_fit(X[LATER], y[LATER], decay=0.25)
    w = np.where(np.arange(1000) < 600, 0.25, 1.0)
    np.testing.assert_allclose(faded.predict(X), expected(faded, X, y, w), atol=1e-8)


def test_a_first_call_of_partial_fit_is_a_fit():
    model = plain(**SETTINGS, random_state=0).partial_fit(X[FIRST], y[FIRST])
    fitted = plain(**SETTINGS, random_state=0).fit(X[FIRST], y[FIRST])
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    model.partial_fit(X[LATER], y[LATER])
    np.testing.assert_allclose(model.predict(X), expected(model, X, y), atol=1e-8)


def test_several_targets_are_updated_at_once():
    both = np.column_stack([y, 2 * y])
    model = updatable().fit(X[FIRST], both[FIRST]).partial_fit(X[LATER], both[LATER])
    out = model.predict(X)
    np.testing.assert_allclose(out[:, 1], 2 * out[:, 0], atol=1e-8)


def test_a_cell_says_when_it_has_outgrown_its_centres():
    model = updatable(n_cells=1).fit(X[:200], y[:200])
    model.partial_fit(X[200:800], y[200:800])
    assert not model.report_[0].outgrown
    model.partial_fit(X[800:810], y[800:810])
    assert model.report_[0].outgrown
    assert model.report_[0].rows == 810


def test_labels_that_come_later_are_named_at_first():
    labels = np.array(["a", "b", "c"])[np.digitize(y, [-0.7, 0.7])]
    early = labels != "c"
    model = ParKClassifier(**PLAIN, n_cells=3, random_state=0)
    model.partial_fit(X[early], labels[early], classes=["a", "b", "c"])
    model.partial_fit(X[~early], labels[~early])
    assert (model.predict(X) == labels).mean() > 0.9
    assert model.classes_.tolist() == ["a", "b", "c"]


def test_labels_never_named_are_refused():
    model = ParKClassifier(**PLAIN).partial_fit(X[FIRST], y[FIRST] > 0)
    with pytest.raises(ParameterError, match=r"labels of the first fit, \[False, True\]"):
        model.partial_fit(X[:2], ["maybe", "no"])


def test_a_fit_from_disk_can_be_updated(tmp_path):
    table = scan_parquet(write(tmp_path / "rows", 4000), target="y")
    model = on_disk(tmp_path / "job", keep_statistics=True, penalty=1e-4, extrapolation="free").fit(
        table
    )
    there, target = rows(4000)
    new, more = rows(500, seed=5)
    model.partial_fit(named(new), more)
    every, targets = np.vstack([there, new]), np.concatenate([target, more])
    np.testing.assert_allclose(
        model.predict(named(every)), expected(model, every, targets), atol=1e-8
    )


def test_a_model_without_statistics_is_not_updated():
    with pytest.raises(ParameterError, match="keep_statistics=True"):
        plain(**SETTINGS, keep_statistics=False).fit(X, y).partial_fit(X, y)


def test_rows_never_learned_are_not_forgotten():
    model = updatable(balance=False).fit(X[:100], y[:100])
    before, report = model.predict(X), model.report_
    with pytest.raises(ParameterError, match="900 of 1000 are not: row 100 was never learned"):
        model.forget(X, y)
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.report_ == report


@pytest.mark.parametrize(
    ("row", "target"),
    [(X[:1] + 1e-9, y[:1]), (X[:1], y[:1] + 1e-9), (X[600:601], y[600:601])],
    ids=["other features", "another target", "another row"],
)
def test_one_row_among_many_cannot_be_forgotten_unless_it_was_learned(row, target):
    model = updatable().fit(X[FIRST], y[FIRST])
    with pytest.raises(ParameterError, match="row 0 was never learned, or is forgotten already"):
        model.forget(row, target)


def test_rows_are_forgotten_once():
    model = updatable().fit(X, y).forget(X[LATER], y[LATER])
    before = model.predict(X)
    with pytest.raises(ParameterError, match="400 of 400 are not: row 0 was never"):
        model.forget(X[LATER], y[LATER])
    np.testing.assert_array_equal(model.predict(X), before)


def test_copies_are_forgotten_as_often_as_they_were_learned():
    model = updatable().fit(np.vstack([X, X[:1]]), np.append(y, y[:1]))
    model.forget(X[:1], y[:1])
    np.testing.assert_allclose(model.predict(X), expected(model, X, y), atol=1e-6)
    with pytest.raises(ParameterError, match="row 0 has weight 1 left, less than 2"):
        model.forget(X[[0, 0]], y[[0, 0]])


def test_copies_among_few_rows_are_forgotten_one_by_one():
    twice = np.repeat(np.arange(100), 2)
    model = updatable(n_cells=1).fit(X[twice], y[twice])
    for _ in range(2):
        model.forget(X[:100], y[:100])
    assert model.report_[0].rows == 0
    np.testing.assert_array_equal(model.predict(X), float(model.model_.intercept[0]))


def test_what_decay_has_left_of_a_row_can_be_forgotten_and_no_more():
    model = updatable().fit(X[FIRST], y[FIRST])
    model.partial_fit(X[LATER], y[LATER], decay=0.25)
    with pytest.raises(ParameterError, match=r"row 0 has weight 0\.25 left, less than 1"):
        model.forget(X[:300], y[:300])
    model.forget(X[:300], y[:300], np.full(300, 0.25))
    w = np.where(np.arange(1000) < 600, 0.25, 1.0)[300:]
    np.testing.assert_allclose(
        model.predict(X[300:]), expected(model, X[300:], y[300:], w), atol=1e-8
    )


def test_a_row_can_be_forgotten_in_parts():
    model = updatable().fit(X, y, np.full(1000, 2.0))
    model.forget(X[:1], y[:1], [0.5]).forget(X[:1], y[:1], [1.5])
    assert sum(cell.rows for cell in model.report_) == 999
    with pytest.raises(ParameterError, match="row 0 was never learned"):
        model.forget(X[:1], y[:1], [0.5])


def test_rows_without_weight_are_neither_learned_nor_forgotten():
    model = updatable().fit(X[FIRST], y[FIRST])
    before, w = model.report_, np.append(1.0, np.zeros(399))
    model.partial_fit(X[LATER], y[LATER], w).forget(X[LATER], y[LATER], w)
    assert [cell.rows for cell in model.report_] == [cell.rows for cell in before]


def test_a_loaded_model_knows_what_it_has_learned(tmp_path):
    updatable().fit(X[FIRST], y[FIRST]).save(tmp_path / "m.park")
    model = load(tmp_path / "m.park").forget(X[:100], y[:100])
    with pytest.raises(ParameterError, match="1 of 1 are not"):
        model.forget(X[:1], y[:1])
    np.testing.assert_allclose(
        model.predict(X[100:600]), expected(model, X[100:600], y[100:600]), atol=1e-8
    )


def test_rows_of_files_can_be_forgotten(tmp_path):
    table = scan_parquet(write(tmp_path / "rows", 4000), target="y")
    model = on_disk(tmp_path / "job", keep_statistics=True, penalty=1e-4, extrapolation="free").fit(
        table
    )
    there, target = rows(4000)
    with pytest.raises(ParameterError, match="1 of 2 are not: row 1 was never learned"):
        model.forget(named(np.vstack([there[:1], there[:1] + 1])), target[[0, 0]])
    model.forget(named(there[:500]), target[:500])
    np.testing.assert_allclose(
        model.predict(named(there[500:])), expected(model, there[500:], target[500:]), atol=1e-8
    )


def too_many_to_remember(model):
    """The model as if its rows had been too many, or its file older, than to know each of them."""
    model.statistics_ = replace(model.statistics_, learned=None)
    return model


@pytest.mark.parametrize(
    ("row", "reason"),
    [(X, "rows left"), (X[np.zeros(50, int)], "K'WK of cell . would be negative")],
    ids=["more rows than there are", "a row fifty times"],
)
def test_without_a_list_of_rows_the_sums_still_prove_some_things_wrong(row, reason):
    model = too_many_to_remember(updatable().fit(X[FIRST], y[FIRST]))
    with pytest.raises(ParameterError, match=f"must be rows that were learned before.*{reason}"):
        model.forget(row, np.zeros(len(row)))


def test_without_a_list_of_rows_those_learned_can_be_forgotten():
    model = too_many_to_remember(updatable().fit(X, y)).forget(X[LATER], y[LATER])
    np.testing.assert_allclose(
        model.predict(X[FIRST]), expected(model, X[FIRST], y[FIRST]), atol=1e-8
    )


def test_more_rows_than_a_limit_are_not_remembered():
    model = updatable().fit(X, y)
    blocks = [Block(torch.from_numpy(X), torch.from_numpy(y[:, None]), None)]
    sums = compute_statistics(model.model_, model.report_, blocks, most_learned=999)
    assert sums.learned is None
    torch.testing.assert_close(sums.grams, model.statistics_.grams)


@pytest.mark.filterwarnings("ignore:1 of 1 cells stopped")  # the fit before
def test_a_raised_ridge_is_reported():
    Z = np.linspace(0, 6, 600)[:, None]
    model = updatable(n_cells=1, n_centers=100, penalty=1e-11).fit(Z[:500], np.sin(Z[:500, 0]))
    model.partial_fit(Z[500:], np.sin(Z[500:, 0]))
    assert "ridge raised 1e+02 times" in model.report_[0].fallback
    assert model.report_[0].solver == "direct"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ([1e200], r"y must lie between -1e\+150 and 1e\+150"),
        ([np.nan], "y must have a value in every row"),
        ([1j], "y must be real numbers"),
        (["high"], "y must be numbers, but row 0 is 'high'"),
        (0.0, "y must be 1 finite rows of 1 targets"),
    ],
    ids=str,
)
@pytest.mark.parametrize("update", ["partial_fit", "forget"])
def test_targets_of_updates_have_the_limits_of_a_fit(update, target, reason):
    model = updatable().fit(X, y)
    with pytest.raises(ParameterError, match=reason):
        getattr(model, update)(X[:1], target)


def test_forgotten_rows_are_no_validation_rows():
    model = updatable().fit(X, y)
    before = model.validation_rows_
    there = np.isin(before["truth"].round(9), y[LATER].round(9))
    model.forget(X[LATER], y[LATER])
    assert 0 < there.sum() < len(there)
    for name, values in model.validation_rows_.items():
        np.testing.assert_array_equal(values, before[name][~there])


def test_a_forgotten_copy_takes_one_validation_row_with_it():
    model = updatable(n_cells=1).fit(X[:100], y[:100])  # each of few rows is a validation row
    model.partial_fit(X[:1], y[:1]).forget(X[:1], y[:1])
    assert len(model.validation_rows_["truth"]) == 99


def test_labels_that_are_forgotten_are_no_validation_rows(tmp_path):
    labels = np.where(y > 0, "high", "low")
    model = ParKClassifier(**PLAIN, n_cells=2, keep_statistics=True, random_state=0)
    model.fit(X[:200], labels[:200]).save(tmp_path / "m.park")
    model = load(tmp_path / "m.park").forget(X[:50], labels[:50])
    assert len(model.validation_rows_["truth"]) == 150
    assert (model.validation_rows_["truth"] == "high").sum() == (labels[50:200] == "high").sum()


def test_a_model_without_validation_rows_is_saved_and_described(tmp_path):
    model = updatable(n_cells=1).fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    model.forget(X[:100], y[:100]).save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert summarize(again)["validation"] is None
    again.show_report(tmp_path / "report.html")


@pytest.mark.parametrize("decay", [0, 1.5, "fast"])
def test_a_decay_is_a_share(decay):
    with pytest.raises(ParameterError, match="decay must be a number above 0 and at most 1"):
        updatable().fit(X, y).partial_fit(X, y, decay=decay)


def test_balanced_classes_are_not_updated():
    model = ParKClassifier(**PLAIN, class_weight="balanced").partial_fit(X, y > 0)
    with pytest.raises(ParameterError, match="class_weight must be None or a weight"):
        model.partial_fit(X, y > 0)


def test_automatic_cells_that_keep_statistics_have_few_centres():
    plan = ParKRegressor(keep_statistics=True).plan(np.zeros((50_000, 3)))
    assert plan.centers == 500 * plan.cells


def test_a_loaded_model_goes_on_learning(tmp_path):
    model = updatable().fit(X[FIRST], y[FIRST])
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park").partial_fit(X[LATER], y[LATER])
    model.partial_fit(X[LATER], y[LATER])
    np.testing.assert_allclose(again.predict(X), model.predict(X), atol=1e-10)
    assert again.report_ == model.report_


def test_small_models_keep_statistics_by_themselves():
    few, many = plain(n_centers=100).fit(X, y), plain(n_centers=500).fit(X, y)
    assert few.statistics_ is not None
    assert many.statistics_ is None


def test_keeping_is_a_choice_of_three():
    with pytest.raises(ParameterError, match="keep_statistics must be True, False or 'auto'"):
        plain(keep_statistics="sometimes").fit(X, y)


def test_a_target_without_noise_can_be_updated():
    Z = np.linspace(0, 6, 600)[:, None]
    parts = np.array_split(np.random.default_rng(0).permutation(600), 3)
    model = ParKRegressor(random_state=0)
    for part in parts:
        model.partial_fit(Z[part], np.sin(Z[part, 0]))
    np.testing.assert_allclose(model.predict(Z), np.sin(Z[:, 0]), atol=0.01)


def test_an_update_prepares_no_cells_that_were_not_asked(tmp_path):
    updatable().fit(X[FIRST], y[FIRST]).save(tmp_path / "m.park")
    model = load(tmp_path / "m.park")
    model.predict(X[:1])
    before = [cell is None for cell in model.model_.cells.prepared]
    model.partial_fit(X[LATER], y[LATER])
    assert [cell is None for cell in model.model_.cells.prepared] == before
    np.testing.assert_allclose(model.predict(X), expected(model, X, y), atol=1e-8)
