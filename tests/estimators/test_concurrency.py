"""One model, many threads and processes: each predicts what it would predict alone."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from parkrr import ParKClassifier, ParKRegressor, load
from parkrr.runtime.engine import torch_threads
from plain import PLAIN

THREADS = 16
SIZES = [1, 3, 150, 201, 1000]  # rows at a time: each way through the code
FORKED = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def rows(n=1000):
    return np.random.default_rng(1).normal(size=(n, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A regressor and a classifier as files."""
    folder = tmp_path_factory.mktemp("models")
    X = np.random.default_rng(0).normal(size=(1500, 3))
    settings = PLAIN | {"n_cells": 5, "random_state": 0}
    ParKRegressor(**settings).fit(X, np.sin(X[:, 0])).save(folder / "y.park")
    ParKClassifier(**settings).fit(X, X[:, 0] > X[:, 1]).save(folder / "label.park")
    return folder


def predictions(model, size):
    """Predictions and novelty of the first rows, `size` at a time."""
    parts = [rows()[start : start + size] for start in range(0, min(1000, 10 * size), size)]
    return [*(model.predict(part) for part in parts), *(model.novelty(part[:5]) for part in parts)]


def same(found, expected):
    """Whether they differ by rounding at most: threads that are free decide how rows are cut."""
    return all(np.allclose(a, b, 1e-9, 1e-9) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["y", "label"])
def test_threads_that_share_a_model_predict_the_same_as_one(folder, name):
    sizes = [SIZES[k % len(SIZES)] for k in range(THREADS)]
    expected = [predictions(load(folder / f"{name}.park"), size) for size in sizes]
    model = load(folder / f"{name}.park")  # which has prepared nothing yet
    together = threading.Barrier(THREADS)

    def work(size):
        together.wait(timeout=30)
        return predictions(model, size)

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(work, sizes))
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_threads_leave_torch_with_as_many_threads_as_it_had(folder):
    before = torch.get_num_threads()
    model = load(folder / "y.park")
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda size: predictions(model, size), SIZES * 3))
    assert torch.get_num_threads() == before


def test_models_can_be_loaded_and_replaced_by_threads_at_once(folder, tmp_path):
    model = load(folder / "y.park")
    expected = model.predict(rows())

    def work(number):
        model.save(tmp_path / "m.park")
        return load(tmp_path / "m.park").predict(rows())

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(same([found], [expected]) for found in pool.map(work, range(40)))
    assert [path.name for path in tmp_path.iterdir()] == ["m.park"]


def in_a_process(path, size):
    """Predictions of a worker that loads the model, and whether the file is in its memory."""
    model = load(path)
    return predictions(model, size), str(path) in Path("/proc/self/maps").read_text()


def predict_there(model, size):
    """Predictions of a worker that is sent the model."""
    return predictions(model, size)


def test_spawned_processes_predict_the_same_from_a_mapped_file_and_from_a_pickle(folder):
    path = folder / "y.park"
    expected = [predictions(load(path), size) for size in SIZES]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        loaded = list(pool.map(in_a_process, [path] * len(SIZES), SIZES, timeout=60))
        sent = list(pool.map(predict_there, [load(path)] * len(SIZES), SIZES, timeout=60))
    assert all(same(a, b) and there for (a, there), b in zip(loaded, expected, strict=True))
    assert all(same(a, b) for a, b in zip(sent, expected, strict=True))


def use_threads_of_torch():
    """Start the threads of OpenMP, which no fork survives."""
    A = torch.ones(1000, 1000)
    torch.exp(A @ A)


def threads_while_predicting(path):
    """Threads before a process predicts single rows, after it, and when torch has used its."""
    torch.set_num_threads(2)
    model, counts = load(path), []
    singles = [row[None] for row in rows(20)]
    for work in (int, lambda: [model.predict(row) for row in singles], use_threads_of_torch):
        work()
        counts.append(len(list(Path("/proc/self/task").iterdir())))
    return counts


def test_single_rows_wake_no_threads(folder):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        before, after, with_pool = pool.submit(threads_while_predicting, folder / "y.park").result()
    assert (after, with_pool) == (before, before + 1)


@FORKED
def test_forked_processes_predict_the_same_after_torch_has_used_threads(folder):
    model = load(folder / "y.park")
    expected = [predictions(model, size) for size in SIZES]
    use_threads_of_torch()
    with multiprocessing.get_context("fork").Pool(4) as pool:
        jobs = [pool.apply_async(predict_there, (model, size)) for size in SIZES]
        found = [job.get(timeout=30) for job in jobs]
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def fitted_there(X):
    return ParKRegressor(**PLAIN, n_cells=2, random_state=0).fit(X, X[:, 0]).predict(X)


@FORKED
def test_a_model_can_be_fitted_in_a_forked_process(folder):
    X = rows(800)
    expected = fitted_there(X)
    use_threads_of_torch()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply_async(fitted_there, (X,)).get(timeout=30)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@FORKED
def test_processes_forked_while_threads_predict_predict_the_same(folder):
    model = load(folder / "y.park")
    expected, done = predictions(model, 201), threading.Event()

    def keep_busy():
        while not done.is_set():
            model.predict(rows())

    with ThreadPoolExecutor(4) as busy:
        jobs = [busy.submit(keep_busy) for _ in range(4)]
        with multiprocessing.get_context("fork").Pool(4) as pool:
            asked_for = [pool.apply_async(predict_there, (model, 201)) for _ in range(8)]
            found = [job.get(timeout=30) for job in asked_for]
        done.set()
    assert all(same(a, expected) for a in found)
    assert [job.exception() for job in jobs] == [None] * 4


def threads_of_torch(_):
    with torch_threads(3):
        inside = torch.get_num_threads()
    return inside, torch.get_num_threads()


@FORKED
def test_a_forked_process_begins_with_one_thread_of_torch():
    with torch_threads(2), multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map_async(threads_of_torch, [0]).get(timeout=30) == [(3, 1)]
