"""How much a cell knows about a row: the Schur complement of its nearest centres.

A kernel model with centres Z and noise r knows f(x) up to K(x, x) - k' (K_ZZ + r)^-1 k, in units
of the prior: the same Schur complement that chooses centroids, eq. (7). All centres of a cell would
take m_q^2 numbers each to store; the nearest 32 take none, and what they leave is an upper bound.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from parkrr.data import grouped
from parkrr.kernels import Kernel
from parkrr.park import Model
from parkrr.partition import nearest
from parkrr.runtime import mapped_on_threads

NEIGHBOURS = 32
BLOCK_ROWS = 1000  # each with a matrix of its neighbours: 9 MB
JITTER = 1e-8  # of copies among the neighbours


def schur_complement(kernel: Kernel, X: Tensor, Z: Tensor, noise: float, skip: bool) -> Tensor:
    """K(x, x) - k' (K_ZZ + noise)^-1 k of rows X (n, e) and their nearest centres in Z, (n,).

    With `skip` a row that is a centre itself is not its own neighbour.
    """
    away, parts = kernel.distance(Z), []
    for rows in torch.split(X, BLOCK_ROWS):
        near, _ = nearest(away, rows, min(NEIGHBOURS + skip, len(Z)))  # (b, k)
        if skip:
            itself = (Z[near[:, 0]].to(rows) == rows).all(1)[:, None]
            near = torch.where(itself, near[:, 1:], near[:, :-1])
        around = torch.cat([rows[:, None], Z[near].to(rows)], 1)  # (b, k + 1, e)
        K = kernel.among(around.double())
        parts.append(last_pivot(K, noise))
    return torch.cat(parts)


def last_pivot(K: Tensor, noise: float) -> Tensor:
    """What the other rows leave of K(x, x) of the first, of matrices K (b, k + 1, k + 1), (b,)."""
    own, k, K_ZZ = K[:, 0, 0], K[:, 0, 1:], K[:, 1:, 1:]
    if not k.shape[1]:
        return own
    size = K_ZZ.diagonal(dim1=1, dim2=2).amax(1)[:, None].clamp_min(1e-200)  # (b, 1)
    K_ZZ.diagonal(dim1=1, dim2=2).add_(noise + JITTER * size)
    L = torch.linalg.cholesky_ex(K_ZZ).L
    half = torch.linalg.solve_triangular(L, k[:, :, None], upper=False)[:, :, 0]
    left: Tensor = (own - half.square().sum(1)).clamp_min(0)
    return left


def by_cell(
    model: Model,
    X: Tensor,
    cell_of: Tensor,
    work: Callable[[int, Tensor], Tensor],
    n_threads: int = 1,
) -> Tensor:
    """work(q, rows) of the mapped rows X (n, e) of each cell, put back in order, (n,)."""
    order, counts = grouped(cell_of, len(model.centroids))
    out = torch.empty(len(X), dtype=torch.float64, device=X.device)
    there = [(q, at) for q, at in enumerate(torch.split(order, counts)) if len(at)]

    def fill(task: tuple[int, Tensor]) -> None:
        q, at = task
        out[at] = work(q, X[at])

    mapped_on_threads(fill, there, n_threads)
    return out


def novelty(model: Model, X: Tensor) -> Tensor:
    """The part of mapped rows X (n, e) outside the span of their cell's nearest centres, (n,).

    Squared, in feature space, of 1: 0 at a centre, near 1 far from all.
    """

    def outside(q: int, rows: Tensor) -> Tensor:
        left = schur_complement(model.kernel, rows, model.centers[q], 0.0, skip=False)
        return left / model.kernel.diag(rows.double()).clamp_min(1e-300)

    return by_cell(model, X, model.cell_of(X), outside).clamp_(0, 1)
