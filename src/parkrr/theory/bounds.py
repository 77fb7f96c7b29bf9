"""The quantities of the paper's theory for a partition, on rows few enough to compute them.

The minimal principal angle between cells, eq. (6), local and global effective dimension, and both
sides of Propositions 2 and 3; with a noise level also the bound of Theorem 4. All of it is
linear algebra of the kernel matrix of all rows, n^3 operations: for samples of a few thousand.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from parkrr.kernels import Kernel
from parkrr.solvers import kernel_of_rows

RANK = 1e-10  # of the largest eigenvalue of a cell: what is smaller is not told from zero


@dataclass(frozen=True)
class Theory:
    """The quantities of the theory for one partition.

    Parameters
    ----------
    cosine
        Of the minimal principal angle between cells: 0 if they are orthogonal, 1 if two of them
        share a direction.
    projections, norm
        Sum of the squared norms of f projected on each cell, and squared norm of f: the two
        sides of Proposition 2, the second without its factor.
    local_dimension, dimension
        Sum of N_q(lambda / rho_q), and N(lambda): those of Proposition 3.
    n_cells, penalty, largest
        Q, lambda, and kappa^2, the largest K(x, x).
    n
        Rows.
    """

    cosine: float
    projections: float
    norm: float
    local_dimension: float
    dimension: float
    n_cells: int
    penalty: float
    largest: float
    n: int

    @property
    def bias_factor(self) -> float:
        """1 + Q^2 cos(theta), Proposition 2."""
        return 1 + self.n_cells**2 * self.cosine

    @property
    def variance_factor(self) -> float:
        """1 + kappa^2 cos^2(theta) / lambda, Proposition 3."""
        return 1 + self.largest * self.cosine**2 / self.penalty

    def excess_risk(self, noise: float, delta: float = 0.05) -> float:
        """The bound of Theorem 4 for noise of that standard deviation."""
        bias = 16 * self.bias_factor * self.norm * self.penalty
        variance = 4 * noise**2 / self.n * self.variance_factor * self.dimension
        return bias + variance * math.log(1 / delta)

    def __str__(self) -> str:
        """One paragraph, with whether the bounds are informative."""
        bias = self.projections / self.norm if self.norm else 1.0
        variance = self.local_dimension / self.dimension if self.dimension else 1.0
        informative = max(self.bias_factor, self.variance_factor) < 10
        verdict = "are informative" if informative else "say little"
        return (
            f"cos(theta) {self.cosine:.3f} between the closest two of {self.n_cells} cells. "
            f"Local projections hold {bias:.2f} times the norm of f, bound {self.bias_factor:.3g}; "
            f"local effective dimensions add up to {variance:.2f} times the global one, "
            f"{self.dimension:.1f}, bound {self.variance_factor:.3g}. With these factors the "
            f"bounds {verdict}: they are near 1 only where cells are nearly orthogonal."
        )


def theory(kernel: Kernel, X: Tensor, cell_of: Tensor, weights: Tensor, penalty: float) -> Theory:
    """The quantities for rows X (n, e) in cells (n,) and f = sum of weights (n,) K(x_i, .).

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Linear
    >>> from parkrr.theory import theory
    >>> X = torch.eye(4, dtype=torch.float64)
    >>> result = theory(Linear(), X, torch.tensor([0, 0, 1, 1]), torch.ones(4), 0.1)
    >>> result.cosine, result.projections == result.norm
    (0.0, True)
    """
    K, alpha = kernel_of_rows(kernel, X), weights.double()
    cells = [(cell_of == q).nonzero()[:, 0] for q in sorted(set(cell_of.tolist()))]
    f = K @ alpha  # (n,)  its values
    pairs = [(own, whitening(K[own][:, own])) for own in cells]  # rows, and a basis (n_q, r_q)
    values = torch.linalg.eigvalsh(K).clamp_min(0) / len(K)
    return Theory(
        cosine=largest_cosine(K, pairs),
        projections=sum(float((B.T @ f[own]).square().sum()) for own, B in pairs),
        norm=float(alpha @ f),
        local_dimension=sum(local_dimension(K[own][:, own], penalty * len(K)) for own in cells),
        dimension=float((values / (values + penalty)).sum()),
        n_cells=len(cells),
        penalty=penalty,
        largest=float(K.diagonal().max()),
        n=len(K),
    )


def whitening(K_q: Tensor) -> Tensor:
    """B_q with B_q' K_q B_q = I: coefficients of an orthonormal basis of the cell, (n_q, r_q)."""
    values, vectors = torch.linalg.eigh(K_q)
    counts = values > RANK * values[-1]
    basis: Tensor = vectors[:, counts] / values[counts].sqrt()
    return basis


def largest_cosine(K: Tensor, cells: list[tuple[Tensor, Tensor]]) -> float:
    """cos(theta), eq. (6), of cells (rows, basis): the largest singular value between two."""
    largest = 0.0
    for (a, B_a), (b, B_b) in combinations(cells, 2):
        W = B_a.T @ K[a][:, b] @ B_b  # (r_a, r_b)
        largest = max(largest, float(torch.linalg.matrix_norm(W, 2)))
    return min(1.0, largest)


def local_dimension(K_q: Tensor, ridge: float) -> float:
    """N_q(lambda / rho_q) = Tr (K_q + lambda n)^-1 K_q."""
    values = torch.linalg.eigvalsh(K_q).clamp_min(0)
    return float((values / (values + ridge)).sum())
