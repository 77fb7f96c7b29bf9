"""Pure noise with six columns of 300 categories: does a default fit claim to have learned any?

    python benchmarks/noise.py [seeds]

Means of the target describe such categories. If they knew the target of the row they describe, the
validation error would be too low and intervals too short: R2 was +0.25 on validation rows and -0.20
on test rows, and 0.9 intervals held 0.785.
"""

import sys

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score

from parkrr import ParKRegressor
from recording import record

N_ROWS, N_COLUMNS, N_CATEGORIES = 4000, 6, 300


def measure(seed):
    """R2 of validation and of test rows, and the share of test rows in their 0.9 interval."""
    rng = np.random.default_rng(seed)

    def rows():
        values = rng.integers(0, N_CATEGORIES, (N_ROWS, N_COLUMNS)).astype(str)
        return pd.DataFrame(values).add_prefix("c"), rng.normal(size=N_ROWS)

    (X, y), (X_test, y_test) = rows(), rows()
    model = ParKRegressor(random_state=seed, progress=False).fit(X, y)
    own = model.validation_rows_
    lower, upper = model.predict_interval(X_test)
    return {
        "validation": r2_score(own["truth"], own["predicted"]),
        "test": model.score(X_test, y_test),
        "coverage": float(np.mean((lower <= y_test) & (y_test <= upper))),
    }


def main(n_seeds):
    results = []
    for seed in range(n_seeds):
        results.append(measure(seed))
        print(seed, results[-1], flush=True)
    gaps = [abs(r["validation"] - r["test"]) for r in results]
    coverages = [r["coverage"] for r in results]
    mean = {key: np.mean([r[key] for r in results]) for key in results[0]}
    rows = [
        ["R2 of validation rows", f"{mean['validation']:.4f}", ""],
        ["R2 of test rows", f"{mean['test']:.4f}", ""],
        ["difference of the two", f"{np.mean(gaps):.4f}", f"0 to {max(gaps):.4f}"],
        [
            "0.9 intervals cover",
            f"{mean['coverage']:.4f}",
            f"{min(coverages):.4f} to {max(coverages):.4f}",
        ],
    ]
    title = f"Noise in {N_COLUMNS} columns of {N_CATEGORIES} categories, {n_seeds} seeds"
    record("noise", results, title, ["", "mean", "range"], rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
