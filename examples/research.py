"""Tools for research.

Change parts of the method, and look at what its theory speaks of: kernels, penalties, centroids,
effective dimensions, iterations and the Gaussian process behind a model.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics.pairwise import laplacian_kernel

from parkrr import Gaussian, Linear, ParKRegressor, inspection, plots


def target(X):
    """A quick wave along the first feature, a slope along the second."""
    return np.sin(4 * X[:, 0]) + 0.5 * X[:, 1]


def error(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


rng = np.random.default_rng(0)
X, X_new = rng.uniform(-2, 2, (1200, 2)), rng.uniform(-2, 2, (1000, 2))
y, y_new = target(X) + 0.2 * rng.normal(size=1200), target(X_new)
known = {"n_cells": 1, "blend": 1, "coarse": 0, "random_state": 0, "progress": False}

# Kernels: a lengthscale for each feature, a sum, a function. The penalty is chosen.
for kernel in (Gaussian(1.0), Gaussian([0.5, 3.0]), Gaussian(0.5) + Linear(), laplacian_kernel):
    model = ParKRegressor(kernel, **known).fit(X, y)
    name = getattr(kernel, "__name__", kernel)
    far = float(model.predict([[0.0, 4.0]])[0])
    print(f"{name}: RMSE {error(model, X_new, y_new):.3f}, at (0, 4) {far:.2f} of 2")

# The penalty path from one eigendecomposition, and the penalty of least leave-one-out error.
kernel = Gaussian([0.5, 3.0])
path = inspection.penalty_path(kernel, X, y, np.logspace(-8, 0, 33), X_val=X_new, y_val=y_new)
best = path.penalties[path.leave_one_out.argmin()]
print(f"leave-one-out chooses penalty {best:.1e}, validation rows {path.best:.1e}")

# Cells of k-means, their effective dimensions, and how many iterations FALKON needs in them.
centroids = KMeans(6, n_init=1, random_state=0).fit(X).cluster_centers_
given = known | {"n_cells": 6, "centroids": centroids, "n_centers": 300}
model = ParKRegressor(kernel, best, **given).fit(X, y)
dimensions = inspection.effective_dimension(model, X)
one = path.effective_dimension[path.leave_one_out.argmin()]
print(f"6 cells: RMSE {error(model, X_new, y_new):.3f}")
print(f"{dimensions.sum():.0f} effective dimensions in 6 cells, {one:.0f} in one")
curve = inspection.iteration_curve(model, X, y, max_iter=8)
print("training error by iteration:", " ".join(f"{value:.3f}" for value in curve.training))

# The Gaussian process behind a model, beside scikit-learn's.
model = ParKRegressor(kernel, best, **known, fit_intercept=False).fit(X[:400], y[:400])
process = inspection.posterior(model, X[:400], y[:400])
same = GaussianProcessRegressor(RBF([0.5, 3.0]), alpha=best * 400, optimizer=None)
_, covariance = same.fit(X[:400], y[:400]).predict(X_new[:50], return_cov=True)
gap = np.abs(process.covariance(X_new[:50]) - covariance).max()
print(f"covariance equal to scikit-learn's: {gap < 1e-6}")
likelihood = same.log_marginal_likelihood_value_
print(f"log marginal likelihood {process.log_marginal_likelihood:.3f} and {likelihood:.3f}")
print("samples of the function:", process.sample(X_new[:50], n_samples=3).shape)

# Tensors in, tensors out.
print("a tensor of", model.predict(torch.tensor(X_new[:2], dtype=torch.float32)).dtype)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
plots.plot_penalty_path(path, ax=left)
plots.plot_iteration_curve(curve, ax=right)
plt.show()
