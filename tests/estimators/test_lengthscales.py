"""A lengthscale for each feature is the same model as features over their lengthscales."""

import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.base import clone

from parkrr import (
    Coarse,
    Gaussian,
    Laplacian,
    Matern,
    ParKClassifier,
    ParKRegressor,
    inspection,
    load,
    scan_parquet,
)
from parkrr.errors import ParameterError
from parkrr.kernels import FeatureMap

RNG = np.random.default_rng(0)
LENGTHSCALES = np.array([0.7, 30.0, 5.0])
X = RNG.normal(size=(900, 3)) * [1.0, 20.0, 5.0] + [0.0, 300.0, -2.0]
Y = np.sin(X[:, 0]) + 0.02 * X[:, 1] + 0.05 * RNG.normal(size=900)
NEW = RNG.normal(size=(200, 3)) * [1.0, 20.0, 5.0] + [0.0, 300.0, -2.0]
NAMED = {"n_cells": 4, "blend": 1, "coarse": 0, "random_state": 0, "progress": False}


@pytest.mark.parametrize("penalty", [1e-5, "auto"])
@pytest.mark.parametrize("kind", [Gaussian, Laplacian, Matern])
def test_predictions_are_those_of_scaled_columns(kind, penalty):
    model = ParKRegressor(kind(LENGTHSCALES), penalty, **NAMED).fit(X, Y)
    scaled = ParKRegressor(kind(1.0), penalty, **NAMED).fit(X / LENGTHSCALES, Y)
    expected = scaled.predict(NEW / LENGTHSCALES)
    np.testing.assert_allclose(model.predict(NEW), expected, rtol=0, atol=1e-8)
    assert model.n_cells_ == scaled.n_cells_ > 1


def test_everything_behind_a_fit_is_that_of_scaled_columns():
    known = NAMED | {"n_cells": 5, "blend": "auto", "coarse": "auto"}
    model = ParKRegressor(Gaussian(LENGTHSCALES), 1e-5, **known).fit(X, Y)
    scaled = ParKRegressor(Gaussian(1.0), 1e-5, **known).fit(X / LENGTHSCALES, Y)
    rows = NEW / LENGTHSCALES
    np.testing.assert_allclose(model.predict(NEW), scaled.predict(rows), atol=1e-8)
    np.testing.assert_allclose(model.novelty(NEW), scaled.novelty(rows), atol=1e-8)
    np.testing.assert_allclose(
        model.predict_interval(NEW), scaled.predict_interval(rows), atol=1e-7
    )
    np.testing.assert_allclose(model.feature_importances_, scaled.feature_importances_, atol=1e-8)
    np.testing.assert_allclose(
        inspection.explain(model, NEW[:5]).slopes * LENGTHSCALES,
        inspection.explain(scaled, rows[:5]).slopes,
        atol=1e-7,
    )


def test_standard_units_come_before_lengthscales():
    known = NAMED | {"n_cells": 1, "metric": "standard"}
    model = ParKRegressor(Gaussian([1.0, 2.0, 3.0]), 1e-5, **known).fit(X, Y)
    scale = (model.model_.metric.scale * model.model_.metric.matrix).numpy()
    other = ParKRegressor(Gaussian(1.0), 1e-5, **NAMED | {"n_cells": 1}).fit(X * scale, Y)
    np.testing.assert_allclose(model.predict(NEW), other.predict(NEW * scale), atol=1e-8)
    np.testing.assert_allclose(1 / scale / X.std(0), [1.0, 2.0, 3.0], rtol=0.02)


def test_lengthscales_follow_a_map_of_yours():
    mixing = torch.tensor([[1.0, 0.0], [0.1, 0.2], [0.0, 1.0]], dtype=torch.float64)
    # Limits of predictions follow from leave-one-out rows, which are drawn by their features.
    free = NAMED | {"extrapolation": "free"}
    known = free | {"metric": FeatureMap(torch.zeros(3, dtype=torch.float64), matrix=mixing)}
    model = ParKRegressor(Gaussian([2.0, 5.0]), 1e-5, **known).fit(X, Y)
    mapped = [rows @ mixing.numpy() / [2.0, 5.0] for rows in (X, NEW)]
    other = ParKRegressor(Gaussian(1.0), 1e-5, **free).fit(mapped[0], Y)
    np.testing.assert_allclose(model.predict(NEW), other.predict(mapped[1]), atol=1e-8)


