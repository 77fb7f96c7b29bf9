"""An exported model predicts, in onnxruntime, what `predict` returns."""

import json
import sys
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from sklearn.exceptions import NotFittedError

from parkrr import ParKClassifier, ParKRegressor
from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, Radial
from parkrr.kernels.feature_map import (
    FeatureMap,
    add_normal_scores,
    bound_features,
    standardize_features,
)
from parkrr.kernels.radial import exp_
from parkrr.partition import Blend
from parkrr.persistence import onnx_export, onnx_graph
from parkrr.uncertainty.calibration import fit_calibration

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3)) * [1.0, 5.0, 0.2] + [0.0, 100.0, -3.0]
Y = np.stack([np.sin(X[:, 0]) + 0.1 * X[:, 1], X[:, 2] * X[:, 0]], 1)
NEW = RNG.normal(size=(500, 3)) * [1.5, 7.5, 0.3] + [0.0, 100.0, -3.0]
KERNELS = [
    Gaussian(2.0),
    Laplacian(3.0),
    Matern(2.0, nu=0.5),
    Matern(2.0, nu=1.5),
    Matern(3.0, nu=2.5),
    Polynomial(degree=3),
    Linear(),
]
SHAPES = {
    "one cell": {"n_cells": 1},
    "cells": {"n_cells": 6},
    "blended cells": {"n_cells": 6, "blend": Blend(n_nearest=3, width=2.0)},
    "cells above a coarse level": {"n_cells": 6, "coarse": 40},
    "all of it": {"n_cells": 6, "coarse": 40, "blend": Blend(n_nearest=3, width=2.0)},
}
ROWS = torch.from_numpy(X)
SCORED = add_normal_scores(standardize_features(ROWS), ROWS)
MIXING = torch.from_numpy(np.random.default_rng(1).normal(size=(6, 6)))
METRICS = {
    "euclidean": "euclidean",
    "standard": "standard",
    "scores": SCORED,
    "weights of features": standardize_features(ROWS).with_matrix(torch.tensor([1.0, 0.3, 4.0])),
    "weights of features and scores": SCORED.with_matrix(MIXING[0].abs()),
    "a matrix": SCORED.with_matrix(MIXING),
    "a matrix that leaves columns out": SCORED.with_matrix(MIXING[:, :2]),
    "bounds": bound_features(SCORED, ROWS.quantile(0.4, 0), ROWS.quantile(0.6, 0)),
    "three knots": FeatureMap(
        ROWS.mean(0),
        None,
        torch.tensor([[-1.0, 0.0, 2.0], [90.0, 100.0, 101.0], [-3.0, -3.0, -3.0]]),
        torch.tensor([[-1.0, 0.5, 1.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
    ),
}


def regressor(kernel, y=Y[:, 0], **settings):
    given = {"metric": "standard", "blend": 1, "coarse": 0, "random_state": 0, "progress": False}
    return ParKRegressor(kernel, 1e-4, **{**given, **settings}).fit(X, y)


def classifier(labels, **settings):
    given = {"metric": "standard", "n_cells": 4, "blend": 1, "coarse": 0, "random_state": 0}
    return ParKClassifier(Gaussian(2.0), 1e-3, progress=False, **{**given, **settings}).fit(
        X, labels
    )


@pytest.fixture
def session(tmp_path):
    """What runs an exported model."""

    def open_session(model):
        model.to_onnx(tmp_path / "model.onnx")
        return onnxruntime.InferenceSession(tmp_path / "model.onnx")

    return open_session


@pytest.fixture
def run_onnx(session):
    """The outputs of an exported model at rows, by name."""

    def run(model, rows=NEW):
        running = session(model)
        names = [output.name for output in running.get_outputs()]
        return dict(zip(names, running.run(names, {"X": np.asarray(rows)}), strict=True))

    return run


def in_float64(model):
    """The same model, all of whose arithmetic is float64."""
    coarse = model.coarse and replace(model.coarse, centers=model.coarse.centers.double())
    centers = [Z.double() for Z in model.centers]
    return replace(model, centroids=model.centroids.double(), centers=centers, coarse=coarse)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_predicts_what_the_model_predicts(kernel, shape, run_onnx):
    model = regressor(kernel, **shape)
    expected = model.predict(NEW)
    np.testing.assert_allclose(
        run_onnx(model)["prediction"], expected, rtol=0, atol=1e-8 * expected.std()
    )


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_map_is_part_of_it(metric, run_onnx):
    model = regressor(Matern(2.0), metric=metric, n_cells=4)
    np.testing.assert_allclose(run_onnx(model)["prediction"], model.predict(NEW), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS[:5], ids=repr)
def test_float32_cells_are_as_near_to_float64_as_those_of_the_model(kernel, run_onnx):
    model = regressor(kernel, precision="float32", **SHAPES["all of it"])
    assert {Z.dtype for Z in model.model_.centers} == {torch.float32}
    exact = in_float64(model.model_).predict(torch.from_numpy(NEW))[:, 0].numpy()
    noise = np.abs(model.predict(NEW) - exact).max()
    assert np.abs(run_onnx(model)["prediction"] - exact).max() < 2 * noise + 1e-6


def test_cells_that_need_float64_have_it_beside_others_that_do_not(run_onnx):
    model = regressor(Laplacian(3.0), precision="float32", n_cells=6)
    fitted_to = model.model_
    far = [Z.double() if q % 2 else Z for q, Z in enumerate(fitted_to.centers)]
    model.model_ = replace(fitted_to, centers=far)
    np.testing.assert_allclose(run_onnx(model)["prediction"], model.predict(NEW), rtol=0, atol=1e-5)


def test_several_outputs_have_a_column_each(run_onnx):
    model = regressor(Gaussian(2.0), Y, n_cells=4, blend=Blend(2, 1.0), coarse=30)
    expected = model.predict(NEW)
    assert expected.shape == (500, 2)
    np.testing.assert_allclose(run_onnx(model)["prediction"], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 255, 257])
def test_any_number_of_rows_will_do(rows, run_onnx):
    model = regressor(Gaussian(2.0), n_cells=1)
    exported = run_onnx(model, NEW[:rows])["prediction"]
    np.testing.assert_allclose(exported, model.predict(NEW[:rows]), rtol=0, atol=1e-10)


def test_the_way_rows_are_cut_into_runs_and_blocks_does_not_matter(run_onnx, monkeypatch):
    model = regressor(Gaussian(2.0), **SHAPES["all of it"])
    whole = run_onnx(model)["prediction"]
    monkeypatch.setattr(onnx_export, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(onnx_export, "FEWEST_ROWS", 7)
    monkeypatch.setattr(onnx_export, "ROUTED_NUMBERS", 40 * 37)
    np.testing.assert_allclose(run_onnx(model)["prediction"], whole, rtol=0, atol=1e-12)


def test_extreme_values_are_predicted_as_by_the_model(run_onnx):
    model = regressor(Matern(2.0, nu=2.5), metric=SCORED, n_cells=4)
    wild = np.array([[1e300, -1e300, 0.0], [1e30, 1e10, -1e10], [-1e-300, 100.0, -3.0]])
    np.testing.assert_allclose(run_onnx(model, wild)["prediction"], model.predict(wild), atol=1e-9)


@pytest.mark.parametrize("blend", [1, Blend(n_nearest=2, width=1.0)], ids=repr)
def test_a_missing_number_is_filled_as_in_python(blend, run_onnx):
    model = regressor(Gaussian(2.0), metric=SCORED, n_cells=4, blend=blend)
    rows = NEW.copy()
    rows[3, 1] = np.nan
    exported = run_onnx(model, rows)["prediction"]
    np.testing.assert_allclose(exported, model.predict(rows), rtol=0, atol=1e-9)


def test_another_runtime_agrees(tmp_path):
    model = regressor(Matern(2.0), metric=SCORED, **SHAPES["all of it"])
    model.to_onnx(tmp_path / "model.onnx")
    runtime = ReferenceEvaluator(str(tmp_path / "model.onnx"))
    [exported] = runtime.run(None, {"X": NEW[:40]})
    np.testing.assert_allclose(exported, model.predict(NEW[:40]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("way", ["temperature", "platt", "isotonic"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_and_probabilities_are_those_of_the_classifier(way, n_classes, run_onnx):
    labels = np.array(["low", "middle", "high"])[-n_classes:][
        np.digitize(Y[:, 0] + RNG.normal(size=600) / 5, [10.0, 10.3][: n_classes - 1])
    ]
    model = classifier(labels)
    F, at = model.model_.predict(ROWS).numpy(), np.searchsorted(model.classes_, labels)
    model.calibration_ = fit_calibration(way, F, at, np.ones(600))
    exported = run_onnx(model)
    np.testing.assert_allclose(exported["probability"], model.predict_proba(NEW), rtol=0, atol=1e-7)
    assert exported["label"].tolist() == model.predict(NEW).tolist()


@pytest.mark.parametrize("chance", [0.05, 0.95])
def test_an_isotonic_map_that_never_crosses_a_half_has_one_label(chance, run_onnx):
    model = classifier(X[:, 0] > 0)
    at = (np.random.default_rng(2).random(600) < chance).astype(int)
    model.calibration_ = fit_calibration(
        "isotonic", model.model_.predict(ROWS).numpy(), at, np.ones(600)
    )
    assert set(model.predict(NEW)) == {chance > 0.5}
    assert run_onnx(model)["label"].tolist() == model.predict(NEW).tolist()


@pytest.mark.parametrize(
    "labels",
    [X[:, 0] > 0, np.digitize(X[:, 0], [-1, 1]).astype(np.int8), np.sign(X[:, 0])],
    ids=["booleans", "integers", "numbers"],
)
def test_labels_keep_their_kind(labels, run_onnx):
    model = classifier(labels)
    exported, expected = run_onnx(model)["label"], model.predict(NEW)
    assert exported.dtype.kind == expected.dtype.kind
    assert exported.tolist() == expected.tolist()


def test_a_single_class_is_certain(run_onnx):
    model = classifier(["all"] * 600)
    exported = run_onnx(model)
    assert set(exported["label"]) == {"all"}
    assert (exported["probability"] == model.predict_proba(NEW)).all()


def test_missing_values_are_filled_and_flagged_as_in_the_fit(run_onnx):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.loc[::7, "b"] = np.nan
    model = ParKRegressor(Gaussian(2.0), 1e-4, metric="standard", blend=1, coarse=0)
    model.fit(frame, Y[:, 0])
    new = pd.DataFrame(NEW, columns=["a", "b", "c"])
    new.loc[::3, "b"], new.loc[::5, "a"] = np.nan, np.nan
    exported = run_onnx(model, new.to_numpy())["prediction"]
    np.testing.assert_allclose(exported, model.predict(new), rtol=0, atol=1e-10)


# Columns of a frame, each an input of its own.


def mixed(n, seed, **types):
    """Rows with categories, many categories, dates, times, booleans and missing values."""
    rng = np.random.default_rng(seed)
    hours = rng.integers(0, 10**4, n)
    frame = pd.DataFrame(
        {
            "km": rng.normal(5, 2, n),
            "sky": rng.choice(["sun", "rain", "snow", None], n),
            "street": rng.choice([f"street {k}" for k in range(40)], n),
            "zip": rng.choice([7, 8, 9], n),
            "begin": pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h"),
            "open": rng.random(n) > 0.5,
            "amount": rng.integers(0, 60, n).astype(float),
            "note": "nothing",
        }
    )
    frame.loc[rng.random(n) < 0.1, "km"] = np.nan
    frame.loc[rng.random(n) < 0.1, "begin"] = pd.NaT
    return frame.astype(types)


def minutes(frame):
    target = 3 * frame["km"].fillna(5) + 5 * (frame["sky"] == "snow") + frame["zip"]
    target += frame["street"].str.len() * frame["street"].isin(["street 1", "street 22"])
    return (
        target + 9 * frame["amount"].isin([17, 23, 41]) + np.sin(frame["begin"].dt.hour.fillna(3))
    )


def inputs_of(frame):
    """The columns of a frame as an ONNX runtime takes them."""
    seconds = frame["begin"].astype("datetime64[us]").astype("int64") / 1e6
    return {
        "km": frame["km"].to_numpy(float),
        "sky": frame["sky"].fillna("").to_numpy(object),
        "street": frame["street"].to_numpy(object),
        "zip": frame["zip"].astype(str).to_numpy(object),
        "begin": seconds.where(frame["begin"].notna()).to_numpy(float),
        "open": frame["open"].to_numpy(float),
        "amount": frame["amount"].to_numpy(float),
    }


MIXED = {"metric": "standard", "n_cells": 2, "blend": 1, "coarse": 0, "random_state": 0}
MIXED |= {"progress": False, "columns": {"zip": "category", "note": "ignore"}}


@pytest.fixture(scope="module")
def mixed_model():
    frame = mixed(800, 0)
    return ParKRegressor(Gaussian(2.0), 1e-3, **MIXED).fit(frame, minutes(frame))


def test_the_frame_has_columns_of_every_exported_kind(mixed_model):
    columns = {column.name: column for column in mixed_model.columns_.columns}
    kinds = {name: column.holds for name, column in columns.items()}
    assert kinds == {
        **{"km": "number", "sky": "category", "street": "category", "zip": "category"},
        **{"begin": "datetime", "open": "boolean", "amount": "number", "note": "ignored"},
    }
    assert columns["street"].by_target
    assert not columns["sky"].by_target
    assert columns["amount"].means


def test_columns_of_a_frame_are_predicted_as_by_the_model(mixed_model, session):
    new = mixed(300, 1)
    new.loc[:20, "street"] = "a street that is new"
    [exported] = session(mixed_model).run(["prediction"], inputs_of(new))
    np.testing.assert_allclose(exported, mixed_model.predict(new), rtol=0, atol=1e-6)


def test_columns_of_a_float32_model_are_predicted_as_by_the_model(session):
    types = {"km": np.float32, "amount": np.float32}
    frame, new = mixed(800, 0, **types), mixed(300, 1, **types)
    model = ParKRegressor(Gaussian(2.0), 1e-3, precision="float32", **MIXED)
    model.fit(frame, minutes(frame))
    assert {Z.dtype for Z in model.model_.centers} == {torch.float32}
    [exported] = session(model).run(["prediction"], inputs_of(new))
    expected = model.predict(new)
    np.testing.assert_allclose(exported, expected, rtol=0, atol=1e-4 * expected.std())


def test_labels_of_a_frame_are_those_of_the_classifier(session):
    frame, new = mixed(800, 0), mixed(300, 1)
    model = ParKClassifier(Gaussian(2.0), 1e-2, **MIXED)
    model.fit(frame, np.where(minutes(frame) > 25, "long", "short"))
    label, probability = session(model).run(["label", "probability"], inputs_of(new))
    assert label.tolist() == model.predict(new).tolist()
    np.testing.assert_allclose(probability, model.predict_proba(new), rtol=0, atol=1e-6)


def test_an_empty_string_of_the_fit_is_no_missing_value(session):
    frame = pd.DataFrame({"sky": ["", "sun", "rain"] * 200, "x": X[:, 0]})
    model = regressor_of(frame, (frame["sky"] == "") * 5.0)
    given = {"sky": np.array(["", "sun"], dtype=object), "x": np.zeros(2)}
    [exported] = session(model).run(["prediction"], given)
    expected = model.predict(pd.DataFrame({"sky": ["", "sun"], "x": [0.0, 0.0]}))
    np.testing.assert_allclose(exported, expected, rtol=0, atol=1e-9)


def regressor_of(frame, y):
    settings = {"metric": "standard", "blend": 1, "coarse": 0, "random_state": 0}
    return ParKRegressor(Gaussian(2.0), 1e-4, progress=False, **settings).fit(frame, y)


def test_the_file_describes_the_inputs_of_a_frame(mixed_model, session):
    running = session(mixed_model)
    given = {one.name: (one.type, one.shape) for one in running.get_inputs()}
    assert list(given) == ["km", "sky", "street", "zip", "begin", "open", "amount"]
    assert given["km"] == ("tensor(double)", ["n"])
    assert given["sky"] == ("tensor(string)", ["n"])
    facts = json.loads(running.get_modelmeta().custom_metadata_map["parkrr"])
    assert facts["inputs"]["begin"] == "float64, seconds since 1970-01-01 UTC"


def test_free_text_is_refused_by_name_with_the_way_out(tmp_path):
    words = np.where(X[:, 1] > 100, "late and full", "early and empty")
    notes = [f"{word} on ride number {k}" for k, word in enumerate(words)]
    frame = pd.DataFrame({"x": X[:, 0], "remark": notes})
    settings = {"metric": "standard", "blend": 1, "coarse": 0, "columns": {"remark": "text"}}
    model = ParKRegressor(Gaussian(2.0), 1e-4, progress=False, **settings).fit(frame, X[:, 1])
    with pytest.raises(ParameterError, match=r"\['remark'\] are free text; .*'remark': 'ignore'"):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_column_with_the_name_of_an_output_is_refused(tmp_path):
    frame = pd.DataFrame({"prediction": ["a", "b", "c"] * 200, "x": X[:, 0]})
    with pytest.raises(ParameterError, match="must not be named 'prediction'"):
        regressor_of(frame, Y[:, 0]).to_onnx(tmp_path / "model.onnx")


def test_a_kernel_of_ones_own_is_refused(tmp_path):
    model = regressor(Cauchy(2.0))
    with pytest.raises(ParameterError, match="to_onnx exports the kernels"):
        model.to_onnx(tmp_path / "model.onnx")


def test_labels_that_onnx_cannot_hold_are_refused(tmp_path):
    model = classifier(X[:, 0] > 0)
    model.classes_ = np.array([None, "x"], dtype=object)
    with pytest.raises(ParameterError, match="labels must be strings or numbers"):
        model.to_onnx(tmp_path / "model.onnx")


def test_a_model_of_more_than_two_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", 1000)
    with pytest.raises(ParameterError, match="holds at most 2 GB"):
        regressor(Gaussian(2.0)).to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_without_onnx_the_message_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ParameterError, match=r"pip install 'parkrr\[onnx\]'"):
        regressor(Gaussian(2.0)).to_onnx(tmp_path / "model.onnx")


def test_a_model_that_is_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        ParKRegressor().to_onnx(tmp_path / "model.onnx")


def test_the_file_describes_its_inputs_and_outputs(session):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = ParKClassifier(Gaussian(2.0), 1e-3, blend=1, coarse=0).fit(frame, X[:, 0] > 0)
    running = session(model)
    [given] = running.get_inputs()
    assert (given.name, given.type, given.shape) == ("X", "tensor(double)", ["n", 3])
    shapes = {output.name: output.shape for output in running.get_outputs()}
    assert shapes == {"label": ["n"], "probability": ["n", 2]}
    features = running.get_modelmeta().custom_metadata_map["parkrr"]
    assert features == '{"features": ["a", "b", "c"]}'


def test_only_standard_operators_are_used(tmp_path):
    regressor(Matern(2.0), metric=SCORED, **SHAPES["all of it"]).to_onnx(tmp_path / "model.onnx")
    written = onnx.load(tmp_path / "model.onnx")
    assert [(used.domain, used.version) for used in written.opset_import] == [("", 18)]


@final
@dataclass(frozen=True)
class Cauchy(Radial):
    lengthscale: float = 1.0

    @property
    def coefficient(self):
        return 1 / self.lengthscale**2

    def profile(self, buffers, no_underflow):
        return buffers[0].clamp_(min=0).add_(1).reciprocal_()

    def derivative(self, buffers):
        return exp_(buffers[0], no_underflow=False)
