"""The library beside LightGBM, HistGradientBoosting, Nystroem + Ridge, xRFM and Falkon.

    python benchmarks/peers.py                                # all tasks, all that is installed
    python benchmarks/peers.py --tasks pol kin40k --methods parkrr lightgbm

Every fit has a process and 10 minutes of its own and sees the same training rows; what a
method chooses, it chooses on a part of these. Error is the RMSE on standardised targets or
1 - AUC on the test rows, of files with more than 300,000 rows on 100,000 of them drawn with
seed 0. Results are kept from run to run, so that tasks can be added one by one.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import real_data
from comparing import compare
from dumbbells import draw_dumbbells
from recording import RESULTS, record

LIMIT = 600  # seconds for a fit
SHUFFLED_ROWS, TEST_ROWS = 300_000, 100_000
REGRESSIONS = [
    "pol",
    "elevators",
    "bike",
    "kin40k",
    "protein",
    "keggdirected",
    "keggundirected",
    "qm9",
    "satellite",
    "airline_nyc13",
    "taxi1m",
    "houseelectric",
    "airline3m",
]
CLASSIFICATIONS = ["higgs51k", "airline_nyc13:cls", "airline3m:cls"]
TASKS = REGRESSIONS + CLASSIFICATIONS
FOLD = "kin40k:fold0"  # nine in ten rows to fit, as in the literature; not one of the 16


def load(task):
    """Training rows, test rows, and whether it is a classification."""
    if task == FOLD:
        return real_data.load("kin40k", split="fold", test_value=0), False
    name, _, cls = task.partition(":")
    target = "target_cls" if cls else "target"
    split = "split_cls" if task == "airline3m:cls" else "split"
    data = real_data.load(name, target=target, split=split)
    if len(data.X) + len(data.X_test) > SHUFFLED_ROWS:
        drawn = np.random.default_rng(0).permutation(len(data.X_test))[:TEST_ROWS]
        data = data._replace(X_test=data.X_test[drawn], y_test=data.y_test[drawn])
    return data, task in CLASSIFICATIONS


def parkrr(classify, **settings):
    from parkrr import ParKClassifier, ParKRegressor

    estimator = ParKClassifier if classify else ParKRegressor
    return estimator(random_state=0, **settings)


def lightgbm(classify, **settings):
    from lightgbm import LGBMClassifier, LGBMRegressor

    estimator = LGBMClassifier if classify else LGBMRegressor
    return estimator(n_jobs=2, verbose=-1, random_state=0, **settings)


class EarlyStopping:
    """LightGBM with 1,000 trees, stopped on a tenth of the training rows."""

    def __init__(self, classify):
        self.model = lightgbm(classify, n_estimators=1000)

    def fit(self, X, y):
        from lightgbm import early_stopping

        order = np.random.default_rng(0).permutation(len(X))
        held_out, kept = order[: len(X) // 10], order[len(X) // 10 :]
        stop = early_stopping(50, verbose=False)
        self.model.fit(X[kept], y[kept], eval_set=[(X[held_out], y[held_out])], callbacks=[stop])
        self.predict = self.model.predict
        self.predict_proba = getattr(self.model, "predict_proba", None)


def hist_gradient_boosting(classify):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    return (HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor)(
        random_state=0
    )


class NystroemRidge:
    """1,000 components, gamma by the median distance, penalty by a fifth held out."""

    def __init__(self, classify):
        self.classify = classify

    def fit(self, X, y):
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import Ridge
        from sklearn.metrics import pairwise_distances

        order = np.random.default_rng(0).permutation(len(X))
        median = np.median(pairwise_distances(X[order[:1000]]))
        self.map = Nystroem(gamma=1 / (2 * median**2), n_components=1000, random_state=0).fit(X)
        held_out, kept = order[: len(X) // 5], order[len(X) // 5 :]
        F, F_held_out = self.map.transform(X[kept]), self.map.transform(X[held_out])
        errors = {}
        for alpha in 10.0 ** np.arange(-7, 3):
            ridge = Ridge(alpha).fit(F, y[kept])
            errors[alpha] = np.mean((ridge.predict(F_held_out) - y[held_out]) ** 2)
        del F, F_held_out
        self.ridge = Ridge(min(errors, key=errors.get)).fit(self.map.transform(X), y)

    def predict(self, X):
        return self.ridge.predict(self.map.transform(X))

    decision_function = predict


class XRFM:
    """xRFM with its defaults; a fifth of the training rows is the validation set it asks for."""

    def __init__(self, classify):
        from xrfm import xRFM

        self.classify = classify
        self.model = xRFM(tuning_metric="auc" if classify else "mse")

    def fit(self, X, y):
        order = np.random.default_rng(0).permutation(len(X))
        held_out, kept = order[: len(X) // 5], order[len(X) // 5 :]
        y = (y > 0).astype(np.int64) if self.classify else y[:, None]
        self.model.fit(X[kept], y[kept], X[held_out], y[held_out])

    def predict(self, X):
        return np.asarray(self.model.predict(X)).ravel()

    def decision_function(self, X):
        return np.asarray(self.model.predict_proba(X))[:, 1]


def catboost(classify):
    from catboost import CatBoostClassifier, CatBoostRegressor

    estimator = CatBoostClassifier if classify else CatBoostRegressor
    return estimator(thread_count=2, verbose=0, random_state=0, allow_writing_files=False)


METHODS = {
    "parkrr": parkrr,
    "lightgbm": lightgbm,
    "lightgbm 1000": EarlyStopping,
    "catboost": catboost,
    "histgradientboosting": hist_gradient_boosting,
    "nystroem + ridge": NystroemRidge,
    "xrfm": XRFM,
}
NEEDS = {
    "lightgbm": "lightgbm",
    "lightgbm 1000": "lightgbm",
    "catboost": "catboost",
    "xrfm": "xrfm",
}
DRAWN = {
    "parkrr": "parkrr",
    "lightgbm": "LightGBM",
    "lightgbm 1000": "LightGBM, 1,000 trees",
    "catboost": "CatBoost",
}


def one(task, method):
    """Fit and judge one method on one task, in this process."""
    data, classify = load(task)
    model = METHODS[method](classify)
    start = time.perf_counter()
    model.fit(data.X, data.y)
    fitted = time.perf_counter()
    scores = score_rows(model, data.X_test, classify)
    done = time.perf_counter()
    status = Path("/proc/self/status").read_text()
    return {
        "error": error_of(scores, data.y_test, classify),
        "fit_seconds": fitted - start,
        "predict_seconds": done - fitted,
        "peak_mb": int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024,
        **({"seconds": model.seconds_} if method == "parkrr" else {}),
    }


def score_rows(model, X, classify):
    """Numbers, or what orders rows by how likely the second class is."""
    if not classify:
        return model.predict(X)
    if getattr(model, "predict_proba", None):
        return model.predict_proba(X)[:, 1]
    return model.decision_function(X)


def error_of(scores, y, classify):
    if classify:
        from sklearn.metrics import roc_auc_score

        return float(1 - roc_auc_score(y > 0, scores))
    return float(np.sqrt(np.mean((np.ravel(scores) - y) ** 2)))


def in_a_process(task, method):
    """The result of `one` in a process of its own, or why there is none."""
    command = [sys.executable, __file__, "--one", task, method]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT + 120, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"over {LIMIT} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def table(results, methods):
    """A row per task: error and fit seconds of each method."""
    rows = []
    for task in [task for task in TASKS if task in results]:
        found = [results[task].get(method, {}) for method in methods]
        cells = [
            f"{r['error']:.4f} ({r['fit_seconds']:.0f} s)" if "error" in r else r.get("failed", "-")
            for r in found
        ]
        rows.append([task, *cells])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=[*TASKS, FOLD], metavar="TASK")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one)))
        return
    kept = RESULTS / "peers.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for task in arguments.tasks:
        for method in arguments.methods:
            if importlib.util.find_spec(NEEDS.get(method, "parkrr")) is None:
                continue
            results.setdefault(task, {})[method] = in_a_process(task, method)
        write(results)  # after every task, for the next may be interrupted


def write(results):
    """The table, the counts and the plot of what there is."""
    methods = [method for method in METHODS if any(method in r for r in results.values())]
    tasks = {task: results[task] for task in TASKS if task in results}
    notes = [compare(tasks, name, "fit_seconds") for name in methods if name != "parkrr"]
    if FOLD in results:
        fold = ", ".join(f"{m} {r['error']:.4f}" for m, r in results[FOLD].items() if "error" in r)
        notes.append(f"Not counted: {FOLD}, with nine in ten rows for training: {fold}.")
    title = "Test error (RMSE or 1 - AUC) and fit seconds beside other libraries"
    record("peers", results, title, ["task", *methods], table(results, methods), notes)
    drawn = {method: name for method, name in DRAWN.items() if method in methods}
    draw_dumbbells(results, drawn, "lightgbm 1000", RESULTS / "peers.png")


if __name__ == "__main__":
    main()