def test_what_was_chosen_fits_the_same_model():
    model = ParKRegressor(Gaussian(LENGTHSCALES), "auto", **NAMED).fit(X, Y)
    again = ParKRegressor(**model.chosen_.params).fit(X, Y)
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


def test_a_classifier_takes_them_too():
    known = {"penalty": 1e-4, **NAMED}
    labels = np.sign(Y)
    model = ParKClassifier(Gaussian(LENGTHSCALES), **known).fit(X, labels)
    scaled = ParKClassifier(Gaussian(1.0), **known).fit(X / LENGTHSCALES, labels)
    expected = scaled.predict_proba(NEW / LENGTHSCALES)
    np.testing.assert_allclose(model.predict_proba(NEW), expected, atol=1e-8)


def test_a_model_file_keeps_them(tmp_path):
    coarse = Coarse(50, Gaussian([3.0, 4.0, 5.0]))
    known = NAMED | {"coarse": coarse}
    model = ParKRegressor(Gaussian(LENGTHSCALES), 1e-5, **known).fit(X, Y)
    model.save(tmp_path / "model.park")
    loaded = load(tmp_path / "model.park")
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    assert loaded.kernel == Gaussian(LENGTHSCALES)
    assert loaded.coarse == coarse
    assert clone(loaded).kernel == model.kernel


def test_an_exported_model_predicts_the_same(tmp_path):
    known = NAMED | {"coarse": Coarse(50, Gaussian([3.0, 4.0, 5.0]))}
    model = ParKRegressor(Matern(LENGTHSCALES), 1e-5, **known).fit(X, Y)
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    [predicted] = session.run(["prediction"], {"X": NEW})
    np.testing.assert_allclose(predicted, model.predict(NEW), atol=1e-6)


def test_rows_on_disk_have_them_too(tmp_path):
    columns = {f"x{k}": X[:, k] for k in range(3)}
    pq.write_table(pa.table(columns | {"y": Y}), tmp_path / "rows.parquet", row_group_size=300)
    scaled = {f"x{k}": X[:, k] / LENGTHSCALES[k] for k in range(3)}
    pq.write_table(pa.table(scaled | {"y": Y}), tmp_path / "scaled.parquet", row_group_size=300)
    predicted = []
    for kernel, name, rows in (
        (Gaussian(LENGTHSCALES), "rows", NEW),
        (Gaussian(1.0), "scaled", NEW / LENGTHSCALES),
    ):
        known = NAMED | {"n_centers": 300, "checkpoint": tmp_path / f"of-{name}"}
        model = ParKRegressor(kernel, 1e-5, **known)
        model.fit(scan_parquet(tmp_path / f"{name}.parquet", target="y"))
        predicted.append(model.predict(pd.DataFrame(rows, columns=["x0", "x1", "x2"])))
    np.testing.assert_allclose(predicted[0], predicted[1], atol=1e-6)


def test_one_lengthscale_can_be_set_for_each_feature_later():
    model = ParKRegressor(Gaussian()).set_params(kernel__lengthscale=[1.0, 2.0, 3.0])
    assert model.kernel == Gaussian([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("kernel", "metric", "message"),
    [
        (Gaussian([1.0, 2.0]), "auto", "one for each of the 3 columns"),
        (Gaussian([1.0, 2.0, 3.0]), "learned", "needs a kernel with one lengthscale"),
    ],
)
def test_lengthscales_that_do_not_fit_are_refused(kernel, metric, message):
    with pytest.raises(ParameterError, match=message):
        ParKRegressor(kernel, 1e-5, metric=metric, **NAMED).fit(X, Y)
