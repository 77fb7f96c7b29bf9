"""The same tasks on a Ray cluster of several nodes on this machine, while parts of it die.

Nodes are processes on loopback addresses; a task on a node writes a flag when it starts, so that
what is killed was at work.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import fs

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_health_check_period_ms="500",
    RAY_health_check_timeout_ms="500",
    RAY_health_check_initial_delay_ms="500",
    RAY_health_check_failure_threshold="3",
    RAY_memory_monitor_refresh_ms="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    # Workers import this module and those beside the folder.
    PYTHONPATH=os.pathsep.join(
        [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    ),
)
ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from ondisk import frame, on_disk, rows, write  # noqa: E402
from parkrr import scan_parquet  # noqa: E402
from parkrr.data.storage import open_folder  # noqa: E402
from parkrr.errors import CheckpointError  # noqa: E402
from parkrr.kernels import Gaussian  # noqa: E402
from parkrr.out_of_core.checkpoint import Checkpoint  # noqa: E402
from parkrr.planning import disk_sizes  # noqa: E402
from parkrr.runtime.ray_engine import FIRST_MEMORY, Attempt, RayEngine  # noqa: E402
from plain import plain  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster():
    # 127.0.0.1 would be rewritten to the host's address, where nothing listens.
    store = {"object_store_memory": 80 << 20}
    head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.2", **store}
    there = Cluster(initialize_head=True, head_node_args=head)
    there.add_node(num_cpus=2, num_gpus=2, node_ip_address="127.0.0.3", **store)
    there.wait_for_nodes()
    ray.init(address=there.address, _node_ip_address="127.0.0.2", log_to_driver=False)
    yield there
    ray.shutdown()
    there.shutdown()


@pytest.fixture
def extra_node(cluster):
    """A node that can be killed."""
    node = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.4", object_store_memory=80 << 20)
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


def wait_for(condition, seconds=60):
    """Until it holds; a test that waits longer has failed."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def ran(folder, where, task):
    """A task that leaves a trace of each run; the first on node `where` never ends.

    The others wait for it, so that there are some left for that node.
    """
    runs = len(list(folder.glob(f"run-{task}-*")))
    (folder / f"run-{task}-{runs}").touch()
    flag = folder / "held"
    if ray.util.get_node_ip_address() == where and not flag.is_symlink():
        flag.symlink_to(str(os.getpid()))
        threading.Event().wait(600)
    wait_for(flag.is_symlink)
    return task * task


def held(folder):
    """The process that is held, once there is one."""
    wait_for((folder / "held").is_symlink)
    return int(os.readlink(folder / "held"))


def in_the_background(work):
    found = {}
    thread = threading.Thread(target=lambda: found.update(work()))
    thread.start()
    return thread, found


SQUARES = {k: k * k for k in range(12)}


def squares(folder, where):
    return dict(RayEngine().run(partial(ran, folder, where), range(12)))


def test_tasks_give_their_results(cluster):
    assert sorted(RayEngine().run(abs, [-3, 5, -7])) == [(0, 3), (1, 5), (2, 7)]
    assert RayEngine().map(abs, [-3, 5]) == [3, 5]


def test_an_error_in_a_task_is_the_one_that_was_raised(cluster):
    with pytest.raises(ZeroDivisionError):
        RayEngine().map(partial(divmod, 1), [1, 0])


def test_a_task_whose_worker_is_killed_runs_again(cluster, tmp_path):
    thread, found = in_the_background(partial(squares, tmp_path, "127.0.0.3"))
    os.kill(held(tmp_path), signal.SIGKILL)
    thread.join(timeout=100)
    assert found == SQUARES
    assert len(list(tmp_path.glob("run-*"))) == 13


def test_a_task_whose_node_is_removed_runs_again_elsewhere(cluster, extra_node, tmp_path):
    thread, found = in_the_background(partial(squares, tmp_path, "127.0.0.4"))
    held(tmp_path)
    cluster.remove_node(extra_node, allow_graceful=False)
    thread.join(timeout=100)
    assert found == SQUARES
    assert len(list(tmp_path.glob("run-*"))) >= 13


@dataclass(frozen=True)
class BeforeTasks(RayEngine):
    """An engine that calls `before(task)` where a task runs, if the name of the task begins so."""

    before: Callable[[Any], Any] = print
    begins: str = ""

    def run(self, function, tasks):
        return super().run(partial(after, self.before, self.begins, function), tasks)


def after(before, begins, function, task):
    if getattr(task, "name", "").startswith(begins):
        before(task)
    return function(task)


def hold_slice(folder, where, task):
    """The first slice of all on node `where` never ends."""
    ran(folder, where, int(task.name[-5:]))


