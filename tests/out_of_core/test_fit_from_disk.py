"""Fits of rows that stay on disk, against the formula and against each other."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from ondisk import frame, full_disk, on_disk, rows, write
from parkrr import Gaussian, ParKClassifier, scan_parquet
from parkrr.data import EncodedTable, Target
from parkrr.errors import (
    CheckpointError,
    ParameterError,
    ResultError,
    SourceError,
    StorageError,
)
from parkrr.out_of_core.checkpoint import Checkpoint, checksums
from parkrr.out_of_core.fit import JOB_VERSION, decide, learn_table
from parkrr.out_of_core.sorted_pass import fit_from_sorted_rows, sort_rows
from parkrr.out_of_core.statistics_pass import fit_from_statistics
from parkrr.planning.disk_sizes import choose_disk_sizes
from parkrr.runtime.engine import LocalEngine
from reference import nystrom_weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("rows"))


@pytest.fixture
def table(folder):
    return scan_parquet(folder, target="y")


@pytest.fixture(scope="module")
def fitted(folder, tmp_path_factory):
    """A checkpoint and the model that came with it."""
    checkpoint = tmp_path_factory.mktemp("whole")
    return checkpoint, on_disk(checkpoint).fit(scan_parquet(folder, target="y"))


def parts(model):
    return [model.centroids, *model.centers, *model.weights]


def assert_same(one, other):
    assert all(torch.equal(a, b) for a, b in zip(parts(one), parts(other), strict=True))


def decided(table, tmp_path, **changes):
    """What the sample decides, to run the passes in other ways."""
    params = on_disk(tmp_path, **changes).get_params(deep=False)
    return decide(learn_table(table, params, 0, classify=False), params, seed=0)


def passes(found, folder, engine=None, n_groups=1):
    folder.mkdir(exist_ok=True)
    settings = replace(found.settings, shown=False, engine=engine or LocalEngine())
    checkpoint = Checkpoint(str(folder))
    sizes = {"n_slices": 5, "n_groups": n_groups, "n_sorted": 5, "max_bytes": 1e9}
    return fit_from_statistics(found.unfitted, settings, found.rows, checkpoint, **sizes)


def predictions_in_cells(model):
    """For every cell, the model at its own rows, and the formula."""
    X, y = (torch.from_numpy(a) for a in rows(12_000))
    y, cell_of, F = y - model.intercept, model.route(X), model.map_rows(X)
    for q, Z in enumerate(model.centers):
        own = cell_of == q
        K_nm, K_mm = model.kernel(F[own], Z), model.kernel(Z, Z)
        penalty = 1e-6 * len(X) / int(own.sum())
        alpha = nystrom_weights(K_nm.numpy(), K_mm.numpy(), y[own, None].numpy(), penalty)
        yield K_nm @ model.weights[q], K_nm @ torch.from_numpy(alpha)


def test_every_cell_is_the_nystrom_estimator_of_its_rows(fitted):
    for found, wanted in predictions_in_cells(fitted[1].model_):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_every_row_is_in_the_cell_it_is_routed_to(fitted):
    cell_of = fitted[1].model_.route(torch.from_numpy(rows(12_000)[0]))
    assert [cell.rows for cell in fitted[1].report_] == torch.bincount(cell_of).tolist()


def test_centres_are_spread_like_the_rows(fitted):
    _, estimator = fitted
    rows = np.array([cell.rows for cell in estimator.report_])
    centers = np.array([cell.centers for cell in estimator.report_])
    np.testing.assert_allclose(centers / 240, rows / 12_000, atol=0.02)


def test_passes_for_groups_of_cells_give_the_same_model(table, tmp_path):
    found = decided(table, tmp_path)
    whole = passes(found, tmp_path / "one").model
    assert_same(whole, passes(found, tmp_path / "three", n_groups=3).model)


def test_a_weight_of_two_is_a_row_twice(tmp_path):
    folder = write(tmp_path / "rows", w=np.full(12_000, 2.0))
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    once = scan_parquet(files, target="y", features=["a", "b", "c"], weight="w")
    twice = scan_parquet(files * 2, target="y", features=["a", "b", "c"])
    # A penalty at which rounding of the statistics is not what is tested.
    unweighted = scan_parquet(files, target="y", features=["a", "b", "c"])
    found = decided(unweighted, tmp_path, penalty=1e-3)
    models = []
    for name, table in (("once", once), ("twice", twice)):
        numbers = EncodedTable(table, found.rows.columns, Target(("y",)))
        models.append(passes(found._replace(rows=numbers), tmp_path / name).model)
    one, other = (model.predict(torch.from_numpy(rows(1000)[0])) for model in models)
    torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_rows_without_a_target_or_weight_are_left_out(tmp_path):
    gaps = np.where(np.arange(12_000) % 4 == 0, np.nan, 1.0)
    folder = write(tmp_path / "rows", z=gaps, w=np.where(np.arange(12_000) % 2 == 0, 0.0, 3.0))
    table = scan_parquet(folder, target="z", features=["a"], weight="w")
    model = on_disk(tmp_path / "c").fit(table)
    assert sum(cell.rows for cell in model.report_) == 6000
    assert sum(cell.weight for cell in model.report_) == pytest.approx(6000)


def test_a_negative_weight_is_refused_with_its_column(tmp_path):
    folder = write(tmp_path / "rows", w=np.full(12_000, -1.0))
    with pytest.raises(ParameterError, match=r"'w' has -1.0"):
        on_disk(tmp_path / "c").fit(scan_parquet(folder, target="y", weight="w"))


def test_several_targets_are_fitted_together(tmp_path):
    folder = write(tmp_path / "rows", z=np.ones(12_000))
    model = on_disk(tmp_path / "c").fit(scan_parquet(folder, target=["y", "z"]))
    assert model.predict(frame()).shape == (500, 2)
    np.testing.assert_allclose(model.predict(frame())[:, 1], 1)


def test_labels_are_found_in_a_pass(tmp_path):
    labels = np.where(np.arange(12_000) == 11_999, "rare", np.tile(["even", "odd"], 6000))
    folder = write(tmp_path / "rows", parity=np.tile([0.0, 1.0], 6000), label=labels)
    table = scan_parquet(folder, target="label", features=["parity"])
    model = ParKClassifier(
        kernel=Gaussian(),
        penalty=1e-6,
        blend=1,
        coarse=0,
        n_cells=2,
        n_centers=50,
        random_state=0,
        checkpoint=tmp_path / "c",
    ).fit(table)
    assert model.classes_.tolist() == ["even", "odd", "rare"]
    assert model.predict(pa.table({"parity": [0.0, 1.0]})).tolist() == ["even", "odd"]


def test_small_files_are_loaded_and_fitted_as_an_array(folder, table):
    from_files = on_disk(None).fit(table)
    X, y = rows(12_000)
    from_array = on_disk(None).fit(X, y)
    assert_same(from_files.model_, from_array.model_)


def test_choices_are_made_on_a_sample_and_settle(table, tmp_path):
    model = on_disk(tmp_path / "a", kernel="auto", penalty="auto", time_budget=2.0).fit(table)
    again = type(model)(**{**model.chosen_.params, "checkpoint": tmp_path / "b"}).fit(table)
    assert_same(model.model_, again.model_)


# Rows sorted by cell.


def test_falkon_on_disk_is_the_nystrom_estimator_of_every_cell(table, tmp_path):
    model = on_disk(tmp_path, solver="falkon", tol=1e-7, max_iter=300).fit(table)
    assert {cell.solver for cell in model.report_} == {"falkon"}
    assert sum(cell.rows for cell in model.report_) == 12_000
    for found, wanted in predictions_in_cells(model.model_):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_a_cell_on_disk_holds_exactly_the_rows_routed_to_it(table, tmp_path):
    found = decided(table, tmp_path, solver="falkon")
    checkpoint = Checkpoint(str(tmp_path))
    disk_cells = sort_rows(found.unfitted, found.settings, found.rows, checkpoint, 4, range(8))
    cells = [cell.load() for cell in disk_cells]
    X, y = (torch.from_numpy(a) for a in rows(12_000))
    model = found.unfitted.model
    cell_of = model.route(X)
    for q, cell in enumerate(cells):
        order, there = cell.Y[:, 0].argsort(), (cell_of == q).nonzero()[:, 0]
        there = there[y[there].argsort()]
        torch.testing.assert_close(cell.X[order], model.map_rows(X)[there])
        wanted = (y[there] - model.intercept) / found.unfitted.scale
        torch.testing.assert_close(cell.Y[order, 0], wanted)


def test_falkon_on_disk_goes_on_where_it_was(table, tmp_path):
    whole = on_disk(tmp_path, solver="falkon").fit(table)
    (tmp_path / "sorted-00000.json").unlink()
    (tmp_path / "cell-000003.json").unlink()
    before = markers(tmp_path)
    again = on_disk(tmp_path, solver="falkon").fit(table)
    assert before.items() <= markers(tmp_path).items()
    assert_same(whole.model_, again.model_)


def test_a_cell_too_large_for_memory_is_refused_with_the_way_out(table, tmp_path):
    found = decided(table, tmp_path, solver="falkon")
    given = (found.unfitted, found.settings, found.rows, Checkpoint(str(tmp_path)))
    with pytest.raises(ParameterError, match=r"n_cells must be larger.*room for"):
        fit_from_sorted_rows(*given, n_slices=4, max_bytes=1e4, n_left_out=100)


# Interruptions.


def markers(checkpoint):
    return {path.name: path.stat().st_mtime_ns for path in Path(checkpoint).glob("*.json")}


def test_a_finished_fit_runs_nothing_again(fitted, table):
    checkpoint, estimator = fitted
    before = markers(checkpoint)
    again = on_disk(checkpoint).fit(table)
    assert markers(checkpoint) == before
    assert_same(estimator.model_, again.model_)


def test_a_missing_task_alone_is_run_again(fitted, table):
    checkpoint, estimator = fitted
    before = markers(checkpoint)
    (checkpoint / "statistics-0-00003.json").unlink()
    (checkpoint / "cells-000000.json").unlink()
    again = on_disk(checkpoint).fit(table)
    changed = {name for name, when in markers(checkpoint).items() if before[name] != when}
    assert changed == {"statistics-0-00003.json", "cells-000000.json"}
    assert_same(estimator.model_, again.model_)


@pytest.mark.parametrize("name", ["statistics-0-00001.json", "statistics-0-00001.numbers"])
def test_a_damaged_result_is_named_and_run_again(fitted, table, name):
    checkpoint, estimator = fitted
    path = checkpoint / name
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.warns(UserWarning, match="statistics-0-00001.json' or what it marks is damaged"):
        again = on_disk(checkpoint).fit(table)
    assert_same(estimator.model_, again.model_)


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_a_flipped_bit_of_the_unfitted_model_is_noticed(fitted, table, tmp_path, at):
    copy = Path(shutil.copytree(fitted[0], tmp_path / "c"))
    flip(copy / "unfitted.park", at)
    with pytest.warns(UserWarning, match="unfitted.park.json' or what it marks is damaged"):
        again = on_disk(copy).fit(table)
    assert_same(fitted[1].model_, again.model_)


@pytest.mark.parametrize("name", ["statistics-0-00001.json", "cells-000000.json"])
def test_changed_facts_of_a_marker_are_noticed(fitted, table, tmp_path, name):
    copy = Path(shutil.copytree(fitted[0], tmp_path / "c"))
    marker = json.loads((copy / name).read_text())
    change_a_number(marker["facts"])
    (copy / name).write_text(json.dumps(marker))
    with pytest.warns(UserWarning, match=f"{name}' or what it marks is damaged"):
        again = on_disk(copy).fit(table)
    assert_same(fitted[1].model_, again.model_)
    assert [cell._replace(seconds=0) for cell in again.report_] == [
        cell._replace(seconds=0) for cell in fitted[1].report_
    ]


def change_a_number(facts):
    """The weight of a slice, or the rows of a cell."""
    if "weight" in facts:
        facts["weight"] += 1
    else:
        facts["cells"][0]["report"]["rows"] += 1


def flip(path, at):
    """Flip a bit of a file, at a share of its length."""
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1
    path.write_bytes(content)


def test_a_marker_copied_to_another_task_does_not_count(fitted, table, tmp_path):
    copy = Path(shutil.copytree(fitted[0], tmp_path / "c"))
    for end in ("json", "numbers"):
        shutil.copy(copy / f"statistics-0-00001.{end}", copy / f"statistics-0-00002.{end}")
    (copy / "cells-000000.json").unlink()
    with pytest.warns(UserWarning, match="statistics-0-00002.json' or what it marks is damaged"):
        again = on_disk(copy).fit(table)
    assert_same(fitted[1].model_, again.model_)


@dataclass(frozen=True)
class Between(LocalEngine):
    """An engine that does something once, when the first task of that name begins."""

    begins: str = ""
    happens: list = field(default_factory=list, compare=False)

    @property
    def local(self):  # another engine, or a fit would replace this one
        return LocalEngine(self.n_threads)

    def run(self, function, tasks):
        if tasks and getattr(tasks[0], "name", "").startswith(self.begins) and self.happens:
            self.happens.pop()()
        return super().run(function, tasks)


@pytest.mark.parametrize(
    ("solver", "begins", "name"),
    [("auto", "cells", "statistics-0-00001"), ("falkon", "cell-", "sorted-00000")],
)
def test_a_result_damaged_between_two_passes_is_made_again(table, tmp_path, solver, begins, name):
    whole = on_disk(tmp_path / "whole", solver=solver).fit(table)
    path = tmp_path / "c" / f"{name}.numbers"
    engine = Between(begins=begins, happens=[partial(flip, path, 0.5)])
    with pytest.warns(UserWarning, match=f"{name}.json' or what it marks is damaged"):
        again = on_disk(tmp_path / "c", solver=solver, engine=engine).fit(table)
    assert_same(whole.model_, again.model_)


def test_a_truncated_result_is_never_read(tmp_path):
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.publish("a", np.zeros(3), {})
    (tmp_path / "a.numbers").write_bytes(bytes(16))
    with pytest.raises(ResultError, match=r"a.numbers' is damaged; the same call makes it again"):
        checkpoint.read("a", 0, [3], checksums(np.zeros(3), [3]))


def test_a_second_fit_in_the_same_folder_is_refused_and_does_not_disturb_the_first(table, tmp_path):
    refused = []

    def start_another():
        (tmp_path / "c" / ".unfinished-x").write_bytes(b"half")
        with pytest.raises(CheckpointError, match="in use by process") as error:
            on_disk(tmp_path / "c").fit(table)
        refused.append(error)
        assert (tmp_path / "c" / ".unfinished-x").exists()

    engine = Between(begins="cells", happens=[start_another])
    model = on_disk(tmp_path / "c", engine=engine).fit(table)
    assert len(refused) == 1
    assert_same(model.model_, on_disk(tmp_path / "alone").fit(table).model_)


def test_a_changed_parameter_is_named(fitted, table):
    with pytest.raises(CheckpointError, match=r"penalty was '1e-06' and is '0.001'"):
        on_disk(fitted[0], penalty=1e-3).fit(table)


def test_files_in_another_order_are_another_job(tmp_path):
    folder = write(tmp_path / "rows")
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    on_disk(tmp_path / "c").fit(scan_parquet(files, target="y"))
    with pytest.raises(CheckpointError, match="order of files was"):
        on_disk(tmp_path / "c").fit(scan_parquet(files[::-1], target="y"))


def test_a_classifier_does_not_take_up_the_fit_of_a_regressor(tmp_path):
    table = scan_parquet(write(tmp_path / "rows", z=np.tile([0.0, 1.0], 6000)), target="z")
    on_disk(tmp_path / "c").fit(table)
    names, given = ParKClassifier().get_params(), on_disk(tmp_path / "c").get_params()
    params = {name: value for name, value in given.items() if name in names}
    with pytest.raises(CheckpointError, match="estimator was 'ParKRegressor'"):
        ParKClassifier(**params).fit(table)


def test_results_that_build_on_another_unfitted_model_do_not_count(table, tmp_path):
    whole = on_disk(tmp_path, random_state=np.random.RandomState(3)).fit(table)
    (tmp_path / "unfitted.park").unlink()
    again = on_disk(tmp_path, random_state=np.random.RandomState(3)).fit(table)
    assert_same(whole.model_, again.model_)
    checkpoint = Checkpoint(str(tmp_path), tag="another")
    assert checkpoint.facts("statistics-0-00000") is None


def test_what_a_killed_task_left_is_swept(table, tmp_path):
    (tmp_path / ".unfinished-x").write_bytes(b"half")
    on_disk(tmp_path).fit(table)
    assert not list(tmp_path.glob(".unfinished*"))


def test_a_target_beside_files_is_refused(table):
    with pytest.raises(ParameterError, match="must be columns of the files"):
        on_disk(None).fit(table, np.ones(3))


def test_a_changed_file_is_named(tmp_path):
    folder = write(tmp_path / "rows")
    on_disk(tmp_path / "c").fit(scan_parquet(folder, target="y"))
    os.utime(folder / "1.parquet", ns=(1, 1))
    with pytest.raises(CheckpointError, match=r"1.parquet was"):
        on_disk(tmp_path / "c").fit(scan_parquet(folder, target="y"))


@pytest.mark.parametrize("content", ["{", "[]", f'{{"version": {JOB_VERSION}}}'])
def test_a_damaged_job_is_named_with_the_way_out(tmp_path, table, content):
    (tmp_path / "_job.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"_job.json' is damaged.*delete that file"):
        on_disk(tmp_path).fit(table)


def test_a_job_of_an_earlier_version_is_named(tmp_path, table):
    (tmp_path / "_job.json").write_text('{"version": 4}')
    with pytest.raises(CheckpointError, match=f"version was 4 and is {JOB_VERSION}"):
        on_disk(tmp_path).fit(table)


def test_a_job_changed_into_another_is_damaged(fitted, table, tmp_path):
    copy = Path(shutil.copytree(fitted[0], tmp_path / "c"))
    job = (copy / "_job.json").read_text()
    (copy / "_job.json").write_text(job.replace("1e-06", "1e-07"))
    with pytest.raises(CheckpointError, match=r"_job.json' is damaged"):
        on_disk(copy, penalty=1e-7).fit(table)


def test_without_the_job_file_results_of_another_job_are_not_used(fitted, table, tmp_path):
    copy = Path(shutil.copytree(fitted[0], tmp_path / "c"))
    (copy / "_job.json").unlink()
    other = on_disk(copy, penalty=1e-3).fit(table)
    assert_same(other.model_, on_disk(tmp_path / "fresh", penalty=1e-3).fit(table).model_)


def test_without_the_job_file_results_of_the_same_job_are_used(fitted, table, tmp_path):
    copy = Path(shutil.copytree(fitted[0], tmp_path / "c"))
    (copy / "_job.json").unlink()
    before = markers(copy)
    assert_same(fitted[1].model_, on_disk(copy).fit(table).model_)
    assert before.items() <= markers(copy).items()


def test_a_file_that_breaks_in_between_is_named_and_the_rest_is_kept(tmp_path):
    folder = write(tmp_path / "rows")
    found = decided(scan_parquet(folder, target="y"), tmp_path)
    whole = (folder / "2.parquet").read_bytes()
    (folder / "2.parquet").write_bytes(whole[:100] + bytes(len(whole) - 200) + whole[-100:])
    with pytest.raises(SourceError, match=r"2.parquet"):
        passes(found, tmp_path / "passes", engine=LocalEngine(n_threads=1))
    done = markers(tmp_path / "passes")
    assert "statistics-0-00001.json" in done
    (folder / "2.parquet").write_bytes(whole)
    resumed = passes(found, tmp_path / "passes").model
    assert done.items() <= markers(tmp_path / "passes").items()
    assert_same(resumed, passes(found, tmp_path / "fresh").model)


def test_a_full_disk_names_the_file_and_leaves_what_is_finished(tmp_path):
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.publish("a", np.ones(3), {})
    refused = pytest.raises(StorageError, match=r"b.numbers' cannot be written.*same call resumes")
    with full_disk(2**20), refused:
        checkpoint.publish("b", np.ones(2**18), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.numbers"]


KILLED = Path(__file__).parents[1] / "killed.py"


@pytest.mark.parametrize(
    ("n", "sizes"),
    [(60_000, ("6", "1500")), (12_000, ("40", '"auto"'))],
    ids=["statistics", "regions"],
)
def test_twenty_kills_at_random_moments_change_nothing(tmp_path, n, sizes):
    folder = write(tmp_path / "rows", n=n)
    done = subprocess.run(
        [sys.executable, str(KILLED), str(folder), str(tmp_path), *sizes],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"kills": 20, "run again": [], "same": True}


# Memory.


def plan(**changes):
    usual = {"n": 10**9, "width": 9, "t": 1, "n_cells": None, "n_centers": None, "cores": 2,
             "limit": 4e9, "group_bytes": 40e6}  # fmt: skip
    return choose_disk_sizes(**{**usual, **changes})


def test_automatic_cells_are_made_in_one_pass():
    found = plan()
    assert found.n_groups == 1
    assert 8 * found.n_centers * (400 + 1) <= found.room


def test_statistics_that_do_not_fit_are_made_in_several_passes():
    found = plan(n_cells=4096, n_centers=4096 * 600)
    assert found.n_groups > 8
    assert 8 * 4096 * 600 * 601 / found.n_groups <= found.room


def test_many_cores_with_little_memory_are_not_all_used():
    found = plan(cores=64)
    assert 2 <= found.n_workers < 10
    assert (found.n_cells, found.n_centers) == (plan().n_cells, plan().n_centers)


def test_too_little_memory_is_refused_with_the_way_out():
    with pytest.raises(ParameterError, match=r"max_memory must be at least .* GB") as refused:
        plan(n_cells=4, n_centers=40_000, limit=2e9)
    enough = float(str(refused.value).split("at least ")[1].split(" GB")[0]) + 0.1
    assert plan(n_cells=4, n_centers=40_000, limit=enough * 1e9)


def test_a_row_group_that_does_not_fit_is_refused_with_its_size():
    with pytest.raises(ParameterError, match="row groups of up to 9 GB"):
        plan(group_bytes=9e9)


def test_a_refused_fit_can_be_tried_again_with_more_memory(table, tmp_path):
    with pytest.raises(ParameterError, match="max_memory must be at least"):
        on_disk(tmp_path, max_memory="1GB").fit(table)
    on_disk(tmp_path, max_memory="3GB").fit(table)


@pytest.mark.parametrize(
    ("text", "wanted"), [("4GB", 4e9), ("1.5 g", 1.5e9), ("800MB", 8e8), (7, 7.0)]
)
def test_memory_may_be_written_in_words(text, wanted):
    from parkrr.errors import check_bytes

    assert check_bytes("max_memory", text) == wanted


def test_memory_that_is_no_number_is_refused():
    from parkrr.errors import check_bytes

    with pytest.raises(ParameterError, match="max_memory must be bytes"):
        check_bytes("max_memory", "much")


@pytest.fixture(scope="module")
def fitted_to_tokens_and_values(tmp_path_factory):
    """A model of files in which a token and the single values of a number matter."""
    folder = tmp_path_factory.mktemp("tokens")
    rng = np.random.default_rng(1)
    urgent, day = rng.random(12_000) < 0.3, rng.integers(31, size=12_000)
    note = [f"order {k} {'urgent' if u else 'any time'}" for k, u in enumerate(urgent)]
    y = rows(12_000)[1] + 2 * urgent + 2 * (day % 3 == 0)
    files = scan_parquet(write(folder / "rows", note=note, day=day, y=y), target="y")
    return files, on_disk(folder / "checkpoint").fit(files)


def test_tokens_of_files_that_tell_of_the_target_become_columns(fitted_to_tokens_and_values):
    _, model = fitted_to_tokens_and_values
    [note] = [column for column in model.columns_.columns if column.name == "note"]
    assert note.tokens == ("any", "time", "urgent")


def test_single_values_of_a_number_in_files_have_means(fitted_to_tokens_and_values):
    _, model = fitted_to_tokens_and_values
    [day] = [column for column in model.columns_.columns if column.name == "day"]
    assert day.knots == tuple(range(31))


def test_tokens_and_single_values_of_files_lower_the_error(fitted_to_tokens_and_values):
    files, model = fitted_to_tokens_and_values
    assert model.score_files(files)["r2"] > 0.8
