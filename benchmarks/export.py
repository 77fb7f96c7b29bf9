"""How near exported models are to the models themselves on 10^5 random rows, and how fast.

Each model is fitted, exported with to_onnx and run by onnxruntime; differences are in units of the
spread of the target, those of probabilities as they are. What a float32 model loses by itself
is the difference between its predictions and those of the same centres and weights in float64.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from parkrr import ParKClassifier, ParKRegressor
from parkrr.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial
from parkrr.kernels.feature_map import add_normal_scores, standardize_features
from parkrr.partition import Blend
from parkrr.uncertainty.calibration import fit_calibration
from recording import record

FEATURES, FITTED = 6, 10_000
TIMED, TIMES, SINGLE = 20_000, 3, 200  # rows of a batch, how often, and single rows
WHOLE = {"n_cells": 10, "blend": Blend(n_nearest=3, width=1.0), "coarse": 300}
ALONE = {"n_cells": 10, "blend": 1, "coarse": 0}
KERNELS = [
    Gaussian(2.0),
    Laplacian(4.0),
    Matern(3.0, nu=0.5),
    Matern(3.0, nu=1.5),
    Matern(3.0, nu=2.5),
    Polynomial(degree=3),
    Linear(),
]
HEADER = [
    "model",
    "centres",
    "file, MB",
    "largest difference",
    "lost by float32 itself",
    "other labels",
    "predict, rows/s",
    "ONNX, rows/s",
    "one row, predict, ms",
    "one row, ONNX, ms",
]


def data(rng, rows):
    X = rng.normal(size=(rows, FEATURES)) * [1, 1, 1, 10, 100, 0.01] + [0, 5, 0, 0, 1e4, 0]
    Z = (X - [0, 5, 0, 0, 1e4, 0]) / [1, 1, 1, 10, 100, 0.01]
    return X, np.sin(2 * Z[:, 0]) + Z[:, 1] * Z[:, 2] + 0.5 * Z[:, 3:].sum(1)


def models(X, y):
    """Fitted models by name."""
    common = {"metric": "standard", "random_state": 0, "progress": False}
    for kernel in KERNELS:
        settings = {**common, **WHOLE, "precision": "float64"}
        yield f"{kernel!r}, blend, coarse", ParKRegressor(kernel, 1e-5, **settings).fit(X, y)
    rows = torch.from_numpy(X)
    A = torch.from_numpy(np.random.default_rng(1).normal(size=(2 * FEATURES,) * 2)) / 3
    learned = {"metric": add_normal_scores(standardize_features(rows), rows).with_matrix(A)}
    for precision in ("float64", "float32"):
        settings = {**common, **WHOLE, **learned, "precision": precision}
        model = ParKRegressor(Gaussian(2.0), 1e-5, **settings).fit(X, y)
        yield f"Gaussian, scores and matrix, blend, coarse, {precision}", model
        settings = {**common, **ALONE, "precision": precision}
        both = np.stack([y, y**2], 1)
        model = ParKRegressor(Gaussian(2.0), 1e-5, **settings).fit(X, both)
        yield f"Gaussian, two outputs, cells alone, {precision}", model
    yield from classifiers(X, y, {**common, **ALONE, "precision": "float64"})


def classifiers(X, y, settings):
    noisy = y + np.random.default_rng(2).normal(size=len(y))
    for n_classes in (2, 4):
        cuts = np.quantile(noisy, np.arange(1, n_classes) / n_classes)
        at = np.digitize(noisy, cuts)
        model = ParKClassifier(Matern(3.0), 1e-3, **settings).fit(X, at)
        F = model.model_.predict(torch.from_numpy(X)).numpy()
        for way in ("temperature", "platt", "isotonic"):
            model.calibration_ = fit_calibration(way, F, at, np.ones(len(at)))
            yield f"Matern, {n_classes} classes, {way}", model


def in_float64(model):
    """The same model, all of whose arithmetic is float64."""
    coarse = model.coarse and replace(model.coarse, centers=model.coarse.centers.double())
    centers = [Z.double() for Z in model.centers]
    return replace(model, centroids=model.centroids.double(), centers=centers, coarse=coarse)


def seconds(work, rows, times=TIMES):
    """The least of some times that it takes, for other jobs use the cores as well."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work(rows)
        took.append(time.perf_counter() - start)
    return min(took)


def single(work, rows):
    """Milliseconds that a single row takes."""
    took = [seconds(work, rows[i : i + 1], times=1) for i in range(SINGLE)]
    return float(np.median(took)) * 1e3


def compared(name, model, rows):
    """How far apart a model and its export are."""
    classify = hasattr(model, "classes_")
    ask, output = (
        (model.predict_proba, "probability") if classify else (model.predict, "prediction")
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        model.to_onnx(path)
        megabytes, session = path.stat().st_size / 1e6, onnxruntime.InferenceSession(path)
    run = lambda X: session.run([output], {"X": X})[0]  # noqa: E731
    expected, found, some = ask(rows), run(rows), rows[:TIMED]
    spread = 1.0 if classify else expected.std(0)
    return {
        "model": name,
        "centers": sum(map(len, model.model_.centers)),
        "megabytes": megabytes,
        "difference": float((np.abs(found - expected) / spread).max()),
        "lost": lost(model.model_, rows, expected, spread),
        "other_labels": other_labels(session, model, rows) if classify else None,
        "rows_a_second": len(some) / seconds(ask, some),
        "rows_a_second_onnx": len(some) / seconds(run, some),
        "single_ms": single(ask, rows),
        "single_ms_onnx": single(run, rows),
    }


def lost(model, rows, expected, spread):
    """How far predictions of a float32 model are from its own in float64."""
    if model.centroids.dtype == torch.float64:
        return None
    exact = in_float64(model).predict(torch.from_numpy(rows)).numpy()
    return float((np.abs(expected - exact.reshape(expected.shape)) / spread).max())


def other_labels(session, model, rows):
    return int((session.run(["label"], {"X": rows})[0] != model.predict(rows)).sum())


def shown(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.1e}" if value < 1e-2 else f"{value:,.0f}" if value > 99 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--fitted", type=float, default=FITTED)
    given, rng = parser.parse_args(), np.random.default_rng(0)
    X, y = data(rng, int(given.fitted))
    rows = data(rng, int(given.rows))[0]
    results = []
    for name, model in models(X, y):
        results.append(compared(name, model, rows))
        print([shown(value) for value in results[-1].values()], flush=True)
    notes = [
        f"{int(given.rows):,} random rows of {FEATURES} features; models of {len(X):,} rows. "
        f"onnxruntime {onnxruntime.__version__} and predict with all cores; the best of {TIMES} "
        f"runs of {TIMED:,} rows, and the median of {SINGLE} single ones."
    ]
    table = [[shown(value) for value in one.values()] for one in results]
    record("export", results, "Models as ONNX files", HEADER, table, notes)


if __name__ == "__main__":
    main()