@pytest.fixture
def small_regions(monkeypatch):
    """Regions of some 8,000 rows, where by default none has fewer than 50,000."""
    monkeypatch.setattr(disk_sizes, "LEAST_REGION", 1000)


REGIONS = {"n_cells": 60, "n_centers": "auto"}


@pytest.mark.usefixtures("small_regions")
@pytest.mark.parametrize(("begins", "sizes"), [("statistics", {}), ("region", REGIONS)])
def test_a_fit_whose_node_is_removed_is_the_undisturbed_one(
    cluster, extra_node, tmp_path, begins, sizes
):
    table = scan_parquet(write(tmp_path / "rows", n=60_000), target="y")
    whole = on_disk(tmp_path / "whole", **sizes).fit(table)
    hold = partial(hold_slice, tmp_path, "127.0.0.4")
    fit = on_disk(tmp_path / "c", engine=BeforeTasks(before=hold, begins=begins), **sizes).fit
    thread, found = in_the_background(lambda: {"model": fit(table)})
    held(tmp_path)
    cluster.remove_node(extra_node, allow_graceful=False)
    thread.join(timeout=100)
    assert len(list(tmp_path.glob("run-*"))) >= 9  # 8 slices or regions, and one of them twice
    np.testing.assert_array_equal(found["model"].predict(frame()), whole.predict(frame()))


@pytest.mark.usefixtures("small_regions")
@pytest.mark.parametrize("sizes", [{}, REGIONS], ids=["statistics", "regions"])
def test_a_fit_from_files_is_the_local_one(cluster, tmp_path, sizes):
    table = scan_parquet(write(tmp_path / "rows"), target="y")
    local = on_disk(tmp_path / "local", **sizes).fit(table)
    remote = on_disk(tmp_path / "ray", engine="ray", **sizes).fit(table)
    for a, b in zip(local.model_.weights, remote.model_.weights, strict=True):
        assert torch.equal(a, b)


def test_cells_that_need_their_rows_again_are_the_local_ones(cluster, tmp_path):
    X, _ = rows(4000)
    smooth = np.sin(X[:, 0]) + 0.3 * X[:, 1] * X[:, 2]
    table = scan_parquet(write(tmp_path / "rows", 4000, y=smooth), target="y")
    settings = {"kernel": Gaussian(3.0), "penalty": 1e-16}
    local = on_disk(tmp_path / "local", **settings).fit(table)
    remote = on_disk(tmp_path / "ray", engine="ray", **settings).fit(table)
    assert any("falkon in float64" in cell.fallback for cell in remote.report_)
    np.testing.assert_array_equal(remote.predict(frame()), local.predict(frame()))


def test_nodes_that_share_a_bucket_and_no_folder_give_the_local_fit(cluster, s3, tmp_path):
    folder = write(tmp_path / "rows")
    there = open_folder(s3("ray")).filesystem
    fs.copy_files(str(folder), "rows/ray/rows", destination_filesystem=there)
    table = scan_parquet(s3("ray/rows"), target="y")
    remote = on_disk(s3("ray/fit"), engine="ray").fit(table)
    local = on_disk(tmp_path / "local").fit(table)
    assert remote.predict_to(table, s3("ray/out")) == 12_000
    for a, b in zip(local.model_.weights, remote.model_.weights, strict=True):
        assert torch.equal(a, b)
    written = next(scan_parquet(s3("ray/out"), target="prediction").blocks(10**6, ["prediction"]))
    rows = next(table.blocks(10**6, ["a", "b", "c"]))
    np.testing.assert_allclose(np.array(written["prediction"]), local.predict(rows), rtol=1e-12)


def test_a_fit_of_arrays_is_the_local_one(cluster):
    X = np.random.default_rng(0).normal(size=(2000, 3))
    settings = {"n_cells": 5, "n_centers": 300, "random_state": 0}
    local = plain(**settings).fit(X, X[:, 0])
    remote = plain(**settings, engine=RayEngine()).fit(X, X[:, 0])
    np.testing.assert_allclose(local.predict(X), remote.predict(X), rtol=1e-10, atol=1e-10)


def test_predictions_to_files_are_the_local_ones(cluster, tmp_path):
    table = scan_parquet(write(tmp_path / "rows"), target="y")
    model = on_disk(tmp_path / "c", engine="ray").fit(table)
    assert model.predict_to(table, tmp_path / "out", keys=["a"]) == 12_000
    written = next(scan_parquet(tmp_path / "out" / "*.parquet").blocks(10**6, ["a", "prediction"]))
    rows = next(table.blocks(10**6, ["a", "b", "c"]))
    np.testing.assert_array_equal(np.array(written["a"]), np.array(rows["a"]))
    np.testing.assert_allclose(np.array(written["prediction"]), model.predict(rows), rtol=1e-12)


