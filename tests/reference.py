"""Slow and obvious implementations of the paper, in numpy, one entry at a time."""

from itertools import combinations
from math import factorial

import numpy as np


def kernel_value(kernel, x, z):
    """K(x, z) by its textbook formula."""
    if type(kernel).__name__ == "KernelSum":
        terms = zip(kernel.factors, kernel.kernels, strict=True)
        return sum(a * kernel_value(part, x, z) for a, part in terms)
    if type(kernel).__name__ == "KernelProduct":
        return np.prod([kernel_value(part, x, z) for part in kernel.kernels])
    if type(kernel).__name__ == "FunctionKernel":  # that of the L1 distance
        return np.exp(-np.abs(x - z).sum())
    lengthscale = getattr(kernel, "lengthscale", 1.0)
    if isinstance(lengthscale, tuple):  # one for each feature
        x, z, lengthscale = x / lengthscale, z / lengthscale, 1.0
    r = np.sqrt(((x - z) ** 2).sum())
    name = type(kernel).__name__
    if name == "Gaussian":
        return np.exp(-(r**2) / (2 * lengthscale**2))
    if name == "Laplacian":
        return np.exp(-r / lengthscale)
    if name == "Matern":
        a = np.sqrt(2 * kernel.nu) * r / lengthscale
        return {0.5: 1, 1.5: 1 + a, 2.5: 1 + a + a**2 / 3}[kernel.nu] * np.exp(-a)
    if name == "Polynomial":
        return (kernel.gamma * x @ z + kernel.coef0) ** kernel.degree
    return x @ z


def kernel_matrix(kernel, X, Z):
    """K with entries K(x_i, z_j), shape (n, m)."""
    return np.array([[kernel_value(kernel, x, z) for z in Z] for x in X])


def schur_complements(K, chosen):
    """SC_q of every row given the rows chosen, as printed below eq. (7)."""
    if not chosen:
        return np.diag(K).copy()
    K_q = K[np.ix_(chosen, chosen)]
    columns = K[:, chosen]
    return np.diag(K) - np.einsum("ij,ij->i", columns @ np.linalg.inv(K_q), columns)


def greedy(K, count):
    """Eq. (7) by brute force: the largest Schur complement at each step."""
    chosen = []
    for _ in range(count):
        complements = schur_complements(K, chosen)
        complements[chosen] = -np.inf
        chosen.append(int(np.argmax(complements)))
    return chosen


def rkhs_distances(kernel, X, C):
    """Eq. (5): K(x, x) + K(c, c) - 2 K(x, c), shape (n, Q)."""
    return np.array(
        [
            [
                kernel_value(kernel, x, x)
                + kernel_value(kernel, c, c)
                - 2 * kernel_value(kernel, x, c)
                for c in C
            ]
            for x in X
        ]
    )


def krr_weights(K_n, Y, penalty):
    """Eqs. (3) and (10): (K_n + lambda n I)^-1 Y."""
    return np.linalg.solve(K_n + penalty * len(K_n) * np.eye(len(K_n)), Y)


def nystrom_weights(K_nm, K_mm, Y, penalty):
    """The exact Nystrom estimator (appendix): minimises eq. (12) over alpha = B beta."""
    n = len(K_nm)
    return np.linalg.lstsq(K_nm.T @ K_nm + penalty * n * K_mm, K_nm.T @ Y, rcond=None)[0]


def ridge_regression(K_nm, K_mm, Y, w, ridge):
    """The Nystrom estimator with row weights w (n,) and lambda n given as one number."""
    A = K_nm.T @ (w[:, None] * K_nm) + ridge * K_mm
    return np.linalg.lstsq(A, K_nm.T @ (w[:, None] * Y), rcond=None)[0]


def stacked_ridge_regression(K_nm, K_mm, Y, ridge):
    """The same without weights, by least squares on more rows: squares lose half of the digits."""
    below = np.sqrt(ridge) * np.linalg.cholesky(K_mm).T
    above = np.concatenate([Y, np.zeros((len(K_mm), Y.shape[1]))])
    return np.linalg.lstsq(np.concatenate([K_nm, below]), above, rcond=0)[0]


def left_out_changes(K_nm, K_mm, Y, w, ridge, groups):
    """How much predictions of each group of rows fall when a fit is made without the group."""
    whole = K_nm @ ridge_regression(K_nm, K_mm, Y, w, ridge)
    changes = []
    for group in groups:
        kept = np.setdiff1d(np.arange(len(Y)), group)
        weights = ridge_regression(K_nm[kept], K_mm, Y[kept], w[kept], ridge)
        changes.append(whole[group] - K_nm[group] @ weights)
    return np.concatenate(changes)


