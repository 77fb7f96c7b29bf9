"""The library beside LightGBM, CatBoost and XGBoost on tables with text, dates and missing values.

    python benchmarks/tables.py                               # all tables, all that is installed
    python benchmarks/tables.py --tables titanic ames --methods parkrr lightgbm
    python benchmarks/tables.py --tables titanic --folds      # five folds of the training rows

Every fit has a process and 10 minutes of its own. A fifth of the rows are test rows, drawn with
seed 0, with seeds 0, 1 and 2 below 3,000 rows; errors are means over them. The error is the RMSE
over the standard deviation of the test target, 1 - AUC, or the rate of wrong classes. Trees get
categories of pandas, and dates as seconds and calendar parts. Libraries are imported before the
clock starts. Results are kept from run to run.
"""

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

import real_data
from comparing import compare
from dumbbells import draw_dumbbells
from recording import RESULTS, record

LIMIT = 600  # seconds for a fit
FEW_ROWS, SEEDS = 3000, (0, 1, 2)
TABLES = [
    "titanic",
    "german",
    "cnae9",
    "insurance",
    "leaf",
    "gas",
    "ames",
    "credit_data",
    "taxis",
    "telco",
    "melbourne",
    "hotel_rates",
    "calhousing",
    "adult",
    "diamonds",
]


def load(name, seed):
    """Training and test rows of a table, and its task: "reg", "bin" or "multi"."""
    table = pq.read_table(real_data.folder() / "tables" / f"{name}.parquet")
    task = json.loads(table.schema.metadata[b"park"])["task"]
    frame = table.to_pandas()
    X, y = frame.drop(columns="target"), frame["target"].to_numpy()
    stratify = None if task == "reg" else y
    split = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=stratify)
    return *split, task


