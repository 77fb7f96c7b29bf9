"""Bounds of predictions: the targets seen in a cell, widened as far as held-out error calls for.

Just outside of the data a kernel model follows the slope of the last rows it has seen, and a small
penalty lets it go far: two houses of ames were predicted at four times any price near them. No
theory gives the width of a bound, so leave-one-out error chooses it.
"""

import math
from typing import Any

import torch
from torch import Tensor

from parkrr.kernels import Radial
from parkrr.park.cells import LeaveOneOutRows
from parkrr.park.model import Model, join_shares

# Of the range of targets, on each side. A wider one needs a smaller error than all before. Not 0,
# because a fit from disk has the range of a sample.
FACTORS = (0.1, 0.25, 0.5, 1.0, math.inf)
FEWEST_ROWS = 30  # of a cell whose own range is used; others have that of all rows
SMALLEST_GAIN = 1e-6  # of the squared error; where no row left out leaves the range, there is none


def choose_limits(
    model: Model, left_out: LeaveOneOutRows, n_threads: int
) -> tuple[Tensor | None, list[dict[str, Any]]]:
    """Limits (2, Q, t) of the predictions of each cell, None for none, and what was tried.

    The factor is chosen on leave-one-out rows, where the range of a row is that of the others. The
    range to which it is applied has the predictions at centres, too: they are more.
    """
    # A linear or polynomial kernel is chosen for its slope, beyond the data, too.
    if len(left_out.Y) < FEWEST_ROWS or not isinstance(model.kernel, Radial):
        return None, []
    cell, shares, n_cells = left_out.cell, model.cell_shares(left_out.X), len(model.centroids)
    seen, others = target_ranges(left_out.Y, cell, n_cells)  # (2, Q, t), (2, h, t)
    own = left_out.own_shares(shares)[:, None]  # (h, 1)
    ranges = join_shares(seen, shares, len(cell)) + own * (others - seen[:, cell])  # (2, h, t)
    predicted = left_out.free_predictions(model, n_threads, shares)  # (h, t)
    w = left_out.weights[:, None]
    tried, best, least = [], FACTORS[0], math.inf
    for factor in FACTORS:
        low, high = widen(ranges, factor)
        error = float((w * (predicted.clamp(low, high) - left_out.Y).square()).mean())
        name = "free" if math.isinf(factor) else f"range + {factor:g} of it on each side"
        tried.append({"step": "extrapolation", "name": name, "error": math.sqrt(error)})
        if error < (1 - SMALLEST_GAIN) * least:
            best, least = factor, error
    if math.isinf(best):
        return None, tried
    centers = torch.cat([Z.to(left_out.X) for Z in model.centers])
    sizes = torch.tensor([len(Z) for Z in model.centers], device=cell.device)
    fitted = model.replace_limits(None).evaluate_pieces(centers, n_threads)  # (m, t)
    Y, both = torch.cat([left_out.Y, fitted]), torch.cat([cell, torch.repeat_interleave(sizes)])
    return widen(target_ranges(Y, both, n_cells)[0], best), tried


def widen(ranges: Tensor, factor: float) -> Tensor:
    """Ranges (2, ..., t), longer by a multiple of their length on each side."""
    low, high = ranges
    # Also a range of length zero is without limits then.
    margin = factor * (high - low) if math.isfinite(factor) else torch.full_like(low, math.inf)
    return torch.stack([low - margin, high + margin])


def target_ranges(Y: Tensor, cell: Tensor, n_cells: int) -> tuple[Tensor, Tensor]:
    """The smallest and largest target of each cell (2, Q, t), and for each row of Y (h, t) those
    of the other rows of its cell (2, h, t).

    A cell with few rows has the range of all rows.
    """
    few = torch.bincount(cell, minlength=n_cells) < FEWEST_ROWS  # (Q,)
    everything = torch.zeros_like(cell)
    ends, others = [], []
    for sign in (-1.0, 1.0):
        own, own_others = largest(sign * Y, cell, n_cells)
        whole, whole_others = largest(sign * Y, everything, 1)
        ends.append(sign * torch.where(few[:, None], whole, own))
        others.append(sign * torch.where(few[cell, None], whole_others, own_others))
    return torch.stack(ends), torch.stack(others)


def largest(Y: Tensor, group: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """The largest of each column of Y (h, t) by group (Q, t), and without each row (h, t)."""
    index = group[:, None].expand_as(Y)
    none = Y.new_full((n_groups, Y.shape[1]), -math.inf)
    first = none.scatter_reduce(0, index, Y, "amax")
    is_first = first[group] == Y
    count = torch.zeros_like(first).scatter_reduce(0, index, is_first.to(Y), "sum")
    second = none.scatter_reduce(0, index, Y.masked_fill(is_first, -math.inf), "amax")
    second = torch.where(count > 1, first, second)
    return first, torch.where(is_first, second[group], first[group])


def include_targets(limits: Tensor, Y: Tensor, cell: Tensor) -> Tensor:
    """Limits (2, Q, t) that let the targets Y (n, t) of new rows through."""
    index = cell[:, None].expand_as(Y)
    low = limits[0].scatter_reduce(0, index, Y, "amin")
    return torch.stack([low, limits[1].scatter_reduce(0, index, Y, "amax")])
