"""Engines, tasks that are run on them, and torch's threads."""

import sys
import threading

import numpy as np
import pytest
import torch

from ondisk import on_disk, write
from parkrr import Gaussian, LocalEngine, ParKRegressor, load, scan_parquet
from parkrr.errors import ParameterError
from parkrr.runtime import as_engine, map_on_threads, run_tasks, torch_threads


class OneByOne:
    """An engine of one's own: no base class, every task here, the last task first."""

    cores, n_nodes, remote = 3, 1, False
    local = LocalEngine(1)

    def __init__(self):
        self.n_tasks = 0

    def threads_per_task(self, n_tasks):
        return 1

    def run(self, function, tasks):
        for number in reversed(range(len(tasks))):
            self.n_tasks += 1
            yield number, function(tasks[number])

    def map(self, function, tasks):
        return [function(task) for task in tasks]


def test_a_fit_runs_on_an_engine_of_ones_own():
    X = np.random.default_rng(0).normal(size=(400, 2))
    settings = {"kernel": Gaussian(), "penalty": 1e-3, "n_cells": 4, "n_centers": 80}
    settings |= {"metric": "euclidean", "blend": 1, "coarse": 0, "random_state": 0}
    engine = OneByOne()
    own = ParKRegressor(**settings, engine=engine, progress=False).fit(X, X[:, 0])
    local = ParKRegressor(**settings, engine="local", progress=False).fit(X, X[:, 0])
    np.testing.assert_allclose(own.predict(X), local.predict(X), atol=1e-6)
    assert engine.n_tasks == own.n_cells_


def test_the_passes_over_files_run_on_an_engine_of_ones_own(tmp_path):
    engine, table = OneByOne(), scan_parquet(write(tmp_path / "rows", n=3000), target="y")
    own = on_disk(tmp_path / "own", engine=engine).fit(table)
    local = on_disk(tmp_path / "local").fit(table)
    np.testing.assert_array_equal(own.model_.weights[0], local.model_.weights[0])
    assert engine.n_tasks > own.n_cells_


def test_a_saved_model_has_no_engine_of_ones_own(tmp_path):
    X = np.random.default_rng(0).normal(size=(400, 2))
    engine = OneByOne()
    engine.remote = True
    settings = {"kernel": Gaussian(), "penalty": 1e-3, "metric": "euclidean", "engine": engine}
    ParKRegressor(**settings, blend=1, coarse=0).fit(X, X[:, 0]).save(tmp_path / "m.park")
    assert load(tmp_path / "m.park").engine == "local"


@pytest.mark.parametrize("engine", ["dask", 3, object(), None])
def test_what_is_no_engine_is_refused_with_what_it_lacks(engine):
    with pytest.raises(ParameterError, match=r"engine must be 'local', 'ray', .*run"):
        as_engine(engine)


def test_the_name_local_is_an_engine():
    assert as_engine("local") == LocalEngine()


@pytest.mark.parametrize("n_threads", [0, -1])
def test_an_engine_needs_a_thread(n_threads):
    with pytest.raises(ParameterError, match="n_threads must be >= 1 or None"):
        LocalEngine(n_threads)


@pytest.mark.parametrize("n_tasks", [0, 1, 5])
def test_map_keeps_the_order(n_tasks):
    assert LocalEngine(3).map(lambda task: task**2, range(n_tasks)) == [
        k**2 for k in range(n_tasks)
    ]


def test_a_failing_task_raises_and_cancels_those_that_wait():
    started = []

    def work(task):
        started.append(task)
        if task == 0:
            raise RuntimeError("task 0")
        threading.Event().wait(0.05)

    with pytest.raises(RuntimeError, match="task 0"):
        LocalEngine(2).map(work, range(100))
    assert len(started) < 20


SHOWN = {"label": "adding", "unit": "numbers", "shown": False}


def test_results_of_tasks_are_in_their_order_with_those_done_before():
    calls = []

    def double(task):
        calls.append(task)
        return 2 * task

    done = [None, 100, None, 300]
    results = run_tasks(OneByOne(), double, [5, 6, 7, 8], size_of=int, done=done, **SHOWN)
    assert results == [10, 100, 14, 300]
    assert sorted(calls) == [5, 7]


def test_the_longest_tasks_start_first_and_large_ones_alone():
    groups = []

    class Spy(OneByOne):
        def run(self, function, tasks):
            groups.append(list(tasks))
            return super().run(function, tasks)

    run_tasks(Spy(), abs, [1, 9, 3, 8, 2], size_of=int, alone=lambda task: task > 5, **SHOWN)
    assert groups == [[9], [8], [3, 2, 1]]
    groups.clear()
    run_tasks(Spy(), abs, [1, 9, 3], size_of=int, work_of=lambda task: -task, **SHOWN)
    assert groups == [[1, 3, 9]]


def test_torch_gets_its_threads_back_whatever_order_contexts_end_in():
    before = torch.get_num_threads()
    first, second = torch_threads(1), torch_threads(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == before


def halve_smallest_number(_=0):
    return float(torch.full((), sys.float_info.min, dtype=torch.float64) / 2)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_numbers_below_the_smallest_normal_one_are_zero_in_tasks(n_threads):
    assert map_on_threads(halve_smallest_number, range(3), n_threads) == [0.0] * 3


def test_numbers_below_the_smallest_normal_one_are_kept_after_nested_contexts_in_any_order():
    outer, inner = torch_threads(1), torch_threads(1)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert halve_smallest_number() == 0.0
    inner.__exit__(None, None, None)
    assert halve_smallest_number() > 0.0


@pytest.mark.parametrize("n_threads", [1, 3])
def test_short_tasks_on_threads_see_one_thread_of_torch(n_threads):
    seen = map_on_threads(lambda task: (task, torch.get_num_threads()), range(6), n_threads)
    assert seen == [(task, 1) for task in range(6)]
