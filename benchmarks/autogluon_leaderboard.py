"""parkrr inside AutoGluon: errors of single models, and of ensembles with and without it.

    pip install 'autogluon.tabular[lightgbm,catboost]'
    python benchmarks/autogluon_leaderboard.py
    python benchmarks/autogluon_leaderboard.py --tables titanic --seconds 60

Tables, test rows of seed 0 and errors are those of tables.py; of calhousing 8,000 training rows
are drawn, so that the whole run takes minutes. Each model has the same limit in seconds. All are
fitted once, parkrr last, on the same rows; AutoGluon then weights them on its validation rows,
once with parkrr and once without. Test rows are used for the errors alone. Results are kept from
run to run.
"""

import argparse
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import tables
from recording import RESULTS, record

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "autogluon"))

TABLES = ["titanic", "cnae9", "insurance", "ames", "telco", "calhousing"]
MOST_ROWS = 8000  # for training
SECONDS = 60  # for each model
METRICS = {"reg": "root_mean_squared_error", "bin": "roc_auc", "multi": "accuracy"}
SINGLE = {"LightGBM": "GBM", "CatBoost": "CAT", "RandomForest": "RF"}


def fit(table, seconds):
    """Errors, seconds and weights of all models of a table."""
    from autogluon.tabular import TabularPredictor
    from parkrr_autogluon import ParKModel

    X, X_test, y, y_test, task = tables.load(table, 0)
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[:MOST_ROWS])
    X, y = X.iloc[rows], y[rows]
    limit = {"ag_args_fit": {"max_time_limit": seconds}}
    hyperparameters = {key: dict(limit) for key in SINGLE.values()} | {ParKModel: dict(limit)}
    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor("target", eval_metric=METRICS[task], path=folder, verbosity=2)
        predictor.fit(
            X.assign(target=y),
            hyperparameters=hyperparameters,
            time_limit=seconds * (len(hyperparameters) + 1),
            num_bag_folds=0,
            num_stack_levels=0,
        )
        names = predictor.model_names()
        single = [name for name in names if not name.startswith("WeightedEnsemble")]
        trees = [name for name in single if name != "ParK"]
        (without,) = predictor.fit_weighted_ensemble(base_models=trees, name_suffix="_trees")
        board = predictor.leaderboard().set_index("model")
        results = {"rows": len(X), "test_rows": len(X_test), "models": {}}
        chosen = {name: name for name in single} | {
            "ensemble with parkrr": "WeightedEnsemble_L2",
            "ensemble without parkrr": without,
        }
        for label, name in chosen.items():
            predicted = (
                predictor.predict(X_test, model=name).to_numpy()
                if task == "reg"
                else predictor.predict_proba(X_test, model=name)[np.unique(y)].to_numpy()
            )
            results["models"][label] = {
                "error": tables.compute_error(predicted, y_test, np.unique(y), task),
                "validation_score": float(board.loc[name, "score_val"]),
                "seconds": float(board.loc[name, "fit_time_marginal"]),
            }
        for label in ("ensemble with parkrr", "ensemble without parkrr"):
            ensemble = predictor._trainer.load_model(chosen[label])
            results["models"][label]["weights"] = {
                name: float(weight) for name, weight in ensemble._get_model_weights().items()
            }
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    kept = RESULTS / "autogluon_leaderboard.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    columns = [*SINGLE, "ParK", "ensemble without parkrr", "ensemble with parkrr"]
    header = ["table", "training rows", *columns, "weight of parkrr"]
    notes = [
        "RMSE over the standard deviation of the test target, 1 - AUC, or the rate of wrong "
        "classes; (seconds to fit). One split, one holdout of AutoGluon for the weights.",
        "",
        f"AutoGluon {version('autogluon.tabular')}, LightGBM {version('lightgbm')}, CatBoost "
        f"{version('catboost')}; at most {given.seconds:g} s for each model.",
        "",
    ]
    for table in given.tables:
        load = os.getloadavg()[0]
        results[table] = {**fit(table, given.seconds), "limit": given.seconds, "load": load}
        print(table, json.dumps(results[table]), flush=True)

        def cell(case):
            return f"{case['error']:.4f} ({case['seconds']:.0f} s)" if case else "-"

        loads = [result["load"] for result in results.values()]
        busy = f"Load average when a table began: {min(loads):.0f} to {max(loads):.0f}."
        lines = []
        for name in (name for name in TABLES if name in results):
            models = results[name]["models"]
            weight = models["ensemble with parkrr"]["weights"].get("ParK", 0.0)
            cells = [cell(models.get(column)) for column in columns]
            lines.append([name, results[name]["rows"], *cells, f"{weight:.2f}"])
        record(
            "autogluon_leaderboard",
            results,
            "parkrr inside AutoGluon",
            header,
            lines,
            [*notes, busy],
        )


if __name__ == "__main__":
    main()
