"""A model that went through MLflow predicts what it did before."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from parkrr import ParKClassifier, ParKRegressor, load
from parkrr.kernels import Gaussian

# MLflow warns of type hints of its own while it is imported, the first time it is used.
pytestmark = pytest.mark.filterwarnings("ignore:.*type hint:UserWarning")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"x": RNG.normal(size=300), "sky": ["sun", "rain", "snow"] * 100})
VISITORS = FRAME["x"] + (FRAME["sky"] == "sun")
SETTINGS = {"metric": "standard", "blend": 1, "coarse": 0, "n_cells": 2, "random_state": 0}
# What a server would install to load the model: without it MLflow loads the model to find out.
REQUIREMENTS = {"serialization_format": "cloudpickle", "pip_requirements": ["parkrr"]}


@pytest.fixture(autouse=True)
def no_word_to_anyone(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs that are tracked in a folder."""
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder in place of a database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    return mlflow


@pytest.fixture
def autolog(flavour):
    flavour.autolog(log_models=False, log_datasets=False, silent=True)
    yield
    flavour.autolog(disable=True, silent=True)


@pytest.fixture
def flavour():
    import mlflow.sklearn

    return mlflow.sklearn


def test_a_regressor_saved_by_the_scikit_learn_flavour_predicts_the_same(flavour, tmp_path):
    model = ParKRegressor(Gaussian(1.0), 1e-3, **SETTINGS).fit(FRAME, VISITORS)
    flavour.save_model(model, tmp_path / "model", **REQUIREMENTS)
    loaded = flavour.load_model(str(tmp_path / "model"))
    assert (loaded.predict(FRAME) == model.predict(FRAME)).all()
    assert (loaded.predict_interval(FRAME)[0] == model.predict_interval(FRAME)[0]).all()


def test_scoring_without_knowing_the_flavour_predicts_the_same(flavour, tmp_path):
    import mlflow.pyfunc

    model = ParKRegressor(Gaussian(1.0), 1e-3, **SETTINGS).fit(FRAME, VISITORS)
    flavour.save_model(model, tmp_path / "model", **REQUIREMENTS)
    scored = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(FRAME)
    assert (scored == model.predict(FRAME)).all()


def test_a_classifier_logged_in_a_run_has_the_same_probabilities(flavour, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder in place of a database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    model = ParKClassifier(Gaussian(1.0), 1e-3, **SETTINGS).fit(FRAME, VISITORS > 0.5)
    with mlflow.start_run():
        logged = flavour.log_model(model, name="visitors", **REQUIREMENTS)
    loaded = flavour.load_model(logged.model_uri)
    assert (loaded.predict_proba(FRAME) == model.predict_proba(FRAME)).all()


def test_autolog_logs_a_search_over_an_estimator_but_not_the_estimator_alone(runs, autolog):
    model = ParKRegressor(Gaussian(1.0), 1e-3, **SETTINGS).fit(FRAME, VISITORS)
    assert runs.search_runs(output_format="list") == []
    GridSearchCV(model, {"penalty": [1e-3, 1e-2]}, cv=2).fit(FRAME, VISITORS)
    logged = [run.data for run in runs.search_runs(output_format="list")]
    [best] = [data for data in logged if "best_cv_score" in data.metrics]
    assert best.params["best_penalty"] in ("0.001", "0.01")


def test_the_example_logs_parameters_errors_and_the_report(runs, tmp_path):
    place = Path(__file__).parents[2] / "examples/mlflow_tracking.py"
    spec = importlib.util.spec_from_file_location("mlflow_tracking", place)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    settings = {key: value for key, value in SETTINGS.items() if key != "n_cells"}
    model = ParKRegressor(Gaussian(1.0), "auto", progress=False, **settings)
    split = FRAME[:200], VISITORS[:200], FRAME[200:], VISITORS[200:]
    run = runs.get_run(example.fit_and_log(model, *split))
    assert run.data.params["kernel"] == "Gaussian(lengthscale=1.0)"
    assert run.data.metrics["test/r2"] == pytest.approx(model.score(*split[2:]))
    assert run.data.metrics["search/best_error"] > 0
    files = {file.path for file in runs.artifacts.list_artifacts(run_id=run.info.run_id)}
    assert files == {"model.park", "report.html"}
    path = runs.artifacts.download_artifacts(
        run_id=run.info.run_id, artifact_path="model.park", dst_path=str(tmp_path)
    )
    assert (load(path).predict(FRAME) == model.predict(FRAME)).all()


def test_the_onnx_flavour_predicts_the_same_without_a_pickle(tmp_path):
    import mlflow.onnx
    import mlflow.pyfunc

    X = RNG.normal(size=(300, 2))
    model = ParKRegressor(Gaussian(1.0), 1e-3, **SETTINGS).fit(X, X[:, 0])
    model.to_onnx(tmp_path / "model.onnx")
    mlflow.onnx.save_model(
        onnx.load(tmp_path / "model.onnx"),
        tmp_path / "logged",
        onnx_execution_providers=["CPUExecutionProvider"],
        pip_requirements=["onnxruntime"],
    )
    scored = mlflow.pyfunc.load_model(str(tmp_path / "logged")).predict(X)
    np.testing.assert_allclose(scored["prediction"], model.predict(X), rtol=0, atol=1e-10)
    assert not list(tmp_path.rglob("*.pkl"))
