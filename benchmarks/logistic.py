"""Would a logistic loss give better probabilities than ridge regression and a calibration?

    python benchmarks/logistic.py

Newton's method for the logistic loss is weighted ridge regression, step by step: with
p = 1 / (1 + exp(-f)), weights p (1 - p) and targets f + (y - p) / weights. Kernel and metric are
those that a fit of the library chose; the penalty is the best of three. Both see four in five of
the training rows and are judged by log-loss on the fifth; test rows are not used.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import time

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import peers
from parkrr import ParKClassifier, ParKRegressor
from recording import record

TASKS = ("higgs51k", "airline_nyc13:cls")
STEPS = 4
FACTORS = (0.25, 1.0, 4.0)  # of the penalty that ridge regression chose
LEAST = 1e-3  # weight of a row


def newton(params, X, y, X_held, penalty):
    """Held-out scores after each step."""
    f, scores = np.zeros(len(y)), []
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-f))
        w = np.maximum(p * (1 - p), LEAST)
        # Weights are divided by their mean inside a fit, and the penalty with them.
        model = ParKRegressor(**{**params, "penalty": penalty / w.mean()})
        model.fit(X, f + (y - p) / w, sample_weight=w)
        f = model.predict(X).clip(-30, 30)
        scores.append(model.predict(X_held))
    return scores


def compare(task):
    data, _ = peers.load(task)
    X, X_held, y, y_held = train_test_split(data.X, data.y > 0, test_size=0.2, random_state=0)
    start = time.perf_counter()
    ridge = ParKClassifier(random_state=0).fit(X, y)
    found = {"ridge": log_loss(y_held, ridge.predict_proba(X_held))}
    found["seconds"], found["cells"] = time.perf_counter() - start, ridge.seconds_["cells"]
    params = {k: v for k, v in ridge.chosen_.params.items() if k != "class_weight"}
    start = time.perf_counter()
    for factor in FACTORS:
        # Codes of +1 and -1 are twice as far apart as 1 and 0.
        scores = newton(params, X, y, X_held, factor * params["penalty"])
        losses = [log_loss(y_held, 1 / (1 + np.exp(-s.clip(-30, 30)))) for s in scores]
        found[f"logistic, penalty x {factor}"] = losses
    found["seconds of a logistic fit"] = (time.perf_counter() - start) / len(FACTORS)
    return found


def main():
    results = {task: compare(task) for task in TASKS}
    rows = []
    for task, r in results.items():
        for factor in FACTORS:
            losses = [f"{loss:.4f}" for loss in r[f"logistic, penalty x {factor}"]]
            cost = f"{r['seconds of a logistic fit']:.0f} after {r['seconds']:.0f}"
            rows.append([task, f"{r['ridge']:.4f}", factor, *losses, cost])
    steps = [f"step {k + 1}" for k in range(STEPS)]
    header = ["task", "ridge, calibrated", "penalty x", *steps, "seconds"]
    record("logistic", results, "Held-out log-loss, ridge and logistic", header, rows)


if __name__ == "__main__":
    main()
