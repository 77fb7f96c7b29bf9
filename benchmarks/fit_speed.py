"""Seconds of a fit beside LightGBM's, and whether time budgets are kept.

    python benchmarks/fit_speed.py                     # all parts, some 20 minutes on two cores
    python benchmarks/fit_speed.py small budgets       # some: small, large, budgets, folds, memory

Every fit is a process of its own that has fitted something small before, so that libraries are
loaded. The error is the RMSE over the standard deviation of the target, on test rows. LightGBM has
1,000 trees, and takes as long whatever its learning rate. Results are kept from run to run.
"""

import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

import real_data
from recording import RESULTS, record

SIZES = {
    "kin40k": (1000, 10_000),
    "protein": (40_000,),
    "taxi1m": (200_000, 900_000),
    "airline3m": (2_000_000,),
}
REPEATS, LARGE = 3, 100_000  # fits of each size, one above so many rows
BUDGETS = {"pol": (3, 10, 30), "protein": (3, 10, 30), "taxi1m": (3, 10, 30)}
BUDGET_ROWS = 100_000
FOLDS, FOLD_ROWS = 8, 4000
MEMORY_ROWS = 2000
TEST_ROWS = 50_000


def load(name, rows):
    data = real_data.load(name)
    order = np.random.default_rng(0).permutation(len(data.X))[:rows]
    return data.X[order], data.y[order], data.X_test[:TEST_ROWS], data.y_test[:TEST_ROWS]


def warm_up():
    from parkrr import ParKRegressor

    X = np.random.default_rng(0).normal(size=(400, 3))
    ParKRegressor(effort="fast", random_state=0, progress=False).fit(X, X[:, 0])


def fit(name, rows, **params):
    """Seconds and error of a fit, and of LightGBM without a time budget."""
    from lightgbm import LGBMRegressor

    from parkrr import ParKRegressor

    X, y, X_test, y_test = load(name, rows)
    models = {"parkrr": ParKRegressor(random_state=0, progress=False, **params)}
    if not params:
        models["lightgbm"] = LGBMRegressor(n_estimators=1000, n_jobs=2, verbose=-1)
    facts = {}
    for label, model in models.items():
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)) / y_test.std()
        facts[label] = {"seconds": seconds, "error": float(error)}
    facts["parkrr"]["steps"] = models["parkrr"].seconds_
    return facts


def fit_folds():
    """Seconds of one fit, and of eight folds that start from its choices."""
    from sklearn.model_selection import cross_val_score

    from parkrr import ParKRegressor

    X, y, _, _ = load("kin40k", FOLD_ROWS)
    start = time.perf_counter()
    model = ParKRegressor(random_state=0, progress=False).fit(X, y)
    one, start = time.perf_counter() - start, time.perf_counter()
    warm = ParKRegressor(warm_start=model.chosen_, random_state=0, progress=False)
    scores = cross_val_score(warm, X, y, cv=FOLDS)
    folds = time.perf_counter() - start
    return {"one fit": one, "folds": folds, "ratio": folds / one, "R2": float(scores.mean())}


def measure_memory():
    """Megabytes that a default fit takes beyond those of the process before it."""
    from parkrr import ParKRegressor

    X, y, _, _ = load("kin40k", MEMORY_ROWS)
    model = ParKRegressor(random_state=0, progress=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.fit(X, y)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rows": MEMORY_ROWS, "megabytes": (peak - before) / 1000}


PARTS = {"fit": fit, "folds": fit_folds, "memory": measure_memory}


def run(part, *args, **params):
    """The result of a part in a process of its own."""
    given = json.dumps([part, args, params])
    command = [sys.executable, __file__, "--run", given]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_sizes(repeats, is_wanted):
    """So many fits of each size that is wanted, as an entry "sizes"."""
    results = {}
    for name, sizes in SIZES.items():
        for rows in filter(is_wanted, sizes):
            fits = [run("fit", name, rows) for _ in range(repeats)]
            results[f"{name}, {rows:,}"] = fits
            print(name, rows, fits, flush=True)
    return {"sizes": results}


def run_budgets():
    results = {}
    for name, budgets in BUDGETS.items():
        for seconds in budgets:
            facts = run("fit", name, BUDGET_ROWS, time_budget=seconds)["parkrr"]
            results[f"{name}, {seconds} s"] = facts | {"budget": seconds}
            print(name, seconds, facts, flush=True)
    return {"budgets": results}


RUNS = {
    "small": lambda: run_sizes(REPEATS, lambda rows: rows <= LARGE),
    "large": lambda: run_sizes(1, lambda rows: rows > LARGE),
    "budgets": run_budgets,
    "folds": lambda: {"folds": run("folds")},
    "memory": lambda: {"memory": run("memory")},
}


def describe_size(label, fits):
    """A row of the table: median and range of the seconds, and of their ratio to LightGBM's."""
    ours, theirs = ([each[who]["seconds"] for each in fits] for who in ("parkrr", "lightgbm"))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    errors = [f"{fits[0][who]['error']:.4f}" for who in ("parkrr", "lightgbm")]
    seconds = f"{statistics.median(ours):.1f} ({min(ours):.1f} to {max(ours):.1f})"
    return [label, seconds, f"{statistics.median(theirs):.1f}", f"{ratio:.1f}", *errors]


def describe_budget(label, facts):
    ratio = facts["seconds"] / facts["budget"]
    return [
        label,
        f"{facts['seconds']:.1f}",
        "-",
        f"{ratio:.2f} of the budget",
        f"{facts['error']:.4f}",
        "-",
    ]


def main(names):
    kept = RESULTS / "fit_speed.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for name in names:
        for entry, new in RUNS[name]().items():
            results[entry] = results.get(entry, {}) | new
    rows = [describe_size(*pair) for pair in results.get("sizes", {}).items()]
    rows += [describe_budget(*pair) for pair in results.get("budgets", {}).items()]
    notes = []
    if "folds" in results:
        folds = results["folds"]
        notes.append(
            f"{FOLDS} folds of {FOLD_ROWS:,} rows that start from the choices of one fit take "
            f"{folds['folds']:.1f} s, {folds['ratio']:.1f} times one fit."
        )
    if "memory" in results:
        memory = results["memory"]
        notes += [
            "",
            f"A fit of {memory['rows']:,} rows takes {memory['megabytes']:.0f} MB of its own.",
        ]
    header = ["data, rows or budget", "seconds", "LightGBM", "ratio", "error", "LightGBM"]
    record("fit_speed", results, "Seconds of a fit", header, rows, notes)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        part, args, params = json.loads(sys.argv[2])
        if part == "fit":
            warm_up()
        print(json.dumps(PARTS[part](*args, **params)))
    else:
        main(sys.argv[1:] or list(RUNS))
