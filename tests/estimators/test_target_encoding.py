"""What a model says of itself where categories are encoded by their targets, on pure noise."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parkrr import Gaussian, ParKClassifier, ParKRegressor, scan_parquet
from parkrr.errors import ParameterError

SETTINGS = {
    "kernel": Gaussian(),
    "metric": "standard",
    "penalty": "auto",
    "blend": 1,
    "coarse": 0,
    "random_state": 0,
    "progress": False,
}


def noise(n, seed):
    """Six columns of 300 categories that tell nothing of a target."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"c{k}": [f"c{v}" for v in rng.integers(300, size=n)] for k in range(6)})
    return frame, rng.normal(size=n)


def hash_free(name):
    """A number that a category stands for."""
    return float(ord(name[0]) + ord(name[1])) / 10


def r2(truth, predicted):
    return 1 - np.mean((truth - predicted) ** 2) / np.var(truth)


def check(model):
    frame, y = noise(4000, seed=1)
    rows = model.validation_rows_
    lower, upper = model.predict_interval(frame)
    assert r2(rows["truth"], rows["predicted"]) == pytest.approx(model.score(frame, y), abs=0.03)
    assert np.mean((lower <= y) & (y <= upper)) == pytest.approx(0.9, abs=0.025)


def test_validation_error_on_noise_is_that_of_new_rows():
    check(ParKRegressor(**SETTINGS).fit(*noise(4000, seed=0)))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_validation_error_on_noise_in_files_is_that_of_new_rows(checkpoint, tmp_path):
    frame, y = noise(4000, seed=0)
    pq.write_table(pa.Table.from_pandas(frame.assign(y=y)), tmp_path / "rows.parquet")
    folder = tmp_path / "fit" if checkpoint else None
    table = scan_parquet(tmp_path / "rows.parquet", target="y")
    check(ParKRegressor(checkpoint=folder, **SETTINGS).fit(table))


def test_files_and_a_frame_give_the_same_model(tmp_path):
    frame, y = noise(1000, seed=0)
    frame = frame[["c0"]].map(lambda name: name[1] + name[-1] + "c")  # 100 categories
    y = y + frame["c0"].map(hash_free).to_numpy()
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pandas(frame.assign(y=y)), path, row_group_size=300)
    from_files = ParKRegressor(**SETTINGS).fit(scan_parquet(path, target="y"))
    from_frame = ParKRegressor(**SETTINGS).fit(frame, y)
    np.testing.assert_allclose(from_files.predict(frame), from_frame.predict(frame), rtol=1e-6)


def test_rows_encoded_by_their_targets_cannot_be_forgotten():
    frame, y = noise(4000, seed=0)
    settings = SETTINGS | {"penalty": 1e-2, "keep_statistics": True}
    model = ParKRegressor(**settings).fit(frame, y)
    with pytest.raises(ParameterError, match="are encoded by means of the target, but"):
        model.forget(frame[:5], y[:5])


def test_a_classifier_of_coin_flips_reports_half():
    frame, y = noise(4000, seed=0)
    other, z = noise(4000, seed=1)
    model = ParKClassifier(**SETTINGS).fit(frame, y > 0)
    rows = model.validation_rows_
    reported = np.mean(rows["truth"] == rows["predicted"])
    assert reported == pytest.approx(model.score(other, z > 0), abs=0.05)
