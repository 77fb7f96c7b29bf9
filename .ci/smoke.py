"""Use an installed parkrr for a few seconds: fits, intervals, a model file, the command line.

    python .ci/smoke.py

It needs nothing from a checkout, and runs in a folder of its own, so what it imports is what is
installed. It prints the versions that it ran with.
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parkrr import Gaussian, ParKClassifier, ParKRegressor, load

QUICK = ("--kernel", "gaussian", "--metric", "standard", "--penalty", "1e-4", "--blend", "1")


def run(*words):
    """Run the command line, and stop if it fails."""
    subprocess.run([sys.executable, "-m", "parkrr", *words], check=True, stdout=subprocess.PIPE)


def main():
    """Fit, predict, save, load, and run commands; every step must succeed."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1000, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]

    settings = {"kernel": Gaussian(1.0), "penalty": 1e-6, "metric": "standard"}
    model = ParKRegressor(**settings, blend=1, coarse=0, random_state=0).fit(X[:800], y[:800])
    score = model.score(X[800:], y[800:])
    assert score > 0.99, score
    lower, upper = model.predict_interval(X[800:], coverage=0.9)
    assert (lower <= upper).all()

    model.save("model.park")
    np.testing.assert_allclose(load("model.park").predict(X[800:]), model.predict(X[800:]))

    labels = np.where(y > 0, "high", "low")
    classifier = ParKClassifier(**settings, blend=1, coarse=0, random_state=0)
    accuracy = classifier.fit(X[:800], labels[:800]).score(X[800:], labels[800:])
    assert accuracy > 0.9, accuracy

    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}), "rows.parquet")
    run("fit", "rows.parquet", "--target", "y", "-o", "rows.park", "--no-report", *QUICK)
    run("predict", "rows.park", "rows.parquet", "-o", "predictions.parquet")
    assert pq.read_metadata("predictions.parquet").num_rows == 1000
    run("inspect", "rows.park")

    names = ("parkrr", "torch", "numpy", "scikit-learn", "scipy", "pyarrow")
    print("smoke test passed:", ", ".join(f"{name} {version(name)}" for name in names))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
        os.chdir("/")  # Windows cannot remove the folder it is in
