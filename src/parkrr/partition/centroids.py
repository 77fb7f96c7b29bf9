"""Centroids and cells: which rows belong together (paper, section 3.1)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, draw_indices
from parkrr.kernels import Kernel, Radial
from parkrr.runtime import map_on_threads

# Rows on which the partition is decided: with 100 a cell, a cell of the mean size is seen
# as 100 +- 10, so a share of four times the mean cannot pass for three.
PARTITION_ROWS_PER_CELL = 100
# A cell is light below and heavy above this part of the mean. This is decided on a sample and for
# the number of cells asked for, so the limits lie well inside those for all rows and the final
# cells: a tenth, and four times.
LIGHT, HEAVY = 0.2, 2.7
BALANCE_ROUNDS = 30  # taxi at Q = 512 needs 5 to 15
# Moves of uniform centroids to the means of their cells. The mean cube of cell sizes, which is the
# time of a fit, over the cube of their mean: protein 2.2 without, 1.4 with 3 and with 10; kin40k in
# three cells 1.5, 1.04 and 1.04, and its error 0.0705, 0.0677 and 0.0695.
MEAN_ROUNDS = 3
AROUND_ROWS, AROUND_POINTS = 2**16, 16  # at a time, in a search for neighbours
# One in so many rows bounds the distance of neighbours, and standard deviations by which their
# number may vary among these. Up to so many times the rows to find are sorted together.
AROUND_SHARE, AROUND_SLACK, MANY_WITHIN = 64, 4.0, 2
SPLIT_ROWS = 100  # of a heavy cell to choose from: with 1,000 the rule chose outliers again


class Neighbors(NamedTuple):
    """Pairs of a point and a row near it."""

    point: Tensor  # (p,)
    row: Tensor  # (p,)
    distance: Tensor  # (p,)  squared, less |point|^2


def select_greedy(kernel: Kernel, X: Tensor, n_centroids: int, seed: int = 0) -> Tensor:
    """Centroids far from the span of those before, eq. (7): the largest Schur complement.

    The Schur complements of all rows are the residual diagonal of a partial Cholesky
    factorisation with pivoting, so a step costs one kernel column and no K_q^-1. Ties go
    to the smaller row number. Stops early when no row is left outside the span. Of candidates
    X (n, d), row numbers in the order chosen, shape (at most n_centroids,).
    """
    return pivots(kernel, X, n_centroids, lambda schur: int(schur.argmax()))


def select_rpcholesky(kernel: Kernel, X: Tensor, n_centroids: int, seed: int = 0) -> Tensor:
    """As greedy, but the next row is drawn with probability proportional to its complement."""
    rng = np.random.default_rng(seed)

    def pick(schur: Tensor) -> int:
        mass = schur.cumsum(0)
        c = torch.searchsorted(mass, rng.random() * float(mass[-1]), right=True)
        return min(int(c), len(schur) - 1)

    return pivots(kernel, X, n_centroids, pick)


def select_uniform(kernel: Kernel, X: Tensor, n_centroids: int, seed: int = 0) -> Tensor:
    """Rows drawn uniformly without replacement (the paper's ParK-Uni)."""
    return draw_indices(len(X), min(n_centroids, len(X)), seed)


def pivots(kernel: Kernel, X: Tensor, count: int, pick: Callable[[Tensor], int]) -> Tensor:
    """Row numbers picked one by one from the Schur complements given those before."""
    X = X.double()
    columns = kernel.against(X)
    A = columns.augment(X)  # (n, d')
    schur = kernel.diag(X).clone()  # (n,)  SC_q of each row
    rounding = float(schur.max()) * len(X) * torch.finfo(X.dtype).eps
    F = X.new_zeros(min(count, len(X)), len(X))  # (Q, n)  rows of the Cholesky factor
    chosen: list[int] = []
    for q in range(len(F)):
        if float(schur.max()) <= rounding:
            break
        c = pick(schur)  # at q = 0 the first line of eq. (7), since SC_0(c) = K(c, c)
        column = columns.values_of(A[c : c + 1])[0] - F[:q, c] @ F[:q]  # (n,)
        F[q] = column / schur[c].sqrt()
        schur = (schur - F[q].square()).clamp_min_(0)
        schur[c] = 0  # exact, so that no row is chosen twice
        chosen.append(c)
    return torch.tensor(chosen or [0], device=X.device)  # one row, even if K is zero


CENTROIDS: dict[str, Callable[[Kernel, Tensor, int, int], Tensor]] = {
    "greedy": select_greedy,
    "rpcholesky": select_rpcholesky,
    "uniform": select_uniform,
}


def choose_centroids(
    kernel: Kernel, X: Tensor, rule: str, n_cells: int, *, n_candidates: int, seed: int
) -> Tensor:
    """Q rows of X (n, d) by the named rule, among n_candidates of them, shape (Q, d)."""
    if n_candidates < len(X):
        X = X[draw_indices(len(X), n_candidates, seed)]
    return X[CENTROIDS[rule](kernel, X, n_cells, seed)]


def balance_cells(
    kernel: Kernel,
    X: Tensor,
    w: Tensor | None,
    centroids: Tensor,
    *,
    rule: str,
    lightest: float,
    seed: int,
) -> Tensor:
    """Centroids whose cells are of like weight; shape (about Q, d).

    Greedy centroids are outliers: at Q = 512 on a million taxi rides the largest cell held
    50 times the mean and the smallest one row. Until no cell is far from the mean, those
    too light lose their centroid, so that their rows go to the next nearest, and those too
    heavy are split by the rule that chose the centroids, applied to their own rows. The last
    round only merges. X (n, d) and w (n,) are a sample of rows; no cell may be lighter than
    `lightest`, whatever the mean.
    """
    weights = torch.ones(len(X), device=X.device) if w is None else w
    seeds = np.random.default_rng(seed)
    # The mean stays that of the cells asked for: were it to fall with every split, data with
    # outliers (HIGGS divided by its variance) would end with five times as many cells.
    mean = float(weights.sum()) / len(centroids)
    for rounds_left in reversed(range(BALANCE_ROUNDS)):
        cell_of = assign(kernel, X, centroids)
        weight = torch.bincount(cell_of, weights.double(), minlength=len(centroids))  # (Q,)
        light = weight < max(LIGHT * mean, lightest)
        light[weight.argmax()] = False
        heavy = (weight > max(HEAVY * mean, 2 * lightest)).nonzero()[:, 0].tolist()
        parts = []
        for q in heavy if rounds_left else []:
            n_parts, own = int(weight[q] / mean), X[cell_of == q]
            parts.append(split_cell(kernel, own, rule, n_parts, int(seeds.integers(2**31))))
            light[q] = len(parts[-1]) > 0  # its own centroid goes, if it could be split
        if not bool(light.any()):
            break
        centroids = torch.cat([centroids[~light], *parts])
    return centroids


def move_to_means(kernel: Radial, X: Tensor, w: Tensor | None, centroids: Tensor) -> Tensor:
    """Centroids (Q, d) that have moved to the weighted means of the rows X (n, d) of their cells.

    A few times, since cells change with them; a centroid without rows stays.
    """
    weights = torch.ones(len(X), dtype=torch.float64, device=X.device) if w is None else w.double()
    weighted = X.double() * weights[:, None]  # (n, d)
    for _ in range(MEAN_ROUNDS):
        cell_of = assign(kernel, X, centroids)
        weight = weights.new_zeros(len(centroids)).index_add_(0, cell_of, weights)  # (Q,)
        sums = weighted.new_zeros(centroids.shape).index_add_(0, cell_of, weighted)  # (Q, d)
        means = (sums / weight.clamp_min(1e-300)[:, None]).to(centroids)
        centroids = torch.where(weight[:, None] > 0, means, centroids)
    return centroids


def split_cell(kernel: Kernel, X: Tensor, rule: str, n_parts: int, seed: int) -> Tensor:
    """Centroids that divide the rows X (n, d) of one cell; none if all rows are the same."""
    rows = X[draw_indices(len(X), min(len(X), SPLIT_ROWS), seed)]
    chosen: Tensor = torch.unique(rows[CENTROIDS[rule](kernel, rows, n_parts, seed)], dim=0)
    return chosen if len(chosen) > 1 else chosen[:0]


def assign(kernel: Kernel, X: Tensor, centroids: Tensor) -> Tensor:
    """The cell of each row: its nearest centroid in feature space, eq. (5).

    Of rows X (n, d) and centroids (Q, d), numbers in [0, Q), shape (n,). K(x, x) is the same for
    every centroid, so the argmin needs only K(c, c) - 2 K(x, c). Ties go to the smaller number.
    """
    return kernel.distance(centroids).argmin(X)


def rows_around(
    rows: ArraySource, points: Tensor, size: int, n_threads: int = 1, slack: float = AROUND_SLACK
) -> Tensor:
    """The `size` rows nearest to each of the points (a, e), the nearest first, shape (a, size).

    Some rows tell a distance within which there are more than that, and only rows within it are
    sorted: for 32 points among a million rows of 18 columns 0.15 s, where it took 0.29.
    """
    size, groups = min(size, rows.n_rows), torch.split(points, AROUND_POINTS)
    some = rows.block(torch.arange(0, rows.n_rows, AROUND_SHARE, device=points.device)).X
    norms = some.square().sum(1)
    expected = size / AROUND_SHARE
    rank = math.ceil(expected + slack * math.sqrt(expected) + slack)

    def bound(P: Tensor) -> Tensor | None:
        if rank > len(some):
            return None
        return compare_distances(P, some, norms).kthvalue(rank, keepdim=True).values

    limits = map_on_threads(bound, groups, n_threads)  # (a, 1) each
    neighbors: list[list[Neighbors]] = [[] for _ in groups]
    for first, block in enumerate(rows.blocks(AROUND_ROWS)):
        X, norms = block.X, block.X.square().sum(1)

        def search(k: int, X: Tensor = X, norms: Tensor = norms, first: int = first) -> None:
            near = find_within(compare_distances(groups[k], X, norms), limits[k], size)
            neighbors[k].append(near._replace(row=near.row + first * AROUND_ROWS))

        map_on_threads(search, range(len(groups)), n_threads)
    nearest = []
    for P, parts in zip(groups, neighbors, strict=True):
        near = Neighbors(*(torch.cat(part) for part in zip(*parts, strict=True)))
        counts = torch.bincount(near.point, minlength=len(P))
        if int(counts.min()) < size:  # rows that told the distance were not like the others
            nearest.append(rows_around(rows, P, size, n_threads, 4 * slack))
            continue
        order = near.distance.argsort(stable=True)
        order = order[near.point[order].argsort(stable=True)]
        place = (counts.cumsum(0) - counts)[:, None] + torch.arange(size, device=order.device)
        nearest.append(near.row[order[place]])
    return torch.cat(nearest)


def compare_distances(points: Tensor, X: Tensor, norms: Tensor) -> Tensor:
    """Squared distances of points (a, e) to rows X (n, e), less |point|^2, shape (a, n)."""
    return torch.mm(-2 * points, X.T).add_(norms)


def find_within(distances: Tensor, limits: Tensor | None, size: int) -> Neighbors:
    """Rows whose distances (a, n) are within the limits (a, 1).

    Or the `size` nearest, if there are no limits or many are within them, such as copies of a row.
    """
    a, n = distances.shape
    if limits is not None:
        # In numpy, which takes half of the time of torch.
        within = np.flatnonzero((distances <= limits).cpu().numpy())
        if len(within) <= MANY_WITHIN * size * a:
            place = torch.from_numpy(within).to(distances.device)
            return Neighbors(place // n, place % n, distances.flatten()[place])
    nearest = distances.topk(min(size, n), largest=False)
    point = torch.arange(a, device=distances.device).repeat_interleave(nearest.values.shape[1])
    return Neighbors(point, nearest.indices.flatten(), nearest.values.flatten())
