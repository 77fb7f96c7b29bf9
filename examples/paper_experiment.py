"""The paper's experiment in small: one global model against cells.

ParK divides the rows into cells whose functions are nearly orthogonal, and each cell gets a small
problem of its own. A cell with half of the centres takes a quarter of the time for each row, so all
cells together have twice the centres in half of the time of one FALKON model.
`benchmarks/paper_table.py` repeats the tables of the paper on its data sets.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from parkrr import Gaussian, ParKRegressor

rng = np.random.default_rng(0)
n = 10_000
X = rng.uniform(-1, 1, (n + 5000, 3))
waves = sum(np.sin(k * X.sum(1) + k) * np.cos(k * X[:, 0]) / k**0.5 for k in (2, 5, 12))
y = waves + 0.05 * rng.normal(size=len(X))
X_train, y_train, X_test, truth = X[:n], y[:n], X[n:], waves[n:]

settings = {"metric": "euclidean", "blend": 1, "coarse": 0, "solver": "falkon", "random_state": 0}
results = []
for n_cells in (1, 4, 16):
    n_centers = int(1500 * n_cells**0.5)
    model = ParKRegressor(
        Gaussian(0.15), penalty=1e-6, n_cells=n_cells, n_centers=n_centers, **settings
    )
    start = time.perf_counter()
    model.fit(X_train, y_train)
    seconds = time.perf_counter() - start
    error = np.sqrt(np.mean((model.predict(X_test) - truth) ** 2))
    results.append((n_cells, seconds, error))
    print(f"{n_cells:>3} cells of {n_centers // n_cells} centres: error {error:.4f}")

cells, seconds, errors = zip(*results, strict=True)
print(f"16 cells are faster than one: {seconds[-1] < seconds[0]}")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for ax, values, name in ((left, seconds, "seconds to fit"), (right, errors, "error")):
    ax.plot(cells, values, "o-")
    ax.set(xscale="log", xlabel="cells", ylabel=name, ylim=(0, 1.1 * max(values)))
    ax.set_xticks(cells, cells)
    ax.minorticks_off()
plt.show()
