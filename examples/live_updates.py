"""Add rows every day, and forget the old ones.

A process drifts. A model of the first day goes stale; one that learns each day's rows and forgets
those of a week ago keeps up, without a new search or a look at old rows.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np

from parkrr import ParKRegressor

rng = np.random.default_rng(0)
DAYS, ROWS, KEPT = 30, 500, 7


def rows_of(day):
    """Rows of a day, whose optimum has moved on a little."""
    X = rng.uniform(-2, 2, (ROWS, 2))
    return X, np.sin(2 * X[:, 0] + 0.1 * day) + X[:, 1] ** 2 / 4 + 0.1 * rng.normal(size=ROWS)


days = [rows_of(day) for day in range(DAYS + 1)]
X, y = (np.concatenate(parts) for parts in zip(*days[:KEPT], strict=True))
settings = {"kernel": "matern", "n_cells": 8, "n_centers": 800, "keep_statistics": True}
model = ParKRegressor(effort="fast", random_state=0, **settings).fit(X, y)
first = copy.deepcopy(model)

errors = []
for day in range(KEPT, DAYS):
    X, y = days[day]
    errors.append([np.sqrt(np.mean((m.predict(X) - y) ** 2)) for m in (first, model)])
    model.partial_fit(X, y)
    model.forget(*days[day - KEPT])
for day, (stale, live) in list(zip(range(KEPT, DAYS), errors, strict=True))[::6]:
    print(f"day {day}: RMSE {stale:.3f} of the first fit, {live:.3f} with updates, noise 0.1")

figure, ax = plt.subplots(layout="constrained")
ax.plot(range(KEPT, DAYS), errors, label=["first fit", "updated every day"])
ax.axhline(0.1, color="grey", linestyle="--", label="noise")
ax.set(xlabel="day", ylabel="RMSE of the next day", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
