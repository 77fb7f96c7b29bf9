"""A plan describes a fit before it begins, and refuses what cannot be."""

import json

import numpy as np
import pandas as pd
import pytest

from ondisk import write
from parkrr import ParKClassifier, ParKRegressor, scan_parquet
from parkrr.errors import BudgetError, ParameterError
from plain import PLAIN, plain


def rows(n=1000, d=3):
    X = np.random.default_rng(0).normal(size=(n, d))
    return X, np.sin(X[:, 0])


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


def test_categories_and_dates_count_as_the_numbers_they_become():
    day = pd.date_range("2024-01-01", periods=400)
    table = pd.DataFrame({"day": day, "letter": ["a", "b", "c", "d"] * 100})
    plan = plain().plan(table, np.arange(400.0))
    assert plan.features == 2
    assert plan.numbers > 4


def test_a_plan_of_files_counts_what_is_read_and_written(tmp_path):
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
