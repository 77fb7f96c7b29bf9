"""Test error after 1, 3, 10, 30 and 100 seconds, beside LightGBM and CatBoost given the same.

    python benchmarks/error_against_time.py               # five tasks, some 25 minutes on two cores
    python benchmarks/error_against_time.py pol kin40k    # some of them

A fit with `time_budget` is a process of its own that has fitted something small before; its error
stands at the seconds it took, not at those it was given. LightGBM (2,000 trees) and CatBoost (its
1,000 trees) are trained once with a tenth of the rows as validation rows. At each time they predict
with the trees up to the best one so far, and stay where they are once they have stopped. The error
is the RMSE over the standard deviation of the target, on at most 50,000 test rows.
"""

import json
import subprocess
import sys
import time

import numpy as np

from fit_speed import TEST_ROWS, warm_up
from peers import load
from recording import RESULTS, record

TASKS = ["pol", "kin40k", "protein", "airline_nyc13", "taxi1m"]
SECONDS = (1, 3, 10, 30, 100)
ROUNDS_WITHOUT_GAIN = 50
LIGHTGBM_TREES = 2000


def load_rows(task):
    data, _ = load(task)
    return data.X, data.y, data.X_test[:TEST_ROWS], data.y_test[:TEST_ROWS]


def error_of(predicted, y):
    return float(np.sqrt(np.mean((predicted - y) ** 2)) / y.std())


def fit_parkrr(task, budget):
    from parkrr import ParKRegressor

    X, y, X_test, y_test = load_rows(task)
    warm_up()
    start = time.perf_counter()
    model = ParKRegressor(time_budget=budget, random_state=0, progress=False).fit(X, y)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "error": error_of(model.predict(X_test), y_test)}


class Best:
    """The number of trees of least validation error, by the seconds at which it was reached."""

    def __init__(self):
        self.start, self.error, self.trees, self.tree = time.perf_counter(), np.inf, [], 0

    def add(self, error):
        """Whether to go on after one more tree with that validation error."""
        self.tree += 1
        now = time.perf_counter() - self.start
        if error < self.error:
            self.error = error
            self.trees.append((now, self.tree))
        return now < SECONDS[-1] and self.tree - self.trees[-1][1] < ROUNDS_WITHOUT_GAIN

    def at(self, seconds):
        """The best number of trees by then, or None before the first."""
        known = [trees for when, trees in self.trees if when <= seconds]
        return known[-1] if known else None


def train_lightgbm(X, y, X_val, y_val):
    import lightgbm
    from lightgbm.callback import EarlyStopException

    best = Best()

    def watch(env):
        error = env.evaluation_result_list[0][2]
        if not best.add(error):
            raise EarlyStopException(env.iteration, env.evaluation_result_list)

    rows = lightgbm.Dataset(X, y)
    held_out = lightgbm.Dataset(X_val, y_val, reference=rows)
    params = {"objective": "l2", "verbose": -1, "num_threads": 2, "seed": 0}
    model = lightgbm.train(params, rows, LIGHTGBM_TREES, [held_out], callbacks=[watch])
    return best, lambda X, trees: model.predict(X, num_iteration=trees)


def train_catboost(X, y, X_val, y_val):
    from catboost import CatBoostRegressor

    best = Best()

    class Watch:
        def after_iteration(self, info):
            return best.add(info.metrics["validation"]["RMSE"][-1])

    model = CatBoostRegressor(
        thread_count=2, random_seed=0, verbose=False, allow_writing_files=False
    )
    model.fit(X, y, eval_set=(X_val, y_val), use_best_model=False, callbacks=[Watch()])
    return best, lambda X, trees: model.predict(X, ntree_end=trees)


TRAINED = {"lightgbm": train_lightgbm, "catboost": train_catboost}


def fit_trees(task, method):
    X, y, X_test, y_test = load_rows(task)
    order = np.random.default_rng(0).permutation(len(X))
    held_out, kept = order[: len(X) // 10], order[len(X) // 10 :]
    best, predict = TRAINED[method](X[kept], y[kept], X[held_out], y[held_out])
    points = []
    for seconds in SECONDS:
        trees = best.at(seconds)
        if trees is not None:
            error = error_of(predict(X_test, trees), y_test)
            points.append({"seconds": seconds, "error": error, "trees": trees})
    return points


def run(*arguments):
    """The result of a fit in a process of its own."""
    command = [sys.executable, __file__, "--run", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def draw(results, path):
    """A panel for each task: error against seconds, a line for each library."""
    import matplotlib.pyplot as plt

    looks = {
        "parkrr": ("#0072B2", "o", "-"),
        "lightgbm": ("#D55E00", "s", "--"),
        "catboost": ("#009E73", "^", ":"),
    }
    figure, axes = plt.subplots(1, len(results), figsize=(3 * len(results), 3.2))
    for ax, (task, methods) in zip(np.ravel(axes), results.items(), strict=True):
        for method, points in methods.items():
            color, marker, line = looks[method]
            seconds, errors = zip(*((p["seconds"], p["error"]) for p in points), strict=True)
            ax.plot(seconds, errors, line, color=color, marker=marker, label=method)
        ax.set(title=task, xscale="log", xlabel="seconds", ylim=(0, None))
        ax.set_xticks(SECONDS, [str(s) for s in SECONDS])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    np.ravel(axes)[0].set_ylabel("RMSE / standard deviation")
    handles, labels = np.ravel(axes)[0].get_legend_handles_labels()
    names = {"lightgbm": "LightGBM", "catboost": "CatBoost"}
    labels = [names.get(label, label) for label in labels]
    figure.legend(handles, labels, ncols=3, loc="lower center", frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=100)


def describe(task, methods):
    """A row of the table for each library: its error at each time, and parkrr's own seconds."""
    rows = []
    for method, points in methods.items():
        if method == "parkrr":
            cells = [f"{p['error']:.4f} ({p['seconds']:.1f} s)" for p in points]
        else:
            at = {p["seconds"]: p["error"] for p in points}
            cells = [f"{at[s]:.4f}" if s in at else "-" for s in SECONDS]
        rows.append([task, method, *cells])
    return rows


def main(tasks):
    kept = RESULTS / "error_against_time.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for task in tasks:
        results[task] = {"parkrr": [run("parkrr", task, s) for s in SECONDS]}
        results[task] |= {method: run(method, task) for method in TRAINED}
        write({name: results[name] for name in TASKS if name in results})


def write(results):
    header = ["task", "library", *(f"{s} s" for s in SECONDS)]
    rows = [row for pair in results.items() for row in describe(*pair)]
    notes = ["In brackets, what a fit with `time_budget` took."]
    title = "Test error after so many seconds"
    record("error_against_time", results, title, header, rows, notes)
    draw(results, RESULTS / "error_against_time.png")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        method, task, *budget = sys.argv[2:]
        found = fit_parkrr(task, float(*budget)) if budget else fit_trees(task, method)
        print(json.dumps(found))
    else:
        main(sys.argv[1:] or TASKS)
