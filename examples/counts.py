"""Counts with exposures.

A Poisson loss beside squared errors, for claims of drivers who were insured for different times.
The rows are made up.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import mean_poisson_deviance

from parkrr import ParKRegressor, plots

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (1600, 3))  # a driver, a car and a region, say
years = rng.uniform(0.1, 2.0, 1600)  # that each was insured
claims_a_year = np.exp(np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] - 1)
claims = rng.poisson(years * claims_a_year)

# Claims a year, of which a row with more years tells more.
rate = claims / years
train, test = slice(800), slice(800, None)
smallest = claims_a_year[test].min()
for loss in ("squared_error", "poisson"):
    model = ParKRegressor(loss=loss, effort="fast", random_state=0, progress=False)
    model.fit(X[train], rate[train], sample_weight=years[train])
    predicted = model.predict(X[test])
    deviance = mean_poisson_deviance(rate[test], predicted.clip(1e-3), sample_weight=years[test])
    error = np.sqrt(np.mean((predicted - claims_a_year[test]) ** 2))
    print(f"{loss}: deviance {deviance:.3f}, error of the rate {error:.3f}")
    print(f"  smallest prediction {predicted.min():.3f}, smallest rate {smallest:.3f}")

expected = model.predict(X[test]) * years[test]
print(f"claims of all test rows: {claims[test].sum()}, expected {expected.sum():.0f}")
lower, upper = model.predict_interval(X[test][:1], coverage=0.9)
print(
    f"first test row: {predicted[0]:.2f} claims a year, interval {lower[0]:.2f} to {upper[0]:.2f}"
)
plots.plot_partial_dependence(model, 0, X[test])
plt.show()