def last_pivots(K, noise):
    """K(x, x) of the first row of each matrix less what the others, with noise, explain."""
    found = []
    for matrix in K:
        inner = matrix[1:, 1:] + noise * np.eye(len(matrix) - 1)
        found.append(matrix[0, 0] - matrix[0, 1:] @ np.linalg.solve(inner, matrix[0, 1:]))
    return np.array(found)


def conformal_end(residuals, level):
    """The ceil((n + 1) level)-th smallest residual: the end of split conformal prediction."""
    return np.sort(residuals)[int(np.ceil((len(residuals) + 1) * level)) - 1]


def refit_squares(kernel, X, Y, w, Z, ridge, X_v, Y_v, w_v):
    """Weighted sum of squared errors at other rows of the Nystrom fit with centres Z."""
    K_nm, K_mm = kernel_matrix(kernel, X, Z), kernel_matrix(kernel, Z, Z)
    predicted = kernel_matrix(kernel, X_v, Z) @ ridge_regression(K_nm, K_mm, Y, w, ridge)
    return w_v @ ((predicted - Y_v) ** 2).sum(1)


def leave_one_out_squares(K, Y, w, ridge):
    """Weighted squares of each row's error by a fit to all other rows, by refitting n times."""
    total = 0.0
    for i in range(len(K)):
        others = np.delete(np.arange(len(K)), i)
        inner = K[np.ix_(others, others)] + np.diag(ridge / w[others])
        total += w[i] * ((K[i, others] @ np.linalg.solve(inner, Y[others]) - Y[i]) ** 2).sum()
    return total


def leave_groups_out_squares(K, Y, w, ridge, groups):
    """Weighted squares of each row's error by a fit to the rows of all other groups."""
    total = 0.0
    for group in np.unique(groups):
        left, others = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        inner = K[np.ix_(others, others)] + np.diag(ridge / w[others])
        predicted = K[np.ix_(left, others)] @ np.linalg.solve(inner, Y[others])
        total += w[left] @ ((predicted - Y[left]) ** 2).sum(1)
    return total


def finite_differences(function, x, step=1e-5):
    """The slope of a function of an array by central differences, one entry at a time."""
    slope = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        change = np.zeros_like(x)
        change[index] = step
        slope[index] = (function(x + change) - function(x - change)) / (2 * step)
    return slope


def jackknife_plus(kernel, X, y, w, ridge, T, alpha):
    """Barber et al. 2021, eq. (1.2), by refitting exact kernel ridge regression n times."""
    n, lower, upper = len(X), [], []
    K, K_T = kernel_matrix(kernel, X, X), kernel_matrix(kernel, T, X)
    for i in range(n):
        others = np.delete(np.arange(n), i)
        inner = K[np.ix_(others, others)] + np.diag(ridge / w[others])
        weights = np.linalg.solve(inner, y[others])
        residual = abs(y[i] - K[i, others] @ weights)
        lower.append(K_T[:, others] @ weights - residual)
        upper.append(K_T[:, others] @ weights + residual)
    low = int(np.floor(alpha * (n + 1) + 1e-9)) - 1
    high = int(np.ceil((1 - alpha) * (n + 1) - 1e-9)) - 1
    return np.sort(lower, axis=0)[low], np.sort(upper, axis=0)[high]


def brute_force_shapley(value, d):
    """Shapley values of d players from the value of every coalition, by their definition."""
    values = {S: value(set(S)) for size in range(d + 1) for S in combinations(range(d), size)}
    shapley = np.zeros(d)
    for k in range(d):
        for S, without in values.items():
            if k not in S:
                order = factorial(len(S)) * factorial(d - len(S) - 1) / factorial(d)
                shapley[k] += order * (values[tuple(sorted((*S, k)))] - without)
    return shapley


def reweighted_ridge(K, y, s, ridge, power, steps=200):
    """eta = K a of least sum_i s_i d(y_i, exp(eta_i)) + ridge a' K a, by plain Fisher scoring.

    d is the Tweedie deviance of that power. It starts at the constant mean and takes short steps.
    """
    eta = np.full(len(y), np.log(np.average(y, weights=s)))
    for _ in range(steps):
        mu = np.exp(eta)
        w, z = s * mu ** (2 - power), eta + (y - mu) / mu
        a = np.linalg.solve(K + ridge * np.diag(1 / w), z)
        eta = 0.5 * eta + 0.5 * K @ a
    return eta