def prepare_for_trees(X, X_test):
    """Text as categories of the training rows, dates as seconds and calendar parts."""
    parts = {}
    for name in X:
        column, test = X[name], X_test[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            for part in ("month", "day", "day_of_week", "hour"):
                parts[f"{name}_{part}"] = tuple(getattr(c.dt, part) for c in (column, test))
            column, test = (c.astype("int64") / 1e9 for c in (column, test))
        elif not pd.api.types.is_numeric_dtype(column):
            kind = pd.CategoricalDtype(sorted(column.dropna().astype(str).unique()))
            codes = (kind.categories.get_indexer(c.astype(str)) for c in (column, test))
            column, test = (pd.Categorical.from_codes(k, dtype=kind) for k in codes)
        parts[name] = column, test
    return tuple(pd.DataFrame({name: pair[k] for name, pair in parts.items()}) for k in (0, 1))


def fit_parkrr(X, y, X_test, task, **settings):
    from parkrr import ParKClassifier, ParKRegressor

    model = ParKRegressor if task == "reg" else ParKClassifier
    return model(random_state=0, progress=False, **settings).fit(X, y), X_test


def fit_lightgbm(X, y, X_test, task):
    from lightgbm import LGBMClassifier, LGBMRegressor

    X, X_test = prepare_for_trees(X, X_test)
    model = (LGBMRegressor if task == "reg" else LGBMClassifier)(n_jobs=2, verbose=-1)
    return model.fit(X, y), X_test


def fit_lightgbm_1000(X, y, X_test, task):
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    X, X_test = prepare_for_trees(X, X_test)
    settings = {"n_estimators": 1000, "learning_rate": 0.05, "n_jobs": 2, "verbose": -1}
    model = (LGBMRegressor if task == "reg" else LGBMClassifier)(**settings)
    order = np.random.default_rng(0).permutation(len(X))
    held_out, kept = order[: len(X) // 10], order[len(X) // 10 :]
    stop = early_stopping(50, verbose=False)
    validation = [(X.iloc[held_out], y[held_out])]
    return model.fit(X.iloc[kept], y[kept], eval_set=validation, callbacks=[stop]), X_test


def fit_catboost(X, y, X_test, task):
    from catboost import CatBoostClassifier, CatBoostRegressor

    X, X_test = prepare_for_trees(X, X_test)
    names = list(X.select_dtypes("category"))
    words = {n: lambda F, n=n: F[n].astype(object).fillna("missing").astype(str) for n in names}
    X, X_test = X.assign(**words), X_test.assign(**words)
    model = CatBoostRegressor if task == "reg" else CatBoostClassifier
    model = model(cat_features=names, verbose=False, allow_writing_files=False, random_seed=0)
    return model.fit(X, y), X_test


def fit_xgboost(X, y, X_test, task):
    from xgboost import XGBClassifier, XGBRegressor

    X, X_test = prepare_for_trees(X, X_test)
    model = (XGBRegressor if task == "reg" else XGBClassifier)(enable_categorical=True, n_jobs=2)
    return model.fit(X, y if task == "reg" else pd.factorize(y, sort=True)[0]), X_test


METHODS = {
    "parkrr": (fit_parkrr, "parkrr.estimators"),  # `import parkrr` loads nothing
    "lightgbm": (fit_lightgbm, "lightgbm"),
    "lightgbm-1000": (fit_lightgbm_1000, "lightgbm"),
    "catboost": (fit_catboost, "catboost"),
    "xgboost": (fit_xgboost, "xgboost"),
}


def compute_error(predicted, y_test, labels, task):
    """Error of numbers, or of probabilities of labels in their order."""
    if task == "reg":
        return float(np.sqrt(np.mean((predicted - y_test) ** 2)) / y_test.std())
    if task == "bin":
        return float(1 - roc_auc_score(y_test == labels[1], predicted[:, 1]))
    return float(np.mean(labels[predicted.argmax(1)] != y_test))


def measure_error(model, X_test, y_test, labels, task):
    """Error of a fitted model on test rows."""
    predicted = model.predict(X_test) if task == "reg" else model.predict_proba(X_test)
    return compute_error(predicted, y_test, labels, task)


def fit(table, method, seed):
    """Print error and seconds of a fit."""
    X, X_test, y, y_test, task = load(table, seed)
    importlib.import_module(METHODS[method][1])  # two seconds of torch are no part of a fit
    start = time.perf_counter()
    model, X_test = METHODS[method][0](X, y, X_test, task)
    seconds = time.perf_counter() - start
    error = measure_error(model, X_test, y_test, np.unique(y), task)
    print(json.dumps({"error": error, "seconds": seconds}))


def compute_fold_errors(table, method):
    """Errors on five folds of the training rows of each seed."""
    errors = []
    for seed in SEEDS:
        X, _, y, _, task = load(table, seed)
        folds = (KFold if task == "reg" else StratifiedKFold)(5, shuffle=True, random_state=seed)
        for kept, left in folds.split(X, y):
            model, rows = METHODS[method][0](X.iloc[kept], y[kept], X.iloc[left], task)
            errors.append(measure_error(model, rows, y[left], np.unique(y[kept]), task))
    return errors


def record_folds(tables, methods):
    """Mean errors on folds, and by how much those of other methods are larger than parkrr's."""
    results, rows = {}, []
    for table in tables:
        errors = {method: compute_fold_errors(table, method) for method in methods}
        results[table] = errors
        for method, each in errors.items():
            more = np.subtract(each, errors["parkrr"])
            spread = np.std(more, ddof=1) / np.sqrt(len(more))
            beside = "" if method == "parkrr" else f"{more.mean():+.4f} ± {spread:.4f}"
            rows.append([table, method, f"{np.mean(each):.4f}", beside])
            print(*rows[-1], flush=True)
    title = "Tables: errors on folds of training rows"
    header = ["table", "method", "mean of 15 folds", "more than parkrr, ± standard error"]
    record("tables_folds", results, title, header, rows)


def list_seeds(table):
    """Of the splits of a table."""
    rows = pq.read_metadata(real_data.folder() / "tables" / f"{table}.parquet").num_rows
    return SEEDS if rows < FEW_ROWS else SEEDS[:1]


def run(table, method):
    """Mean error and seconds over the seeds, or why there are none."""
    parts = []
    for seed in list_seeds(table):
        command = [sys.executable, __file__, "--fit", table, method, str(seed)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"more than {LIMIT} s"}
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1][:200]}
        parts.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: float(np.mean([part[key] for part in parts])) for key in ("error", "seconds")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--folds", action="store_true")
    parser.add_argument("--fit", nargs=3, metavar=("TABLE", "METHOD", "SEED"))
    given = parser.parse_args()
    if given.fit:
        table, method, seed = given.fit
        fit(table, method, int(seed))
        return
    if given.folds:
        record_folds(given.tables, given.methods)
        return
    kept = RESULTS / "tables.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for table in given.tables:
        for method in given.methods:
            if importlib.util.find_spec(METHODS[method][1]):
                results.setdefault(table, {})[method] = run(table, method)
                print(table, method, results[table][method], flush=True)
        write(results)  # after every table, for the next may be interrupted


def write(results):
    """The table, the counts and the plot of what there is."""
    shown = [name for name in METHODS if any(name in cases for cases in results.values())]
    rows = [
        [table, *(describe(results[table].get(name, {})) for name in shown)]
        for table in TABLES
        if table in results
    ]
    notes = [compare(results, name, "seconds") for name in shown if name != "parkrr"]
    record("tables", results, "Tables with text and missing values", ["table", *shown], rows, notes)
    drawn = {"parkrr": "parkrr", "lightgbm-1000": "LightGBM, 1,000 trees", "catboost": "CatBoost"}
    draw_dumbbells(results, drawn, "lightgbm-1000", RESULTS / "tables.png", "seconds")


def describe(case):
    """Error and seconds of a method on a table, or why there are none."""
    if "error" in case:
        return f"{case['error']:.4f} ({case['seconds']:.0f} s)"
    return case.get("failed", "-")


if __name__ == "__main__":
    main()
