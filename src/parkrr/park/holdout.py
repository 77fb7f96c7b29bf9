"""Rows that judge a model: each with what the model would say had it not seen that row."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parkrr.data import join_blocks
from parkrr.park.cells import CellResult
from parkrr.park.model import Model


@dataclass(frozen=True)
class LeaveOneOutRows:
    """Rows of the fit, each left out in turn.

    Other cells, which may take part in an answer, have never seen the row, nor has the coarse
    level, unless rows are so few that all judge.

    Parameters
    ----------
    X
        Mapped rows, shape (h, e), those of one cell together.
    Y
        Their targets, shape (h, t).
    w
        Their weights, shape (h,), or None.
    cell
        Their cells, in ascending order, shape (h,).
    change
        How much less their own cell would say without them, shape (h, t).
    """

    X: Tensor
    Y: Tensor
    w: Tensor | None
    cell: Tensor
    change: Tensor

    @property
    def weights(self) -> Tensor:
        """How much each of them counts, of mean one, shape (h,)."""
        w = self.Y.new_ones(len(self.Y)) if self.w is None else self.w.double()
        return w / w.mean()

    def predictions(self, model: Model, n_threads: int) -> Tensor:
        """What the model without each of them says of it, shape (h, t)."""
        seen = model.in_runs(model.at, self.X, n_threads)
        return seen - self.own_shares(model)[:, None] * self.change

    def own_shares(self, model: Model) -> Tensor:
        """The share of its own cell in the answer to each row, shape (h,)."""
        answers = model.blend.cell_shares(model.centroid_distances, self.X)
        own = answers.cell == self.cell[answers.row]
        shares = self.change.new_zeros(len(self.X))
        return shares.index_add_(0, answers.row[own], answers.share[own].double())


def join_left_out(model: Model, fitted: Sequence[CellResult], scale: float) -> LeaveOneOutRows:
    """The rows that cells left out, with targets as the user knows them."""
    blocks = [found.rows for found in fitted if found.rows is not None]
    changes = [found.change for found in fitted if found.change is not None]
    X, Y, w = join_blocks(blocks).block(slice(None))
    sizes = [0 if found.rows is None else len(found.rows.X) for found in fitted]
    cell = torch.repeat_interleave(torch.tensor(sizes, device=X.device))
    Y = Y.double() * scale + model.intercept
    if model.coarse is not None:
        Y = Y + model.coarse(X)
    return LeaveOneOutRows(X, Y, w, cell, torch.cat(changes) * scale)
