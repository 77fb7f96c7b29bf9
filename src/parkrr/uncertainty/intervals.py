"""Prediction intervals with the requested coverage, and the novelty of a row.

This is a locally scaled jackknife: leave-one-out residuals are divided by a scale, large where
errors are large, then by a factor of their cell. The quantiles of the result, times scale and
factor at a new row, are the ends of its interval. No theorem holds for it whatever the
distribution; those of :mod:`.conformal` and :mod:`.jackknife` have one. Start at
:func:`learn_intervals`.

One of the scales, and novelty, are the Schur complement of the nearest centres, as in eq. (7): with
centres Z and noise r, a kernel model determines f(x) up to K(x, x) - k' (K_ZZ + r)^-1 k, in units
of the prior variance. All centres of a cell would need m_q^2 numbers in the model; the nearest 32
need none, and give an upper bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import FEW_ROWS, ArraySource, canonical_order, draw_indices, group_by_cell
from parkrr.kernels import Kernel
from parkrr.park import LeaveOneOutRows, Model, NystromModel, cross_fit_nystrom_model
from parkrr.runtime import map_on_threads
from parkrr.uncertainty.conformal import GROUP_ROWS, ConformalScores, calibrate, group_cells
from parkrr.uncertainty.jackknife import JackknifePlus

Array = NDArray[np.float64]
LEVELS = np.concatenate([[0.001], np.arange(1, 400) / 400, [0.999]])  # of the stored quantiles
LOWER_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of 1 - coverage, below an interval; shortest wins
# A scale to a power below 1 is nearer to a constant, which is better where the scale is uncertain.
# The likelihood decides and not the width: where noise is 1.0 in one half of the rows and 0.05 in
# the other, 0.75 has intervals that are 15 % shorter, which hold 0.82 and 1.00 of the two halves
# for 0.9; 1.0 holds 0.88 and 0.94.
POWERS = (0.75, 1.0)
# The factor of a cell is this quantile of its scaled residuals over that of all rows, shrunk
# towards 1 as by so many rows. Quantiles of each cell, averaged with those of all rows, covered
# 0.806 for 0.8 and were 5 % wider.
FACTOR_LEVEL, FACTOR_ROWS = 0.8, 100.0
SCALE_CENTERS, ROWS_A_CENTER = 500, 4
# A learned scale is measured on rows it was not fitted to, a quarter at a time; of few rows a
# tenth, because a scale from three quarters of them is worse and coverage is then too high.
FOLDS, FOLDS_OF_FEW, FEW_TO_FOLD = 4, 10, 20_000
SCALE_ROWS = 100  # with fewer rows the scale is a constant
SMALLEST_RESIDUAL = 0.01  # of the median residual: smaller ones count as this
NOISE_ROWS = 50.0  # of all cells, added to those of a cell to estimate its noise
COMPARED_COVERAGE = 0.9  # at which scales are compared
LARGEST_INFLATION = 3.0
NEIGHBOURS = 32
BLOCK_ROWS = 1000  # each with the kernel matrix of its neighbours: 9 MB
DIAGNOSTIC_ROWS = 2000  # leave-one-out rows that a model keeps
COVERAGE = 0.9  # of their intervals, if there are enough rows to estimate their ends
JITTER = 1e-8  # relative, for equal rows among the neighbours


@dataclass(frozen=True)
class Posterior:
    """The model's own standard deviation: noise, and distance from its centres.

    With noise variance s^2, and lambda n equal to s^2 over the prior variance, the variance of a
    new target is s^2 (1 + v / lambda n), where v is the Schur complement of the nearest centres.

    Parameters
    ----------
    noise
        s of each cell and target, shape (Q, t).
    ridge
        lambda n of each cell, divided by the rows per centre, shape (Q,).
    """

    noise: Tensor
    ridge: Tensor

    def std(self, model: Model, X: Tensor, cell_of: Tensor, v: Tensor | None = None) -> Tensor:
        """Standard deviation of a new target at mapped rows X (n, e) of cells (n,), (n, t).

        The Schur complements v (n,) are given for rows of the fit, as in a fit without them.
        """
        if v is None:
            v = cell_schur_complements(model, X, cell_of, self.ridge)
        return self.noise[cell_of] * (1 + v / self.ridge[cell_of]).sqrt()[:, None]


@dataclass(frozen=True)
class Intervals:
    """Everything that intervals need beside the model.

    Parameters
    ----------
    posterior
        The model's own standard deviation.
    scale_name
        "constant", "posterior" or "learned".
    learned
        The logarithm of a learned scale, less its mean.
    factors
        Of each cell and target, shape (Q, t).
    quantiles
        Of residuals over scale and factor at `LEVELS`, shape (G, t).
    n
        Number of leave-one-out rows; with weights, the equivalent number of equal weights.
    power
        Of the scale.
    equal_tails
        Whether a target is as likely below an interval as above; else intervals are shortest.
    scores
        Of rows set aside; None if none were.
    jackknife
        Leave-one-out fits; None if they were not kept.
    """

    posterior: Posterior
    scale_name: str
    learned: NystromModel | None
    factors: Tensor
    quantiles: Tensor
    n: float
    power: float
    equal_tails: bool
    scores: ConformalScores | None = None
    jackknife: JackknifePlus | None = None

    @property
    def guarantee(self) -> str:
        """Which theorem holds: "none", "split", "cell" or "jackknife+"."""
        if self.jackknife is not None:
            return "jackknife+"
        return "none" if self.scores is None else self.scores.name

    @property
    def smallest_tail(self) -> float:
        """The smallest probability beyond one end that this many rows can estimate."""
        return float(max(LEVELS[0], 1 / (self.n + 1)))

    @property
    def largest_coverage(self) -> float:
        """The largest coverage whose ends this many rows can estimate."""
        if self.jackknife is not None:
            return self.jackknife.largest_coverage
        if self.scores is not None:
            return self.scores.largest_coverage
        return 1 - 2 * self.smallest_tail

    @property
    def held_rows(self) -> int:
        """Rows from which the ends of intervals come."""
        if self.scores is not None:
            return len(self.scores.values)
        return int(self.n) if self.jackknife is None else self.jackknife.n

    @property
    def source(self) -> str:
        """The rows that decide the largest coverage, as text."""
        if self.scores is not None:
            return self.scores.source
        return f"{self.held_rows:,} leave-one-out rows"

    @property
    def needs_complements(self) -> bool:
        """Whether the ends of intervals depend on Schur complements of new rows."""
        return self.jackknife is None and self.learned is None and self.scale_name == "posterior"

    def end_levels(self, coverage: float) -> tuple[float, float]:
        """The levels of the two ends of an interval: equal tails, or the shortest of a few."""
        outside = 1 - coverage
        shares = (0.5,) if self.equal_tails else LOWER_SHARES
        pairs = [(share * outside, 1 - (1 - share) * outside) for share in shares]
        pairs = [(a, b) for a, b in pairs if min(a, 1 - b) >= self.smallest_tail - 1e-12]
        widths = [
            float((self.scaled_quantile(b) - self.scaled_quantile(a)).sum()) for a, b in pairs
        ]
        return pairs[int(np.argmin(widths))]

    def scaled_quantile(self, level: float) -> Tensor:
        """The quantile of the scaled residuals at that level, shape (t,)."""
        position = float(np.interp(level, LEVELS, np.arange(len(LEVELS))))
        low = min(int(position), len(LEVELS) - 2)
        return self.quantiles[low].lerp(self.quantiles[low + 1], position - low)

    def scale(self, model: Model, X: Tensor, cell_of: Tensor, v: Tensor | None = None) -> Tensor:
        """What residuals at mapped rows X (n, e) of cells (n,) are divided by, shape (n, t).

        The Schur complements v (n,) are given for rows of the fit, as in a fit without them.
        """
        scale = self.factors[cell_of]
        if self.learned is not None:
            scale = scale * self.learned(X).mul_(self.power).exp_()
        elif self.scale_name == "posterior":
            scale = scale * self.posterior.std(model, X, cell_of, v) ** self.power
        return scale

    def quantile_offsets(
        self, model: Model, X: Tensor, levels: tuple[float, ...], v: Tensor | None = None
    ) -> Tensor:
        """Quantiles of a new target less its prediction, at mapped rows X (n, e), (n, t, l)."""
        cell_of = model.assign(X)
        scale = self.scale(model, X, cell_of, v)[:, :, None]
        if self.scores is not None:
            return scale * self.scores.quantiles(levels)[self.scores.group_of_cell[cell_of]]
        return scale * torch.stack([self.scaled_quantile(level) for level in levels], 1)

    def end_offsets(
        self, model: Model, X: Tensor, coverage: float, v: Tensor | None = None
    ) -> Tensor:
        """The ends of intervals less the predictions, at mapped rows X (n, e), (n, t, 2).

        The Schur complements v (n,) are given for rows of the fit, as in a fit without them.
        """
        if self.jackknife is not None:
            return self.jackknife.end_offsets(model, X, coverage, leave_out=v is not None)
        if self.scores is None:
            return self.quantile_offsets(model, X, self.end_levels(coverage), v)
        cell_of = model.assign(X)
        ends = self.scores.ends(coverage, self.shape(coverage))[self.scores.group_of_cell[cell_of]]
        return self.scale(model, X, cell_of, v)[:, :, None] * ends

    def shape(self, coverage: float) -> Tensor:
        """Lower end, median and upper end of scaled leave-one-out residuals, shape (t, 3)."""
        low, high = self.end_levels(min(coverage, 1 - 2 * self.smallest_tail))
        return torch.stack([self.scaled_quantile(level) for level in (low, 0.5, high)], 1)


def learn_intervals(
    model: Model,
    left_out: LeaveOneOutRows,
    predicted: Tensor,
    *,
    ridge: float,
    sizes: list[int],
    n_threads: int,
    seed: int,
    scale: str = "auto",
    n_choices: int = 0,
) -> tuple[Intervals, list[dict[str, object]], Tensor]:
    """Intervals from leave-one-out rows, and width and likelihood of each scale compared.

    Parameters
    ----------
    predicted
        The prediction of each row without it, shape (h, t).
    ridge
        lambda n of the model.
    sizes
        Rows of the cells.
    scale
        "constant", "posterior", "learned", or "auto" for the most likely one.
    n_choices
        Numbers that were chosen on these rows, such as the penalty.

    Returns
    -------
    intervals
        With the best scale.
    tried
        Of each scale its power, the width of its intervals over those of a constant, and how much
        higher its logarithmic likelihood is.
    v
        The Schur complement of each row in a fit without it, shape (h,).
    """
    R = left_out.Y - predicted  # (h, t)
    w = left_out.weights
    posterior, v = learn_posterior(model, left_out, R, ridge, sizes, n_threads)
    logs, learned = {"constant": torch.zeros_like(R)}, None
    if len(R) >= SCALE_ROWS:
        logs["posterior"] = posterior.std(model, left_out.X, left_out.cell, v).log()
        n_folds = FOLDS_OF_FEW if len(R) < FEW_TO_FOLD else FOLDS
        # By content, so that centres and folds do not depend on the order of rows.
        place = canonical_order(ArraySource(left_out.X, left_out.Y))  # (h,)
        fold = left_out.assign_folds(n_folds, seed, place)[place.cpu().numpy()]
        learned, values = learn_scale(
            model.kernel, left_out.X[place], R[place], w[place], fold, n_threads, seed
        )
        logs["learned"] = torch.empty_like(R).index_copy_(0, place, values)
    tables = {
        (name, power): scaled_quantiles(R, (power * log).exp(), left_out, len(sizes))
        for name, log in logs.items()
        for power in ((1.0,) if name == "constant" else POWERS)
    }
    constant = tables["constant", 1.0]
    tried: list[dict[str, object]] = []
    gains = {}
    for (name, power), table in tables.items():
        width = float((table.width / constant.width.clamp_min(1e-300)).mean())
        gain = float((table.likelihood - constant.likelihood).mean())
        tried.append({"scale": name, "power": power, "width": width, "likelihood": gain})
        if scale in ("auto", name):
            gains[name, power] = gain
    best, power = max(gains, key=lambda which: gains[which])
    learned_scale = learned if best == "learned" else None
    n = float(w.sum() ** 2 / w.square().sum())
    factors, quantiles, *_ = tables[best, power]
    quantiles = quantiles * choice_inflation(n, n_choices)
    # Of few rows the shortest interval is the one that chance left too short.
    few = n < FEW_ROWS
    return Intervals(posterior, best, learned_scale, factors, quantiles, n, power, few), tried, v


def calibrate_intervals(
    intervals: Intervals,
    model: Model,
    rows: ArraySource,
    sizes: list[int],
    name: str,
    n_threads: int,
) -> Intervals:
    """Intervals whose ends are exact quantiles of rows that nothing before has seen.

    `sizes` are the rows of the cells, by which small cells are grouped for the name "cell".
    """
    X, Y, w = rows.block(slice(None))
    predicted = model.predict(X, n_threads)

    def scales(part: Tensor) -> Tensor:
        mapped = model.map_rows(part)
        return intervals.scale(model, mapped, model.assign(mapped))

    R = (Y.to(predicted) - predicted) / model.apply_in_chunks(scales, X, n_threads)  # (h, t)
    w = R.new_ones(len(R)) if w is None else w.to(R)
    cell = model.route(X)
    group_of_cell = torch.zeros(len(sizes), dtype=torch.int64, device=cell.device)
    if name == "cell":
        expected = np.array(sizes) * (len(R) / sum(sizes))
        group_of_cell = group_cells(model.centroids, expected, GROUP_ROWS)
    return replace(intervals, scores=calibrate(name, R, w, cell, group_of_cell))


def regression_rows(
    model: Model,
    left_out: LeaveOneOutRows,
    predicted: Tensor,
    intervals: Intervals,
    v: Tensor,
    seed: int,
) -> dict[str, NDArray[Any]]:
    """Cell, truth, prediction (h, t) and ends of the 0.9 interval of some rows.

    `v` are the Schur complements of the rows in fits without them, (h,).
    """
    kept = left_out.draw_positions(DIAGNOSTIC_ROWS, seed)
    mean = predicted[kept]
    columns = {"cell": left_out.cell[kept], "truth": left_out.Y[kept], "predicted": mean}
    if intervals.largest_coverage >= COVERAGE:
        off = intervals.end_offsets(model, left_out.X[kept], COVERAGE, v[kept])  # (h, t, 2)
        columns |= {"lower": mean + off[..., 0], "upper": mean + off[..., 1]}
    return {name: values.cpu().numpy() for name, values in columns.items()}


def choice_inflation(n: float, k: int) -> float:
    """How much larger errors of new rows are than of n rows on which k numbers were chosen.

    Akaike's final prediction error (1969): mean squares are as n + k to n - k. Fits of 20 and 40
    rows that chose kernel, lengthscale and penalty covered 0.85 for 0.9 without it.
    """
    return float(np.sqrt((n + k) / max(n - k, (n + k) / LARGEST_INFLATION**2)))


def learn_posterior(
    model: Model,
    left_out: LeaveOneOutRows,
    R: Tensor,
    ridge: float,
    sizes: list[int],
    n_threads: int,
) -> tuple[Posterior, Tensor]:
    """The noise of each cell from residuals R (h, t), and Schur complements of their rows, (h,)."""
    w, Q = left_out.weights, len(model.centroids)
    n_q = torch.tensor(sizes, dtype=torch.float64)
    m_q = torch.tensor([len(Z) for Z in model.centers], dtype=torch.float64)
    ridges = (ridge * m_q / n_q.clamp_min(1)).clamp_min(1e-12).to(R.device)
    v = left_out_complements(model, left_out, ridges, n_threads)
    u = (1 + v / ridges[left_out.cell]).sqrt()  # (h,)
    squares = w[:, None] * (R / u[:, None]).square()
    total = squares.sum(0) / w.sum()  # (t,)
    rows = R.new_zeros(Q).index_add_(0, left_out.cell, w)
    sums = R.new_zeros(Q, R.shape[1]).index_add_(0, left_out.cell, squares)
    noise = ((sums + NOISE_ROWS * total) / (rows + NOISE_ROWS)[:, None]).sqrt()
    posterior = Posterior(noise.clamp_min(torch.finfo(R.dtype).tiny ** 0.5), ridges)
    return posterior, v


def left_out_complements(
    model: Model, left_out: LeaveOneOutRows, noise: Tensor, n_threads: int
) -> Tensor:
    """Schur complements of leave-one-out rows in fits without them, with that noise (Q,), (h,).

    Without the other rows of their group, too. With those rows as neighbours the model seemed to
    know what it had to predict in regions without data: on the satellite map, whose test rows are
    such regions, intervals of 0.9 from blocks of rows held 0.685.
    """
    apart = left_out.apart
    if apart is not None:
        X, same = apart.X, noise.mean().expand(len(apart.model.centroids))
        return cell_schur_complements(apart.model, X, apart.model.assign(X), same, False, n_threads)
    groups = left_out.groups
    if groups is None:
        X, cell = left_out.X, left_out.cell
        return cell_schur_complements(model, X, cell, noise, True, n_threads)

    def complements(q: int, index: Tensor) -> Tensor:
        X, Z, group = left_out.X[index], model.centers[q], groups[index]
        _, number = torch.unique(torch.cat([X, Z.to(X)]), dim=0, return_inverse=True)
        v = torch.empty(len(X), dtype=torch.float64, device=X.device)
        for g in group.unique().tolist():  # type: ignore[no-untyped-call]
            own = group == g
            others = Z[~torch.isin(number[len(X) :], number[: len(X)][own])]
            v[own] = schur_complement(model.kernel, X[own], others, float(noise[q]), False)
        return v

    return compute_by_cell(complements, left_out.cell, len(model.centroids), n_threads)


def learn_scale(
    kernel: Kernel,
    X: Tensor,
    R: Tensor,
    w: Tensor,
    fold: NDArray[np.int64],
    n_threads: int,
    seed: int,
) -> tuple[NystromModel, Tensor]:
    """The logarithm of |R| (n, t), less its mean, as a smooth function of mapped rows X (n, e).

    And its values at each row (n, t) as learned without the rows of its fold (n,).
    """
    size = R.abs()
    least = (SMALLEST_RESIDUAL * size.median(0).values).clamp_min(1e-300)
    Y = torch.maximum(size, least).log()
    Y = Y - (w @ Y) / w.sum()
    m = max(1, min(SCALE_CENTERS, len(X) // ROWS_A_CENTER))
    rows = ArraySource(X, Y.to(X), w.to(X))
    return cross_fit_nystrom_model(kernel, rows, m, fold, n_threads, seed)


class ScaledQuantiles(NamedTuple):
    """Quantiles of residuals over a scale, and how good the intervals from them are."""

    factors: Tensor  # (Q, t)  of cells
    quantiles: Tensor  # (G, t)
    width: Tensor  # (t,)  mean, at `COMPARED_COVERAGE`
    likelihood: Tensor  # (t,)  mean logarithm, of Laplace noise with this scale


def scaled_quantiles(
    R: Tensor, s: Tensor, left_out: LeaveOneOutRows, n_cells: int
) -> ScaledQuantiles:
    """Quantiles of residuals R over scales s (h, t) and factors of cells.

    The likelihood counts errors of the scale relative to it, so that quiet rows matter as much as
    loud ones.
    """
    w, cell = left_out.weights, left_out.cell
    factors = cell_factors(R / s, w, cell, n_cells)
    s = s * factors[cell]
    values, weights = (R / s).cpu().numpy(), w.cpu().numpy()
    own = 1.0 if left_out.groups is None else float(w.sum()) / left_out.n_groups
    columns = [conformal_quantiles(z, weights, own) for z in values.T]
    quantiles = torch.from_numpy(np.stack(columns, 1)).to(R.device)
    below = (1 - COMPARED_COVERAGE) / 2
    low, high = np.searchsorted(LEVELS, [below - 1e-9, 1 - below - 1e-9])
    mean = (w @ s) / w.sum()  # (t,)
    width = (quantiles[high] - quantiles[low]) * mean
    size = (w @ (R / s).abs()) / w.sum()
    likelihood = -(w @ s.log()) / w.sum() - size.clamp_min(1e-300).log()
    return ScaledQuantiles(factors, quantiles, width, likelihood)


def cell_factors(Z: Tensor, w: Tensor, cell: Tensor, n_cells: int) -> Tensor:
    """How much larger scaled residuals Z (h, t) are in each cell than in all, shape (Q, t)."""
    sizes, weights = Z.abs().cpu().numpy(), w.cpu().numpy()

    def high_quantile(sizes: Array, w: Array) -> Array:  # (n, t) -> (t,), positive
        order = np.argsort(sizes, 0)
        total = np.cumsum(w[order], 0)  # (n, t)
        rank = (total < FACTOR_LEVEL * total[-1]).sum(0).clip(0, len(sizes) - 1)  # (t,)
        values: Array = np.take_along_axis(sizes, order, 0)[rank, range(sizes.shape[1])]
        return values.clip(1e-150)

    of_all = high_quantile(sizes, weights)
    ends = np.cumsum(np.bincount(cell.cpu().numpy(), minlength=n_cells))
    factors = np.ones((n_cells, sizes.shape[1]))
    for q, rows in enumerate(np.split(np.arange(len(sizes)), ends[:-1])):
        if len(rows):
            n_q = weights[rows].sum()
            share = n_q / (n_q + FACTOR_ROWS)
            factors[q] = (high_quantile(sizes[rows], weights[rows]) / of_all) ** share
    return torch.from_numpy(factors).to(Z.device)


def conformal_quantiles(z: Array, w: Array, own: float = 1.0) -> Array:
    """Quantiles at all levels, shape (G,), moved outwards by what is new, of weight `own`.

    Above one half it is the least value below which there are enough rows even if the new row is
    above it; below one half the same from the other side. Where whole groups are left out a new
    group is new, not only a row of it.
    """
    order = np.argsort(z)
    z, total = z[order], np.cumsum(w[order])
    more = total[-1] + own
    up = np.searchsorted(total, LEVELS * more - 1e-9)
    below = np.cumsum(w[order][::-1])
    down = len(z) - 1 - np.searchsorted(below, (1 - LEVELS) * more - 1e-9)
    quantiles: Array = z[np.where(LEVELS > 0.5, up, down).clip(0, len(z) - 1)]
    return quantiles


def novelty(model: Model, X: Tensor) -> Tensor:
    """The share of mapped rows X (n, e) outside the span of their cell's nearest centres, (n,).

    Squared norms in feature space: 0 at a centre, near 1 far from all of them.
    """
    left = cell_schur_complements(model, X, model.assign(X), torch.zeros(len(model.centroids)))
    return relative_to_norm(model.kernel, left, X)


def novelty_and_complements(model: Model, X: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """Novelty of mapped rows X (n, e), and Schur complements with that ridge (Q,), both (n,).

    They have neighbours and kernel values in common, which take two thirds of the time.
    """

    def complements(q: int, rows: Tensor) -> Tensor:
        noises = (0.0, float(ridge[q]))
        return schur_complements(model.kernel, X[rows], model.centers[q], noises, False)

    cell_of, n_cells = model.assign(X), len(model.centroids)
    left, v = compute_by_cell(complements, cell_of, n_cells, 1, n_values=2).unbind(1)
    return relative_to_norm(model.kernel, left, X), v


def novelty_of_centers(model: Model, count: int, n_threads: int = 1) -> Array:
    """The novelty of at most so many centres to the other centres of their cell, shape (r,).

    Centres are rows drawn at random, in each cell in proportion to its rows. So it is distributed
    as the novelty of new rows that are like those of the fit.
    """
    counts = torch.tensor([len(Z) for Z in model.centers])  # (Q,)
    drawn = draw_indices(int(counts.sum()), count, 0).sort().values  # (r,)
    cell_of = torch.repeat_interleave(counts)[drawn]
    place = drawn - (counts.cumsum(0) - counts)[cell_of]
    X = torch.stack(
        [model.centers[q][i] for q, i in zip(cell_of.tolist(), place.tolist(), strict=True)]
    )
    noise, cell_of = torch.zeros(len(counts)), cell_of.to(X.device)
    left = cell_schur_complements(model, X, cell_of, noise, True, n_threads)
    out: Array = relative_to_norm(model.kernel, left, X).cpu().numpy()
    return out


def relative_to_norm(kernel: Kernel, left: Tensor, X: Tensor) -> Tensor:
    """Schur complements (n,) over the squared norms of mapped rows X (n, e), from 0 to 1."""
    return (left / kernel.diag(X.double()).clamp_min(1e-300)).clamp_(0, 1)


def cell_schur_complements(
    model: Model,
    X: Tensor,
    cell_of: Tensor,
    noise: Tensor,
    leave_out: bool = False,
    n_threads: int = 1,
) -> Tensor:
    """Schur complements of mapped rows X (n, e) in cells (n,) with that noise (Q,), shape (n,)."""

    def complements(q: int, rows: Tensor) -> Tensor:
        return schur_complement(model.kernel, X[rows], model.centers[q], float(noise[q]), leave_out)

    return compute_by_cell(complements, cell_of, len(model.centroids), n_threads)


def compute_by_cell(
    function: Callable[[int, Tensor], Tensor],
    cell_of: Tensor,
    n_cells: int,
    n_threads: int,
    n_values: int | None = None,
) -> Tensor:
    """function(q, positions) of the rows of each cell, which are in cells (n,), shape (n,).

    If it has several values for each row, the shape is (n, n_values).
    """
    order, counts = group_by_cell(cell_of, n_cells)
    shape = (len(cell_of),) if n_values is None else (len(cell_of), n_values)
    out = torch.empty(shape, dtype=torch.float64, device=cell_of.device)

    def fill(task: tuple[int, Tensor]) -> None:
        q, rows = task
        out[rows] = function(q, rows)

    tasks = [(q, rows) for q, rows in enumerate(torch.split(order, counts)) if len(rows)]
    map_on_threads(fill, tasks, n_threads)
    return out


def schur_complement(kernel: Kernel, X: Tensor, Z: Tensor, noise: float, leave_out: bool) -> Tensor:
    """K(x, x) - k' (K_ZZ + noise)^-1 k of rows X (n, e) and their nearest centres in Z, (n,).

    With `leave_out`, a row that is a centre is not its own neighbour.
    """
    return schur_complements(kernel, X, Z, (noise,), leave_out)[:, 0]


def schur_complements(
    kernel: Kernel, X: Tensor, Z: Tensor, noises: tuple[float, ...], leave_out: bool
) -> Tensor:
    """The same with each of several noises, shape (n, len(noises))."""
    distance, parts = kernel.distance(Z), []
    for rows in torch.split(X, BLOCK_ROWS):
        near, _ = distance.nearest(rows, min(NEIGHBOURS + leave_out, len(Z)))  # (b, k)
        if leave_out:
            itself = (Z[near[:, 0]].to(rows) == rows).all(1)[:, None]
            near = torch.where(itself, near[:, 1:], near[:, :-1])
        around = torch.cat([rows[:, None], Z[near].to(rows)], 1)  # (b, k + 1, e)
        K = kernel.among(around.double())
        parts.append(torch.stack([last_pivot(K.clone(), noise) for noise in noises], 1))
    return torch.cat(parts)


def last_pivot(K: Tensor, noise: float) -> Tensor:
    """The Schur complement of the first row in each of the matrices K (b, k + 1, k + 1), (b,)."""
    own, k, K_ZZ = K[:, 0, 0], K[:, 0, 1:], K[:, 1:, 1:]
    if not k.shape[1]:
        return own
    size = K_ZZ.diagonal(dim1=1, dim2=2).amax(1)[:, None].clamp_min(1e-200)  # (b, 1)
    K_ZZ.diagonal(dim1=1, dim2=2).add_(noise + JITTER * size)
    L = torch.linalg.cholesky_ex(K_ZZ).L
    half = torch.linalg.solve_triangular(L, k[:, :, None], upper=False)[:, :, 0]
    left: Tensor = (own - half.square().sum(1)).clamp_min(0)
    return left
