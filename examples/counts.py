"""Counts with exposures.

A Poisson loss beside squared errors, for claims of drivers who were insured for different times.
Its predictions are positive and have the lower deviance. The rows are made up.
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
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for loss in ("squared_error", "poisson"):
    model = ParKRegressor(loss=loss, effort="fast", random_state=0, progress=False)
    model.fit(X[train], rate[train], sample_weight=years[train])
    predicted = model.predict(X[test])
    deviance = mean_poisson_deviance(rate[test], predicted.clip(1e-3), sample_weight=years[test])
    error = np.sqrt(np.mean((predicted - claims_a_year[test]) ** 2))
    print(f"{loss}: deviance {deviance:.3f}, error of the rate {error:.3f}")
    print(f"  smallest prediction {predicted.min():.3f}, smallest rate {smallest:.3f}")
    left.plot(claims_a_year[test], predicted, ".", alpha=0.5, label=loss)

expected = model.predict(X[test]) * years[test]
print(f"claims of all test rows: {claims[test].sum()}, expected {expected.sum():.0f}")
lower, upper = model.predict_interval(X[test][:1], coverage=0.9)
print(
    f"first test row: {predicted[0]:.2f} claims a year, interval {lower[0]:.2f} to {upper[0]:.2f}"
)
left.axline((1, 1), slope=1, color="black", linewidth=0.8)
left.axhline(0, color="grey", linewidth=0.8)
left.set(xlabel="rate that made the counts, claims a year", ylabel="prediction, claims a year")
left.legend()
plots.plot_partial_dependence(model, 0, X[test], ax=right)
plt.show()