def losing(checkpoint, names, found):
    """Remove results as the disk of a lost node would, once all of them are there."""
    wait_for(lambda: all((checkpoint / f"{name}.json").exists() for name in names))
    for name in names[:3]:
        found[name] = (checkpoint / f"{name}.json").stat().st_mtime_ns
        (checkpoint / f"{name}.json").unlink()
        (checkpoint / f"{name}.numbers").unlink()


def wait_for_file(path, task):
    wait_for(path.exists)


def test_partial_sums_lost_with_a_node_are_made_again(cluster, tmp_path):
    table = scan_parquet(write(tmp_path / "rows"), target="y")
    whole = on_disk(tmp_path / "whole").fit(table)
    names = sorted(path.stem for path in (tmp_path / "whole").glob("statistics-*.json"))
    lost = {}
    stolen = tmp_path / "c" / "stolen"
    engine = BeforeTasks(before=partial(wait_for_file, stolen), begins="cells")

    def steal():
        losing(tmp_path / "c", names, lost)
        stolen.touch()

    thief = threading.Thread(target=steal)
    thief.start()
    model = on_disk(tmp_path / "c", engine=engine).fit(table)
    thief.join(timeout=60)
    again = {name: (tmp_path / "c" / f"{name}.json").stat().st_mtime_ns for name in lost}
    assert len(lost) == 3
    assert all(again[name] > lost[name] for name in lost)
    np.testing.assert_array_equal(model.predict(frame()), whole.predict(frame()))


def try_to_hold(folder, result, task):
    """Where a task runs, hold the folder of the fit that it is part of."""
    try:
        with Checkpoint(str(folder)).hold():
            result.write_text("held")
    except CheckpointError as error:
        result.write_text(str(error))


def test_the_driver_holds_the_checkpoint_and_workers_write_for_it(cluster, tmp_path):
    table = scan_parquet(write(tmp_path / "rows"), target="y")
    refused = partial(try_to_hold, tmp_path / "c", tmp_path / "refused")
    model = on_disk(tmp_path / "c", engine=BeforeTasks(before=refused, begins="cells")).fit(table)
    assert f"in use by process {os.getpid()} on" in (tmp_path / "refused").read_text()
    assert "_lease" not in {path.name for path in (tmp_path / "c").iterdir()}
    local = on_disk(tmp_path / "local").fit(table)
    np.testing.assert_array_equal(model.predict(frame()), local.predict(frame()))


def visible(_):
    return os.environ["CUDA_VISIBLE_DEVICES"]


def test_tasks_that_ask_for_a_gpu_are_given_one(cluster):
    """Ray is told that there are two: this is about scheduling, nothing runs on a GPU."""
    assert set(RayEngine(num_gpus=1).map(visible, range(4))) <= {"0", "1"}


@pytest.fixture
def crowded_node(cluster, monkeypatch):
    """A node whose memory monitor kills when 3 GB more of this machine are in use than now.

    Its own processes take some of them before a task runs.
    """
    total, available = (
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith(("MemTotal", "MemAvailable"))
    )
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "50")
    monkeypatch.setenv("RAY_memory_usage_threshold", str(1 - (available - 3 * 2**30) / total))
    store = {"object_store_memory": 80 << 20, "memory": 64 << 30}
    node = cluster.add_node(num_cpus=3, node_ip_address="127.0.0.5", **store)
    yield node
    cluster.remove_node(node)


def hungry(flag, _):
    """Takes 6 GB at first, and once that was too much says what it was promised."""
    if not flag.exists():
        flag.touch()
        taken = bytearray(os.urandom(2**20) * 6144)
        threading.Event().wait(600)
        return len(taken)
    return ray.get_runtime_context().get_assigned_resources().get("memory", 0)


def test_a_task_killed_for_its_memory_is_promised_more(cluster, crowded_node, tmp_path):
    engine = RayEngine(num_cpus=3)  # which no other node has
    # At least: Ray may kill again before the system has taken back the first 6 GB.
    assert engine.map(partial(hungry, tmp_path / "flag"), [0])[0] >= FIRST_MEMORY


def test_what_a_task_is_promised_doubles_up_to_the_largest_node(cluster):
    engine, error = RayEngine(), ray.exceptions.OutOfMemoryError("too much")
    first = engine.again(Attempt(0, 0), error)
    second = engine.again(first, error)
    assert (first.memory, second.memory) == (FIRST_MEMORY, 2 * FIRST_MEMORY)
    with pytest.raises(ray.exceptions.OutOfMemoryError):
        engine.again(Attempt(5, 2**50), error)
