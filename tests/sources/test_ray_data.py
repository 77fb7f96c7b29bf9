"""Datasets of Ray Data, on one node of this machine."""

import os

import numpy as np
import pyarrow as pa
import pytest

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_memory_monitor_refresh_ms="0")
ray = pytest.importorskip("ray")
ray_data = pytest.importorskip("ray.data")

from parkrr import ParKRegressor, scan  # noqa: E402
from parkrr.errors import ParameterError  # noqa: E402
from source_rows import made_up, predict  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module")
def dataset():
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False)
    rows = made_up()
    parts = [rows[start : start + 100] for start in range(0, len(rows), 100)]
    yield ray_data.from_arrow(parts).map_batches(lambda batch: batch, batch_format="pyarrow")
    ray.shutdown()


def test_the_model_is_that_of_the_same_rows_in_order(dataset):
    table = scan(dataset, target="y")
    assert table.content == scan(made_up(), target="y").content
    assert predict(table) == predict(scan(made_up(), target="y"))


def test_a_dataset_keeps_its_options(dataset):
    before = dataset.context.execution_options.preserve_order
    scan(dataset, target="y")
    assert dataset.context.execution_options.preserve_order == before


def test_estimators_name_scan(dataset):
    with pytest.raises(ParameterError, match=r"write fit\(parkrr.scan"):
        ParKRegressor().fit(dataset)


def test_missing_values_are_kept(dataset):
    read = pa.concat_tables(scan(dataset, target="y").blocks(10**6, ["tip"]))
    tips = made_up()["tip"].to_numpy()
    assert np.array_equal(read["tip"].to_numpy(), tips, equal_nan=True)
