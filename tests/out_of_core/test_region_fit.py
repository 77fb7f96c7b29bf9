"""Rows on disk that are sorted by region, and regions that are fitted as rows in memory are."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from ondisk import frame, full_disk, on_disk, rows, write
from parkrr import Blend, Coarse, Gaussian, LocalEngine, ParKClassifier, load, scan_parquet
from parkrr.errors import ParameterError, StorageError
from parkrr.out_of_core import region_fit
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.fit import decide, run_passes
from parkrr.partition import median_margin
from parkrr.planning import disk_sizes, learn_table
from reference import krr_weights

N, CELLS = 12_000, 24


@pytest.fixture(scope="module", autouse=True)
def small_regions():
    """Regions of some 2,500 rows, where by default none has fewer than 50,000."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_sizes, "LEAST_REGION", 1000)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("rows"))


@pytest.fixture
def table(folder):
    return scan_parquet(folder, target="y")


def by_region(checkpoint, **changes):
    return on_disk(checkpoint, **{"n_cells": CELLS, "n_centers": "auto", **changes})


@pytest.fixture(scope="module")
def fitted(folder, tmp_path_factory):
    """A checkpoint and the model that came with it."""
    checkpoint = tmp_path_factory.mktemp("whole")
    return checkpoint, by_region(checkpoint).fit(scan_parquet(folder, target="y"))


def parts(model):
    return [model.centroids, *model.centers, *model.weights]


def assert_same(one, other):
    assert all(torch.equal(a, b) for a, b in zip(parts(one), parts(other), strict=True))


def test_every_cell_is_kernel_ridge_regression_on_the_rows_routed_to_it(fitted):
    model = fitted[1].model_
    X, y = (torch.from_numpy(a) for a in rows(N))
    cell_of, F = model.route(X), model.map_rows(X)
    assert len(model.regions.sizes) == 5
    assert int(model.regions.sizes.sum()) == len(model.centroids) == len(model.centers)
    for q, Z in enumerate(model.centers):
        own = cell_of == q
        assert len(Z) == int(own.sum())  # every row is a centre
        K = model.kernel(F[own], F[own]).numpy()
        alpha = krr_weights(K, (y[own, None] - model.intercept).numpy(), 1e-6 * N / int(own.sum()))
        found = model.kernel(F[own], Z) @ model.weights[q]
        torch.testing.assert_close(found, torch.from_numpy(K @ alpha), rtol=1e-6, atol=1e-6)


def test_every_row_is_in_the_cell_it_is_routed_to(fitted):
    cell_of = fitted[1].model_.route(torch.from_numpy(rows(N)[0]))
    assert [cell.rows for cell in fitted[1].report_] == torch.bincount(cell_of).tolist()
    assert [cell.cell for cell in fitted[1].report_] == list(range(len(fitted[1].report_)))


def test_the_error_is_that_of_the_same_rows_in_memory(fitted, table):
    X, y = rows(2000, seed=1)
    columns = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    memory = on_disk(None, n_cells=CELLS, n_centers="auto").fit(table)
    errors = [np.sqrt(np.mean((m.predict(columns) - y) ** 2)) for m in (fitted[1], memory)]
    assert errors[0] < 1.05 * errors[1]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_model_does_not_depend_on_the_number_of_threads(fitted, table, tmp_path, n_threads):
    again = by_region(tmp_path / "c", engine=LocalEngine(n_threads)).fit(table)
    assert_same(fitted[1].model_, again.model_)


def test_only_regions_without_a_result_are_fitted_again(fitted, table, tmp_path, monkeypatch):
    checkpoint, model = fitted
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    (copy / "region-000003.json").unlink()
    fitted_again = []
    whole = region_fit.fit_region

    def counted(task):
        fitted_again.append(task.name)
        return whole(task)

    monkeypatch.setattr(region_fit, "fit_region", counted)
    again = by_region(copy).fit(table)
    assert fitted_again == ["region-000003"]
    assert_same(model.model_, again.model_)


