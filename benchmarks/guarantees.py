"""Do intervals hold what their theorems say? 1,000 simulated data sets for each guarantee.

    python benchmarks/guarantees.py

Models are small and everything is given, so that a fit takes milliseconds. The stable one is a
smooth curve with 100 rows; the unstable one has as many features as rows and almost no penalty, so
that predictions swing when one row is left out. Each data set has one new row for each of its
rows. The bound of a guarantee is held if mean coverage is above it less three standard errors.

Then the coverage in parts of the rows whose noise differs, and of few rows, copies, with everything
chosen by default where nothing else is said.
"""

import argparse

import numpy as np
import torch

from parkrr import ParKRegressor
from parkrr.kernels import Gaussian, Linear
from recording import record

ALPHA = 0.1
GIVEN = {"metric": "euclidean", "n_cells": 1, "blend": 1, "coarse": 0, "progress": False}
GIVEN["keep_statistics"] = False


def smooth(n, rng):
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + X[:, 1] / 2 + 0.3 * rng.normal(size=n)


def skewed(n, rng):
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + np.exp(X[:, 1] / 2) * (rng.exponential(size=n) - 1)


def unstable(n, rng):
    X = rng.normal(size=(n, 60))
    return X, X @ unstable.beta + 0.3 * rng.normal(size=n)


unstable.beta = np.random.default_rng(0).normal(size=60) / 60**0.5

SMOOTH = {**GIVEN, "kernel": Gaussian(1.0), "penalty": 1e-3}
UNSTABLE = {**GIVEN, "kernel": Linear(), "penalty": 1e-9, "fit_intercept": False}
CELLS = {**SMOOTH, "n_cells": 2, "n_centers": 40}
CASES = [  # name, rows, rows of a data set, parameters, guarantee, bound
    ("smooth", smooth, 100, SMOOTH, "split", 1 - ALPHA),
    ("smooth", smooth, 100, SMOOTH, "jackknife+", 1 - 2 * ALPHA),
    ("skewed, one group of cells", skewed, 1200, CELLS, "cell", 1 - ALPHA),
    ("unstable", unstable, 60, UNSTABLE, "split", 1 - ALPHA),
    ("unstable", unstable, 60, UNSTABLE, "jackknife+", 1 - 2 * ALPHA),
    ("unstable", unstable, 60, UNSTABLE, "plain jackknife", None),
    ("unstable", unstable, 60, UNSTABLE, "none", None),
]


def held(make, n, params, guarantee, seed):
    """Which of as many new rows are in their intervals, and the group of the cell of each."""
    rng = np.random.default_rng([seed, n])
    X, y = make(n, rng)
    new_X, new_y = make(n, rng)
    kind = "jackknife+" if guarantee == "plain jackknife" else guarantee
    model = ParKRegressor(**params, guarantee=kind, random_state=seed).fit(X, y)
    group = np.zeros(n, int)
    if guarantee == "plain jackknife":
        residuals = np.sort(model.intervals_.jackknife.residuals[:, 0].numpy())
        size = residuals[int(np.ceil((1 - ALPHA) * (n + 1))) - 1]
        return np.abs(model.predict(new_X) - new_y) <= size, group
    lower, upper = model.predict_interval(new_X, 1 - ALPHA)
    if guarantee == "cell":
        cell = model.model_.assign(model.model_.map_rows(torch.from_numpy(new_X)))
        group = model.intervals_.scores.group_of_cell[cell].numpy()
    return (lower <= new_y) & (new_y <= upper), group


def check_bounds(n_sets):
    results = []
    for name, make, n, params, guarantee, bound in CASES:
        rows = [held(make, n, params, guarantee, seed) for seed in range(n_sets)]
        if guarantee == "cell":  # one group of each fit, drawn at random with equal chances
            shares = []
            for seed, (inside, group) in enumerate(rows):
                chosen = np.random.default_rng(seed).choice(np.unique(group))
                shares.append(inside[group == chosen].mean())
            shares = np.array(shares)
        else:
            shares = np.array([inside.mean() for inside, _ in rows])
        mean, error = float(shares.mean()), float(shares.std() / len(shares) ** 0.5)
        fits = None if bound is None else mean >= bound - 3 * error
        results.append(
            {"data": name, "rows": n, "guarantee": guarantee, "bound": bound, "coverage": mean}
            | {"standard error": error, "holds": fits}
        )
        print(results[-1], flush=True)
    return results


