"""Error bars that hold: quantiles of what rows left out were off by, over a scale, cell by cell.

Split conformal prediction with left-out rows as the split. Their residuals are divided by a scale
that says where errors are large, then by a factor of their cell; the quantiles of what remains,
times both at a new row, are its interval. Start at :func:`learn_intervals`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import ArraySource
from parkrr.kernels import Kernel
from parkrr.park import CoarseModel, LeaveOneOutRows, Model, coarse_model
from parkrr.uncertainty.novelty import by_cell, schur_complement

LEVELS = np.concatenate([[0.001], np.arange(1, 400) / 400, [0.999]])
TAILS = (0.1, 0.25, 0.5, 0.75, 0.9)  # shares of what may lie outside that lie below
# A scale of this power: nearer to a constant, intervals are shorter at the same coverage, on
# taxi rides by 3 % at 0.8 and 2 % at 0.9 and 0.95, and cells are covered as well.
POWER = 0.75
# The factor of a cell is this quantile of its scores over that of all, shrunk by so many rows.
# Quantiles of each cell, mixed with those of all, covered 0.806 for 0.8 and were 5 % wider.
FACTOR_LEVEL, FACTOR_ROWS = 0.8, 100.0
SCALE_CENTERS, ROWS_A_CENTER = 500, 4
# What is learned is judged on rows it has not seen: of few rows left out a tenth at a time, for
# a scale of three quarters of them is worse than that of all, and coverage too high.
FOLDS, FOLDS_OF_FEW, FEW_TO_FOLD = 4, 10, 20_000
SCALE_ROWS = 100  # left out; with fewer the scale is a constant
LEAST = 0.05  # of the median residual: smaller ones are as good as that
NOISE_ROWS = 50.0  # of all cells that count beside those of a cell, for its noise
JUDGED_COVERAGE = 0.9  # at which scales are compared


@dataclass(frozen=True)
class Posterior:
    """What the model itself says: noise, and what its centres do not know.

    With noise s^2 of a row and lambda n = s^2 over the variance of the prior, the variance of a
    new target is s^2 (1 + v / lambda n), v the Schur complement of the nearest centres.

    Parameters
    ----------
    noise
        s of each cell and target, shape (Q, t).
    ridge
        lambda n of each cell, divided by the rows that each centre stands for, shape (Q,).
    """

    noise: Tensor
    ridge: Tensor

    def std(self, model: Model, X: Tensor, cell_of: Tensor, left_out: bool = False) -> Tensor:
        """Standard deviation of a new target at mapped rows X (n, e) of cells (n,), (n, t).

        Rows of the fit that are left out do not know themselves.
        """
        return self.noise[cell_of] * spread(model, X, cell_of, self.ridge, left_out)[:, None]


@dataclass(frozen=True)
class Intervals:
    """Everything that intervals need beside the model.

    Parameters
    ----------
    posterior
        The model's own standard deviation.
    how
        What the scale is: "constant", "posterior" or "learned".
    learned
        The logarithm of a scale, less its mean.
    factors
        Of each cell and target, shape (Q, t).
    quantiles
        Of residuals over scale and factor at `LEVELS`, shape (G, t).
    n
        How many rows were left out; with weights, as many of equal weight as say as much.
    """

    posterior: Posterior
    how: str
    learned: CoarseModel | None
    factors: Tensor
    quantiles: Tensor
    n: float

    def scale(self, model: Model, X: Tensor, left_out: bool = False) -> Tensor:
        """How wide errors are at mapped rows X (n, e), up to a factor, shape (n, t)."""
        cell_of = model.cell_of(X)
        factor = self.factors[cell_of]
        if self.learned is not None:
            return factor * self.learned(X).mul_(POWER).exp_()
        if self.how == "posterior":
            return factor * self.posterior.std(model, X, cell_of, left_out) ** POWER
        return factor

    @property
    def least_tail(self) -> float:
        """What must be allowed to lie beyond an end, or rows left out do not know where it is."""
        return float(max(LEVELS[0], 1 / (self.n + 1)))

    def tails(self, coverage: float) -> tuple[float, float]:
        """The levels of the two ends of an interval: the shortest of a few."""
        least, outside = self.least_tail - 1e-12, 1 - coverage
        pairs = [(share * outside, 1 - (1 - share) * outside) for share in TAILS]
        known = [(low, high) for low, high in pairs if min(low, 1 - high) >= least]
        widths = [float((self.at(high) - self.at(low)).sum()) for low, high in known]
        return known[int(np.argmin(widths))]

    def at(self, level: float) -> Tensor:
        """The quantile of that level, shape (t,)."""
        place = float(np.interp(level, LEVELS, np.arange(len(LEVELS))))
        low = min(int(place), len(LEVELS) - 2)
        return self.quantiles[low].lerp(self.quantiles[low + 1], place - low)

    def quantile(
        self, model: Model, X: Tensor, levels: tuple[float, ...], left_out: bool = False
    ) -> Tensor:
        """Quantiles of a new target less its prediction, at mapped rows X (n, e), (n, t, l)."""
        ends = torch.stack([self.at(level) for level in levels], 1)  # (t, l)
        return self.scale(model, X, left_out)[:, :, None] * ends


def learn_intervals(
    model: Model,
    left_out: LeaveOneOutRows,
    predicted: Tensor,
    ridge: float,
    sizes: list[int],
    n_threads: int,
    seed: int,
) -> tuple[Intervals, dict[str, float]]:
    """Intervals from rows left out, and how wide the scales that were compared make them.

    `predicted` (h, t) is what the model without each says of it. Widths are means over rows and
    targets, over those of a constant scale. `ridge` is lambda n, and `sizes` (Q) are the rows
    of the cells.
    """
    R = left_out.Y - predicted  # (h, t)
    w = left_out.weights
    posterior, std = learn_posterior(model, left_out, R, w, ridge, sizes, n_threads)
    scales = {"constant": torch.ones_like(R)}
    if len(R) >= SCALE_ROWS:
        scales["posterior"] = std**POWER
        scales["learned"] = unseen_scale(model.kernel, left_out.X, R, w, n_threads, seed)
    judged = {how: judge(R, s, w, left_out.cell, len(sizes)) for how, s in scales.items()}
    constant = judged["constant"].width.clamp_min(1e-300)
    widths = {how: float((each.width / constant).mean()) for how, each in judged.items()}
    how = narrowest(widths)
    learned = None
    if how == "learned":
        learned = learn_scale(model.kernel, left_out.X, R, w, n_threads, seed)
    n = float(w.sum() ** 2 / w.square().sum())
    found = Intervals(posterior, how, learned, judged[how].factors, judged[how].quantiles, n)
    return found, widths


def narrowest(widths: dict[str, float]) -> str:
    """The scale whose intervals are the shortest."""
    return min(widths, key=lambda name: widths[name])


class Judgement(NamedTuple):
    """What a scale needs to hold, and how wide intervals are then."""

    factors: Tensor  # (Q, t)
    quantiles: Tensor  # (G, t)
    width: Tensor  # (t,)  the mean of intervals of `JUDGED_COVERAGE`


def judge(R: Tensor, s: Tensor, w: Tensor, cell: Tensor, n_cells: int) -> Judgement:
    """Residuals R and their scales (h, t) with weights (h,), those of one cell together."""
    factors = cell_factors(R / s, w, cell, n_cells)
    s = s * factors[cell]
    values, weights = (R / s).cpu().numpy(), w.cpu().numpy()
    columns = [conformal_quantiles(z, weights) for z in values.T]
    quantiles = torch.from_numpy(np.stack(columns, 1)).to(R.device)
    below = (1 - JUDGED_COVERAGE) / 2
    low, high = np.searchsorted(LEVELS, [below - 1e-9, 1 - below - 1e-9])
    mean = (w @ s) / w.sum()  # (t,)
    return Judgement(factors, quantiles, (quantiles[high] - quantiles[low]) * mean)


def cell_factors(Z: Tensor, w: Tensor, cell: Tensor, n_cells: int) -> Tensor:
    """How much wider scores Z (h, t) are in each cell than in all, shape (Q, t)."""
    sizes, weights = Z.abs().cpu().numpy(), w.cpu().numpy()
    ends = np.cumsum(np.bincount(cell.cpu().numpy(), minlength=n_cells))
    every = high_quantile(sizes, weights)
    factors = np.ones((n_cells, sizes.shape[1]))
    for q, own in enumerate(np.split(np.arange(len(sizes)), ends[:-1])):
        if len(own):
            n_q = weights[own].sum()
            share = n_q / (n_q + FACTOR_ROWS)
            factors[q] = (high_quantile(sizes[own], weights[own]) / every) ** share
    return torch.from_numpy(factors).to(Z.device)


def high_quantile(sizes: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """The quantile of sizes (n, t) that stands for how wide they are, positive, shape (t,)."""
    order = np.argsort(sizes, 0)
    total = np.cumsum(w[order], 0)  # (n, t)
    at = (total < FACTOR_LEVEL * total[-1]).sum(0).clip(0, len(sizes) - 1)  # (t,)
    found: NDArray[np.float64] = np.take_along_axis(sizes, order, 0)[at, range(sizes.shape[1])]
    return found.clip(1e-150)


def spread(
    model: Model,
    X: Tensor,
    cell_of: Tensor,
    ridge: Tensor,
    skip: bool = False,
    n_threads: int = 1,
) -> Tensor:
    """sqrt(1 + v / lambda n) of mapped rows X (n, e), shape (n,)."""

    def ratio(q: int, rows: Tensor) -> Tensor:
        r = float(ridge[q])
        v = schur_complement(model.kernel, rows, model.centers[q], r, skip)
        return (1 + v / r).sqrt()

    return by_cell(model, X, cell_of, ratio, n_threads)


def learn_posterior(
    model: Model,
    left_out: LeaveOneOutRows,
    R: Tensor,
    w: Tensor,
    ridge: float,
    sizes: list[int],
    n_threads: int,
) -> tuple[Posterior, Tensor]:
    """The noise of each cell from residuals R (h, t), and std of the rows left out, (h, t)."""
    n_q = torch.tensor(sizes, dtype=torch.float64)
    m_q = torch.tensor([len(Z) for Z in model.centers], dtype=torch.float64)
    ridges = (ridge * m_q / n_q.clamp_min(1)).clamp_min(1e-12).to(R.device)
    u = spread(model, left_out.X, left_out.cell, ridges, True, n_threads)  # (h,)
    squares = w[:, None] * (R / u[:, None]).square()
    total = squares.sum(0) / w.sum()  # (t,)
    Q = len(model.centroids)
    rows = torch.zeros(Q, dtype=R.dtype, device=R.device).index_add_(0, left_out.cell, w)
    sums = torch.zeros(Q, R.shape[1], dtype=R.dtype, device=R.device)
    sums.index_add_(0, left_out.cell, squares)
    noise = ((sums + NOISE_ROWS * total) / (rows + NOISE_ROWS)[:, None]).sqrt()
    smallest = torch.finfo(R.dtype).tiny ** 0.5
    posterior = Posterior(noise.clamp_min(smallest), ridges)
    return posterior, posterior.noise[left_out.cell] * u[:, None]


def unseen_scale(
    kernel: Kernel, X: Tensor, R: Tensor, w: Tensor, n_threads: int, seed: int
) -> Tensor:
    """Scales (h, t) of residuals R at mapped rows X (h, e), each learned from other rows."""
    n_folds = FOLDS_OF_FEW if len(R) < FEW_TO_FOLD else FOLDS
    fold = np.random.default_rng(seed).permutation(len(R)) % n_folds
    s = torch.empty_like(R)
    for k in range(n_folds):
        there = torch.from_numpy(fold == k).to(R.device)
        learned = learn_scale(kernel, X[~there], R[~there], w[~there], n_threads, seed)
        s[there] = learned(X[there]).mul_(POWER).exp_()
    return s


def learn_scale(
    kernel: Kernel, X: Tensor, R: Tensor, w: Tensor, n_threads: int, seed: int
) -> CoarseModel:
    """The logarithm of |R| (n, t), less its mean, as a smooth function of mapped rows X (n, e)."""
    size = R.abs()
    least = (LEAST * size.median(0).values).clamp_min(1e-300)
    Y = torch.maximum(size, least).log()
    Y = Y - (w @ Y) / w.sum()
    m = max(1, min(SCALE_CENTERS, len(X) // ROWS_A_CENTER))
    return coarse_model(kernel, ArraySource(X, Y.to(X), w.to(X)), m, n_threads, seed)


def conformal_quantiles(z: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles at all levels, shape (G,), moved out by one more row of weight one.

    A new row is one more of its kind: at a level above one half, the least value below which
    there are enough rows even if the new one is above it; below one half the same from the
    other side.
    """
    order = np.argsort(z)
    z, total = z[order], np.cumsum(w[order])
    more = total[-1] + 1
    up = np.searchsorted(total, LEVELS * more - 1e-9)
    below = np.cumsum(w[order][::-1])
    down = len(z) - 1 - np.searchsorted(below, (1 - LEVELS) * more - 1e-9)
    found: NDArray[np.float64] = z[np.where(LEVELS > 0.5, up, down).clip(0, len(z) - 1)]
    return found