def test_sorted_rows_are_deleted_when_all_regions_are_fitted(fitted, table, monkeypatch):
    checkpoint, model = fitted
    assert not list(checkpoint.glob("sorted-*"))

    def refused(*_):
        raise AssertionError("rows were sorted again")

    monkeypatch.setattr(region_fit, "sort_rows", refused)
    assert_same(model.model_, by_region(checkpoint).fit(table).model_)


def test_a_full_disk_while_rows_are_sorted_is_named_and_the_same_call_resumes(
    fitted, table, tmp_path
):
    folder = tmp_path / "c"
    refused = pytest.raises(StorageError, match=r"sorted-00000.numbers' cannot be written")
    with full_disk(2**18), refused:
        by_region(folder).fit(table)
    unfitted = (folder / "unfitted.park").stat().st_mtime_ns
    assert not list(folder.glob("sorted-*"))
    assert_same(fitted[1].model_, by_region(folder).fit(table).model_)
    assert (folder / "unfitted.park").stat().st_mtime_ns == unfitted


def test_leave_one_out_errors_are_those_of_new_rows(fitted):
    X, y = rows(4000, seed=2)
    columns = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    error = np.median(np.abs(fitted[1].predict(columns) - y))  # means are those of few far rows
    kept = fitted[1].validation_rows_
    left_out = np.median(np.abs(kept["predicted"] - kept["truth"]))
    assert left_out == pytest.approx(error, rel=0.1)
    low, high = fitted[1].predict_interval(columns, 0.9)
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.9, abs=0.03)


def test_a_blend_and_a_coarse_level_hold_across_regions(table, tmp_path):
    model = by_region(tmp_path / "c", blend=Blend(3, 0.5), coarse=Coarse(50, Gaussian(5.0)))
    inner = model.fit(table).model_
    assert inner.coarse is not None
    assert inner.blend == Blend(3, 0.5)
    assert inner.regions.widths.tolist() == [0.5] * 5
    start, end = torch.tensor([-1.5, -1.0, 0.5]), torch.tensor([1.5, 1.0, -0.5])
    path = start + torch.linspace(0, 1, 40_001)[:, None].double() * (end - start)
    assert len(torch.unique(inner.route(path))) >= 5
    assert float(inner.predict(path).diff(dim=0).abs().max()) < 2e-3


def test_a_width_that_was_chosen_follows_the_distance_between_cells(table, tmp_path):
    params = by_region(tmp_path / "c", blend="auto").get_params(deep=False)
    decided = decide(learn_table(table, params, 0, classify=False), params, seed=0)
    model = replace(decided.unfitted.model, blend=Blend(2, 0.3))
    unfitted = replace(decided.unfitted, model=model, margin=0.6)
    (tmp_path / "passes").mkdir()
    passes = decided._replace(unfitted=unfitted)
    inner = run_passes(passes, Checkpoint(str(tmp_path / "passes")))[0].model
    X = torch.from_numpy(rows(N)[0])
    F, cells = inner.map_rows(X), inner.route(X)
    first = int(inner.regions.sizes[0])
    margin = median_margin(inner.kernel, inner.centroids[:first], F[cells < first])
    assert float(inner.regions.widths[0]) == pytest.approx(margin / 2, rel=0.05)
    assert inner.blend.width > float(inner.regions.widths.median())


def test_validation_rows_are_those_whose_targets_no_code_has_seen(tmp_path):
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 300, N).astype(str)
    noise = rng.normal(size=N)
    folder = write(tmp_path / "rows", city=levels, z=noise)
    table = scan_parquet(folder, target="z", features=["a", "city"])
    model = by_region(tmp_path / "c", penalty=1e-3).fit(table)
    kept = model.validation_rows_
    residuals = kept["truth"] - kept["predicted"]
    assert 1 - residuals.var() / kept["truth"].var() < 0.03


def test_copies_of_a_row_do_not_predict_it(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 3)), rng.normal(size=4000)
    three = {name: np.repeat(values, 3) for name, values in zip("abc", X.T, strict=True)}
    table = scan_parquet(write(tmp_path / "rows", **three, y=np.repeat(y, 3)), target="y")
    kept = by_region(tmp_path / "c", penalty=1e-2).fit(table).validation_rows_
    residuals = kept["truth"] - kept["predicted"]
    assert residuals.var() > kept["truth"].var()