def by_half(n, rng):
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 1]) + np.where(X[:, 0] > 0, 1.0, 0.05) * rng.normal(size=n)


def growing(n, rng):
    X = rng.uniform(0, 2, (n, 1))
    return X, np.sin(3 * X[:, 0]) + np.exp(2 * X[:, 0] - 2) * rng.normal(size=n)


def repeated(n, rng):
    X, y = smooth(n // 3, rng)
    return X.repeat(3, 0), y.repeat(3)


NOISE = {**GIVEN, "kernel": Gaussian(0.5), "penalty": 1e-3, "n_centers": 200, "solver": "direct"}
QUICK = {"kernel": Gaussian(), "metric": "standard", "blend": 1, "coarse": 0, "progress": False}
PARTS = [  # name, rows, new rows, n, parameters, data sets, parts
    ("20,000 rows, noise 1.0 where x > 0, else 0.05", by_half, by_half, 20_000, NOISE, 10,
     {"x > 0": lambda X: X[:, 0] > 0, "x <= 0": lambda X: X[:, 0] <= 0}),
    ("20,000 rows, noise exp(2 x - 2)", growing, growing, 20_000, NOISE, 10,
     {"x > 1.5": lambda X: X[:, 0] > 1.5, "1 < x <= 1.5": lambda X: abs(X[:, 0] - 1.25) <= 0.25,
      "0.5 < x <= 1": lambda X: abs(X[:, 0] - 0.75) <= 0.25, "x <= 0.5": lambda X: X[:, 0] <= 0.5}),
    ("20 rows, all chosen", smooth, smooth, 20, {"progress": False}, 60, {}),
    ("40 rows, all chosen", smooth, smooth, 40, {"progress": False}, 60, {}),
    ("600 rows, each three times", repeated, smooth, 600, QUICK, 6, {}),
]  # fmt: skip


def check_parts():
    results = []
    for name, make, make_new, n, params, n_sets, parts in PARTS:
        for guarantee in ("none", "split") if parts else ("none",):
            found = {part: [] for part in ("all", *parts)}
            for seed in range(n_sets):
                rng = np.random.default_rng([seed, 5])
                X, y = make(n, rng)
                new_X, new_y = make_new(2000, rng)
                model = ParKRegressor(**params, guarantee=guarantee, random_state=seed).fit(X, y)
                lower, upper = model.predict_interval(new_X, 1 - ALPHA)
                inside = (lower <= new_y) & (new_y <= upper)
                found["all"].append(inside.mean())
                for part, select in parts.items():
                    found[part].append(inside[select(new_X)].mean())
            means = {part: float(np.mean(values)) for part, values in found.items()}
            results.append({"data": name, "guarantee": guarantee, "sets": n_sets} | means)
            print(results[-1], flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=1000)
    args = parser.parse_args()
    bounds, parts = check_bounds(args.sets), check_parts()
    header = ["data", "rows", "guarantee", "bound", "coverage", "standard error", "holds"]
    known = {None: "", True: "yes", False: "no"}
    rows = [
        (
            *(one["data"], one["rows"], one["guarantee"], one["bound"] or "none"),
            *(f"{one['coverage']:.4f}", f"{one['standard error']:.4f}", known[one["holds"]]),
        )
        for one in bounds
    ]
    notes = ["Coverage in parts of the rows, and of few rows and copies, at 0.9:", ""]
    for one in parts:
        shown = {k: v for k, v in one.items() if k not in ("data", "guarantee", "sets")}
        text = ", ".join(f"{part} {value:.3f}" for part, value in shown.items())
        notes.append(f"- {one['data']}, guarantee {one['guarantee']}, {one['sets']} sets: {text}")
    title = f"Coverage of intervals for alpha = {ALPHA}, {args.sets} data sets each"
    record("guarantees", {"bounds": bounds, "parts": parts}, title, header, rows, notes)


if __name__ == "__main__":
    main()
