"""Track fits with MLflow.

A run holds the parameters, the errors of the search and of test rows, the report and the model.
"""

import os
import tempfile
from pathlib import Path

# A folder in place of a database, and no message to anyone. Set before MLflow is imported.
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import mlflow
import numpy as np
import pandas as pd
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from parkrr import ParKRegressor, load


def fit_and_log(model, X, y, X_test, y_test):
    """Fit in a run of MLflow that holds all that is needed to compare this fit with others."""
    with mlflow.start_run() as run:
        errors = []

        def log_error(event):
            errors.append(event.best_error)
            mlflow.log_metric("search/best_error", event.best_error, step=len(errors))

        mlflow.log_params(model.get_params())
        model.set_params(callbacks=[log_error]).fit(X, y)
        mlflow.set_tags({"kernel": model.chosen_.params["kernel"], "cells": model.n_cells_})
        predicted = model.predict_outputs(X_test, ["prediction", "interval"], coverage=0.9)
        inside = (predicted["lower"] <= y_test) & (y_test <= predicted["upper"])
        mlflow.log_metrics(
            {
                "test/r2": r2_score(y_test, predicted["prediction"]),
                "test/rmse": root_mean_squared_error(y_test, predicted["prediction"]),
                "test/mae": mean_absolute_error(y_test, predicted["prediction"]),
                "test/coverage_of_0.9_intervals": inside.mean(),
                **{f"seconds/{step}": value for step, value in model.seconds_.items()},
            }
        )
        with tempfile.TemporaryDirectory() as folder:
            model.show_report(Path(folder, "report.html"))
            model.save(Path(folder, "model.park"))
            mlflow.log_artifacts(folder)
    return run.info.run_id


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    n = 800
    flats = pd.DataFrame({"size": rng.gamma(6, 12, n), "district": rng.choice(["a", "b", "c"], n)})
    rent = flats["size"] * flats["district"].map({"a": 14.0, "b": 11.0, "c": 17.0})
    rent += rng.normal(0, 40, n)
    X, y, X_test, y_test = flats[:600], rent[:600], flats[600:], rent[600:]

    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(Path(folder, "runs").as_uri())
        mlflow.set_experiment("rents")
        for kernel in ("gaussian", "matern"):
            settings = {"kernel": kernel, "metric": "standard", "blend": 1, "coarse": 0}
            model = ParKRegressor(**settings, random_state=0, progress=False)
            fit_and_log(model, X, y, X_test, y_test)
        runs = mlflow.search_runs(order_by=["metrics.`test/rmse`"], output_format="list")
        for run in runs:
            metrics = run.data.metrics
            print(
                f"{run.data.params['kernel']}: R2 {metrics['test/r2']:.3f}, "
                f"coverage {metrics['test/coverage_of_0.9_intervals']:.2f}"
            )
        uri = f"runs:/{runs[0].info.run_id}/model.park"
        best = load(mlflow.artifacts.download_artifacts(uri, dst_path=folder))
        print(f"the better one from its run: R2 {best.score(X_test, y_test):.3f}")
        names = [file.path for file in mlflow.artifacts.list_artifacts(run_id=runs[0].info.run_id)]
        print(f"artifacts: {', '.join(sorted(names))}")
