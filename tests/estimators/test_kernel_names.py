"""A kernel by name leaves lengthscale and metric to be chosen; an instance is taken as it is."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from parkrr import Gaussian, ParKClassifier, ParKRegressor, load
from parkrr.cli.app import app

RNG = np.random.default_rng(0)
# Metres, shares and seconds: with a lengthscale of 1 in these units no row has a neighbour.
X = np.stack([RNG.uniform(0, 5e4, 500), RNG.uniform(size=500), RNG.uniform(0, 86_400, 500)], 1)
Y = np.sin(X[:, 0] / 1e4) + X[:, 1] * np.cos(X[:, 2] / 2e4)
TRAIN, TEST = slice(0, 320), slice(320, 500)


def model_of(kernel, kind=ParKRegressor, **changes):
    return kind(kernel=kernel, random_state=0, progress=False, **changes)


@pytest.mark.parametrize("name", ["gaussian", "matern"])
def test_a_kernel_by_name_predicts_as_the_default_does(name):  # which has 0.99
    model = model_of(name).fit(X[TRAIN], Y[TRAIN])
    assert model.score(X[TEST], Y[TEST]) > 0.97
    assert type(model.chosen_.params["kernel"]).__name__.lower() == name


def test_an_instance_is_taken_as_it_is():
    model = model_of(Gaussian(1.0)).fit(X[TRAIN], Y[TRAIN])
    assert model.chosen_.params["kernel"] == Gaussian(1.0)
    assert model.score(X[TEST], Y[TEST]) < 0.1


def test_a_kernel_by_name_keeps_a_metric_that_is_given():
    model = model_of("gaussian", metric="euclidean").fit(X[TRAIN], Y[TRAIN])
    assert model.chosen_.params["metric"].matrix is None
    assert model.chosen_.params["kernel"].lengthscale > 100


def test_a_linear_kernel_by_name_has_standard_units():
    y = X[:, 1] + X[:, 0] / 1e5
    assert model_of("linear").fit(X[TRAIN], y[TRAIN]).score(X[TEST], y[TEST]) > 0.999


def test_a_classifier_reads_a_name_in_the_same_way():
    model = model_of("laplacian", ParKClassifier).fit(X[:250], Y[:250] > 0)
    assert model.score(X[TEST], Y[TEST] > 0) > 0.8


def test_a_name_gives_the_same_model_on_the_command_line_and_in_python(tmp_path):
    frame = pd.DataFrame(X[:320], columns=["a", "b", "c"]).assign(y=Y[:320])
    frame.to_parquet(tmp_path / "rows.parquet")
    arguments = ["--kernel", "gaussian", "--target", "y", "--no-report", "-q", "-o"]
    done = CliRunner().invoke(
        app, ["fit", str(tmp_path / "rows.parquet"), *arguments, str(tmp_path / "m.park")]
    )
    assert done.exit_code == 0, done.output
    read = pq.read_table(tmp_path / "rows.parquet").to_pandas()
    model = model_of("gaussian").fit(read[["a", "b", "c"]], read["y"])
    there = load(tmp_path / "m.park")
    assert there.chosen_.params["kernel"] == model.chosen_.params["kernel"]
    np.testing.assert_allclose(there.predict(read), model.predict(read[["a", "b", "c"]]))
