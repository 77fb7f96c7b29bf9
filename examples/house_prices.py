"""House prices with prediction intervals.

Dear houses vary more in price than cheap ones, so their intervals must be wider. The rows are made
up: prices depend on size, age, district and distance to the centre.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from parkrr import ParKRegressor, plots

rng = np.random.default_rng(0)
n = 3000
houses = pd.DataFrame(
    {
        "size": rng.gamma(9, 14, n).round(),
        "built": rng.integers(1900, 2026, n),
        "district": rng.choice(["harbour", "hill", "old town", "park"], n),
        "distance": rng.exponential(4, n).round(1),
    }
)
by_district = houses["district"].map({"harbour": 0.9, "hill": 1.2, "old town": 1.5, "park": 1.1})
value = 3.1 * houses["size"] * by_district * np.exp(-houses["distance"] / 15)
value *= 1 + 0.3 * np.abs(houses["built"] - 1965) / 60  # old and new ones are dearer
price = value * np.exp(0.12 * rng.normal(size=n))  # thousand euros
price.name = "price"

X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)
model = ParKRegressor(effort="fast", random_state=0).fit(X_train, y_train)
print(f"R2 {model.score(X_test, y_test):.3f}")

lower, upper = model.predict_interval(X_test, coverage=0.9)
inside = (lower <= y_test) & (y_test <= upper)
print(f"{inside.mean():.3f} of the prices lie in their 0.9 interval")
predicted = model.predict(X_test)
for name, houses_of in (("cheap", predicted < 300), ("dear", predicted > 600)):
    width = np.mean((upper - lower)[houses_of])
    print(f"{name} houses: {inside[houses_of].mean():.2f} inside, mean width {width:.0f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
plots.plot_predictions(model, X_test, y_test, ax=left)
plots.plot_partial_dependence(model, "built", X_test, ax=right)
plt.show()
