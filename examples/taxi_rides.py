"""How long does a taxi ride take?

Fit, predict and inspect: a first model with intervals, importances and a report of its cells. The
rides are a sample of taxi1m.parquet in the folder PARKRR_DATA, or synthetic if that file is
missing.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from parkrr import ParKRegressor, plots


def synthetic(n):
    """Rides across a square city, slow in the afternoon and in the centre."""
    rng = np.random.default_rng(0)
    rides = pd.DataFrame(rng.uniform(-3, 3, (n, 4)), columns=["from_x", "from_y", "to_x", "to_y"])
    rides["hour"], rides["weekday"] = rng.uniform(0, 24, n), rng.integers(1, 8, n)
    miles = np.hypot(rides.from_x - rides.to_x, rides.from_y - rides.to_y)
    centre = np.exp(-((rides.from_x + rides.to_x) ** 2) - (rides.from_y + rides.to_y) ** 2)
    rush = np.exp(-((rides.hour - 17) ** 2) / 8) * (rides.weekday < 6)
    return rides.assign(target=60 * (3 + miles * (3 + 2 * rush + 2 * centre) + rng.normal(size=n)))


path = Path(os.environ.get("PARKRR_DATA", "."), "taxi1m.parquet")
rides = pd.read_parquet(path).sample(6000, random_state=0) if path.exists() else synthetic(6000)
X, y = rides.drop(columns=["target", "split"], errors="ignore"), rides["target"] / 60  # minutes

X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = ParKRegressor(time_budget=5, random_state=0)  # seconds
model.fit(X_train, y_train)
print(f"R2 {model.score(X_test, y_test):.3f} on {len(X_test):,} rides")

minutes = model.predict(X_test)
lower, upper = model.predict_interval(X_test, coverage=0.9)
covered = np.mean((lower <= y_test) & (y_test <= upper))
print(f"first test ride: {minutes[0]:.0f} minutes, interval {lower[0]:.0f} to {upper[0]:.0f}")
print(f"{covered:.2f} of the test rides lie in their 0.9 interval")

print(f"chosen: {model.chosen_.params['kernel']}, penalty {model.chosen_.params['penalty']:.1e}")
print("importances:", dict(zip(X, model.feature_importances_.round(2).tolist(), strict=True)))
print("seconds:", {step: round(seconds, 1) for step, seconds in model.seconds_.items()})
print(pd.DataFrame(model.report_)[["rows", "centers", "solver", "seconds"]])
plots.plot_predictions(model, X_test, y_test)
plt.show()
