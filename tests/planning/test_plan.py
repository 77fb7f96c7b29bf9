"""A plan says what a fit will be, and refuses what cannot be."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from ondisk import write
from parkrr import ParKClassifier, ParKRegressor, scan_parquet
from parkrr.errors import BudgetError, ParameterError
from parkrr.kernels import Matern
from parkrr.planning.machine_speed import MachineSpeed, measure_speed
from parkrr.planning.sizes import (
    CellSpread,
    FitSize,
    choose_sizes,
    estimate_bytes,
    estimate_seconds,
)
from parkrr.runtime.formatting import describe_bytes
from parkrr.runtime.memory import process_bytes
from parkrr.solvers.factors import cholesky_in_place
from parkrr.solvers.problem import kernel_of_rows
from plain import PLAIN, plain

STEADY = MachineSpeed(*[1e-3] * 2, *[1e-9] * 4, 1e-10, 1e-5)


def shape(n=200_000, **changes):
    settled = {
        "n": n,
        "d": 9,
        "t": 1,
        "n_cells": 100,
        "n_centers": n,
        "spread": CellSpread(2.0, 6.0, 1.3, 2.0),
        "float64": False,
        "cores": 2,
        "families": 3,
        "learns": True,
        "chooses": True,
        "tries": True,
        "keeps": False,
        "tuning_seconds": 40.0,
    }
    return FitSize(**{**settled, **changes})


def rows(n=1000, d=3):
    X = np.random.default_rng(0).normal(size=(n, d))
    return X, np.sin(X[:, 0])


@pytest.mark.parametrize("seconds", [20.0, 200.0])
def test_sizes_keep_the_time_budget_by_the_cost_model(seconds):
    size = choose_sizes(shape(), None, None, seconds, None, speed=STEADY)
    steps = estimate_seconds(size, STEADY)
    fitting = steps["blend trial"] + steps["partition"] + steps["cells"] + steps["uncertainty"]
    assert fitting <= seconds / 2


def test_a_larger_budget_gives_larger_cells():
    few = choose_sizes(shape(), None, None, 400.0, None, speed=STEADY)
    many = choose_sizes(shape(), None, None, 40.0, None, speed=STEADY)
    assert few.n_cells < many.n_cells


@pytest.mark.parametrize("limit", [7e8, 1e9, 3e9])
def test_sizes_keep_the_memory_by_the_cost_model(limit):
    assert estimate_bytes(choose_sizes(shape(14_000), None, None, None, limit)) <= limit


def test_more_rows_in_a_cell_take_longer_and_more_memory():
    small, large = shape(n_cells=100), shape(n_cells=20)
    assert estimate_seconds(large, STEADY)["cells"] > estimate_seconds(small, STEADY)["cells"]
    assert estimate_bytes(large) > estimate_bytes(small)


def test_a_fit_with_nothing_to_choose_has_no_steps_of_choosing():
    settled = shape(chooses=False, tries=False, learns=False, families=0)
    assert list(estimate_seconds(settled, STEADY)) == ["partition", "cells", "uncertainty"]


def test_every_piece_of_work_takes_some_time():
    assert min(vars(measure_speed(3, 1, 2)).values()) > 0


def test_the_steps_of_a_plan_are_those_of_the_fit():
    X, y = rows()
    model = ParKRegressor(n_cells=4, time_budget=1.0, keep_statistics=False, random_state=0)
    plan = model.plan(X, y)
    assert set(plan.seconds) == set(model.fit(X, y).seconds_)


def test_a_plan_has_the_cells_and_centres_of_the_fit():
    X, y = rows(3000)
    model = plain(n_cells=7, n_centers=900, balance=False)
    plan = model.plan(X, y)
    assert (plan.cells, plan.centers) == (7, 900)
    assert model.fit(X, y).n_cells_ == 7


def test_a_plan_in_memory_leaves_the_estimator_unfitted():
    model = plain()
    model.plan(*rows())
    assert not hasattr(model, "model_")


def test_classes_count_as_targets():
    X, _ = rows(300)
    labels = np.arange(300) % 5
    assert ParKClassifier(**PLAIN).plan(X, labels).targets == 5
    assert ParKClassifier(**PLAIN).plan(X, labels > 1).targets == 1


def test_words_and_dates_count_as_the_numbers_they_become():
    day = pd.date_range("2024-01-01", periods=400)
    words = pd.DataFrame({"day": day, "word": ["a", "b", "c", "d"] * 100})
    plan = plain().plan(words, np.arange(400.0))
    assert plan.features == 2
    assert plan.numbers > 4


def test_a_plan_of_files_says_what_is_read_and_written(tmp_path):
    write(tmp_path, 4000, n_files=2)
    table = scan_parquet(tmp_path, target="y")
    disk = plain(checkpoint=tmp_path / "job", max_memory="3GB").plan(table)
    memory = plain().plan(table)
    assert (disk.where, memory.where) == ("disk", "memory")
    assert disk.bytes_written > 0 == memory.bytes_written
    assert memory.bytes_read == sum(group.n_bytes for group in table.row_groups)


def test_a_plan_is_plain_data_and_a_few_lines():
    plan = plain().plan(*rows())
    assert json.loads(json.dumps(plan.plain()))["rows"] == 1000
    assert [line.split()[0] for line in str(plan).splitlines()] == [
        *("data", "cells", "centres", "memory", "time", "disk")
    ]


def test_a_time_budget_that_is_too_short_has_a_note_with_a_way_out():
    [note] = ParKRegressor(time_budget=0.01).plan(*rows()).advice
    assert "time_budget=0.01 is too short by" in note
    assert "set kernel, penalty, metric" in note


TRIES = [(n, cells) for n in (2000, 5000, 10_000, 14_000, 40_000) for cells in (1, 2, 4, 9)]


@pytest.mark.parametrize(("n", "cells"), TRIES)
def test_a_fit_that_would_exceed_its_memory_is_refused_before_it_starts(n, cells, monkeypatch):
    monkeypatch.setattr("parkrr.estimators.base.fit_park", lambda *_: pytest.fail("it started"))
    X = np.random.default_rng(0).normal(size=(n, 4))
    limit = 0.9 * 8 * (n / cells) ** 2  # a matrix of a mean cell alone is larger
    model = plain(n_cells=cells, n_centers=n, max_memory=limit)
    with pytest.raises(BudgetError, match=r"max_memory must be at least"):
        model.fit(X, X[:, 0])


def test_too_little_memory_is_refused_with_a_way_out():
    with pytest.raises(BudgetError, match=r"set kernel, penalty, metric, blend and coarse"):
        ParKRegressor(max_memory=1e6).fit(np.eye(10), np.arange(10.0))
    with pytest.raises(BudgetError, match=r"lower n_centers"):
        plain(n_cells=1, max_memory=1e6).fit(np.eye(10), np.arange(10.0))


def test_files_that_cannot_be_fitted_in_the_memory_are_refused(tmp_path):
    write(tmp_path, 4000, n_files=2)
    model = plain(checkpoint=tmp_path / "job", max_memory="0.5GB")
    with pytest.raises(BudgetError, match=r"max_memory must be at least"):
        model.fit(scan_parquet(tmp_path, target="y"))
    assert list((tmp_path / "job").iterdir()) == []


def test_a_budget_is_a_parameter():
    assert issubclass(BudgetError, ParameterError)


def test_a_fit_larger_than_what_is_free_warns(monkeypatch):
    monkeypatch.setattr("parkrr.planning.settings.free_bytes", lambda: 1e6)
    monkeypatch.setattr("parkrr.planning.settings.SMALL_FIT", 0)
    with pytest.warns(ResourceWarning, match="set max_memory"):
        plain().fit(*rows())


def test_the_process_is_as_large_as_the_system_says():
    before = process_bytes()
    taken = np.ones(20_000_000)
    assert 0.9 * taken.nbytes < process_bytes() - before < 1.5 * taken.nbytes


@pytest.mark.parametrize(
    ("count", "words"), [(0, "nothing"), (12, "12 bytes"), (1.5e6, "1.5 MB"), (4e9, "4 GB")]
)
def test_bytes_are_told_in_words(count, words):
    assert describe_bytes(count) == words


def test_a_factor_takes_the_place_of_its_matrix():
    X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = kernel_of_rows(Matern(1.0), X)
    K.diagonal().add_(0.1)
    expected, place = torch.linalg.cholesky(K), K.data_ptr()
    L = cholesky_in_place(K)
    assert L.data_ptr() == place
    torch.testing.assert_close(L, expected, rtol=1e-12, atol=1e-12)


def test_a_matrix_that_is_not_positive_has_no_factor_in_place():
    assert cholesky_in_place(-torch.eye(3, dtype=torch.float64)) is None


def test_importing_parkrr_imports_neither_ray_nor_matplotlib_nor_typer():
    code = (
        "import sys; from parkrr import *; print([name for name in "
        "('ray', 'matplotlib', 'typer', 'rich') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
