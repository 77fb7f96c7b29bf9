"""Error bars that hold, and a model that knows where it has not been."""

import numpy as np

from parkrr import ParKRegressor

rng = np.random.default_rng(0)


def rows(n):
    """Noise grows from left to right."""
    X = rng.uniform(0, 6, (n, 1))
    return X, np.sin(X[:, 0]) + 0.05 * (1 + X[:, 0]) * rng.normal(size=n)


model = ParKRegressor(random_state=0).fit(*rows(3000))
X, y = rows(2000)
lower, upper = model.predict_interval(X, coverage=0.9)
held = (lower <= y) & (y <= upper)
print(f"{held.mean():.3f} of new rows lie in their 0.9 interval")
for side, there in (("left", X[:, 0] < 1), ("right", X[:, 0] > 5)):
    print(f"{side}: {held[there].mean():.3f}, mean width {np.mean((upper - lower)[there]):.2f}")
print("novelty at 3 and at 30:", model.novelty([[3.0], [30.0]]).round(3))
print("scales compared:", [r for r in model.chosen_.tried if r["step"] == "intervals"])