def test_a_cell_of_copies_has_as_many_centres_as_a_mean_one(tmp_path):
    X, _ = rows(N)
    X[: N // 3] = 0
    columns = dict(zip("abc", X.T, strict=True))
    table = scan_parquet(write(tmp_path / "rows", **columns), target="y")
    model = by_region(tmp_path / "c", penalty=1e-2).fit(table)
    assert max(cell.rows for cell in model.report_) >= N // 3
    assert max(cell.centers for cell in model.report_) <= 2.7 * N / CELLS


def test_centres_of_a_region_grow_with_the_root_of_the_rows_of_a_cell(table, tmp_path):
    model = by_region(tmp_path / "c", max_model_size=40_000).fit(table)
    sizes = np.array([(cell.rows, cell.centers) for cell in model.report_])
    ends = np.cumsum(model.model_.regions.sizes.numpy())[:-1]
    for n, m in (part.T for part in np.split(sizes, ends)):
        root = np.sqrt(n * len(n) / n.sum())
        np.testing.assert_allclose(m, root * np.mean(m / root), rtol=0, atol=1)


def test_what_was_chosen_fits_the_same_model(fitted, table, tmp_path):
    params = fitted[1].chosen_.params | {"checkpoint": tmp_path / "c"}
    assert_same(fitted[1].model_, type(fitted[1])(**params).fit(table).model_)


def test_a_classifier_has_regions_too(tmp_path):
    _, y = rows(N)
    folder = write(tmp_path / "rows", label=np.where(y > 0, "yes", "no"))
    table = scan_parquet(folder, target="label", features=["a", "b", "c"])
    settings = {"metric": "standard", "blend": 1, "coarse": 0, "random_state": 0}
    model = ParKClassifier(
        Gaussian(), 1e-4, n_cells=CELLS, checkpoint=tmp_path / "c", progress=False, **settings
    ).fit(table)
    assert len(model.model_.regions.sizes) == 5
    assert np.mean(model.predict(frame(2000)) == np.where(rows(2000, 1)[1] > 0, "yes", "no")) > 0.95


def test_a_model_of_two_levels_survives_its_file(fitted, tmp_path):
    _, model = fitted
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    np.testing.assert_array_equal(again.predict(frame()), model.predict(frame()))
    np.testing.assert_array_equal(again.model_.regions.sizes, model.model_.regions.sizes)


def test_one_row_at_a_time_is_all_rows_at_once(fitted):
    together, whole = frame(50), fitted[1].predict(frame(50))
    single = [fitted[1].predict(together.slice(k, 1)) for k in range(50)]
    np.testing.assert_allclose(np.concatenate(single), whole, rtol=1e-10, atol=1e-10)


def test_a_region_too_large_for_a_core_is_refused_with_a_way_out(table, tmp_path):
    params = by_region(tmp_path / "c").get_params(deep=False)
    decided = decide(learn_table(table, params, 0, classify=False), params, seed=0)
    small = decided._replace(sizes=replace(decided.sizes, room=1e5))
    (tmp_path / "passes").mkdir()
    with pytest.raises(ParameterError, match="set n_centers, for a fit that does not sort rows"):
        run_passes(small, Checkpoint(str(tmp_path / "passes")))


def test_onnx_refuses_regions_with_a_way_out(fitted, tmp_path):
    pytest.importorskip("onnx")
    with pytest.raises(ParameterError, match=r"in 5 regions; fit with n_centers set"):
        fitted[1].to_onnx(tmp_path / "m.onnx")


def test_a_plan_names_regions_and_the_size_of_the_model(table, tmp_path):
    plan = by_region(tmp_path / "c").plan(table)
    assert plan.regions == 5
    assert plan.model_bytes == N * 8 * (3 + 1)
    assert ", in 5 regions" in str(plan)
    assert "every row, a model of up to 384 kB" in str(plan)


def test_a_bound_of_the_model_counts_normal_scores_beside_features(table, tmp_path):
    bounded = by_region(
        tmp_path / "c", kernel="gaussian", metric="learned", n_cells="auto", max_model_size=1e5
    )
    plan = bounded.plan(table)
    assert 0.9e5 < plan.model_bytes <= 1e5
