"""Scores as probabilities, learned on rows left out.

Three maps are compared by log-loss: one factor for all scores (temperature), a factor and an
offset for each class (Platt's), and any increasing function (isotonic). The one that wins on rows
it has not seen is learned once more on all of them. Start at :func:`learn_calibration`.
"""

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

Array = NDArray[np.float64]
FOLDS = 4
VALUES = 2**21  # scores that are looked at: all rows of two classes, 10,000 of 200
PLATT_ROWS = 20  # left out for each class, on average
JUDGED_ROWS = 30  # left out; with fewer one factor is all that is learned
ISOTONIC_ROWS = 1000  # left out for each class, at least; with fewer its shape is noise
ISOTONIC_CLASSES = 20  # at most: the others are one of many small fits
SMOOTHING = 1.0  # rows, half of them of the class, in every run, so that no chance is 0 or 1
OFFSET_PENALTY = 1e-2  # rows; keeps factors, and offsets of classes without rows, finite


class Calibration(Protocol):
    """A map from scores to probabilities."""

    @property
    def name(self) -> str: ...

    def decisions(self, F: Array) -> Array: ...

    def probabilities(self, F: Array) -> Array: ...

    def plain(self) -> dict[str, Any]: ...


@final
@dataclass(frozen=True)
class Affine:
    """Probabilities are the softmax of a factor times scores, plus offsets.

    Of two classes there is one score, and the logistic function of it.

    Parameters
    ----------
    factor, offset
        Shape (t,) each.
    name
        "temperature" if there is one factor and no offset, else "platt".
    """

    factor: Array
    offset: Array
    name: str

    def decisions(self, F: Array) -> Array:
        """Scores whose sign, or largest entry, is the prediction, shape (n, t)."""
        return F * self.factor + self.offset

    def probabilities(self, F: Array) -> Array:
        """Shape (n, k)."""
        return softmax(self.decisions(F))

    def plain(self) -> dict[str, Any]:
        parts = {"factor": self.factor.tolist(), "offset": self.offset.tolist()}
        return {"name": self.name, **parts}


@final
@dataclass(frozen=True)
class Isotonic:
    """Probabilities are increasing functions of the score of each class, over their sum.

    Parameters
    ----------
    scores, values
        Where each function is given, and what it is there; straight in between. One function
        for two classes.
    """

    scores: list[Array]
    values: list[Array]
    name = "isotonic"

    def decisions(self, F: Array) -> Array:
        """Of two classes the score from where the second is likelier; else probabilities."""
        if F.shape[1] > 1:
            return self.probabilities(F)
        shifted: Array = F.clip(self.scores[0][0], self.scores[0][-1]) - self.middle
        return shifted

    @property
    def middle(self) -> float:
        """Of two classes the score beyond which the second is likelier."""
        at, p = self.scores[0], self.values[0]
        if p[-1] <= 0.5:
            return float(at[-1])
        if p[0] > 0.5:
            return float(np.nextafter(at[0], -np.inf))
        return float(np.interp(0.5, p, at))

    def probabilities(self, F: Array) -> Array:
        """Shape (n, k)."""
        pairs = zip(F.T, self.scores, self.values, strict=True)
        P = np.stack([np.interp(f, at, p) for f, at, p in pairs], 1)
        if F.shape[1] == 1:
            return np.concatenate([1 - P, P], 1)
        shares: Array = P / P.sum(1, keepdims=True)
        return shares

    def plain(self) -> dict[str, Any]:
        scores, values = ([a.tolist() for a in arrays] for arrays in (self.scores, self.values))
        return {"name": self.name, "scores": scores, "values": values}


def softmax(D: Array) -> Array:
    """Probabilities (n, k) of scores (n, k), or of one score (n, 1) for the second of two."""
    if D.shape[1] == 1:
        D = np.concatenate([np.zeros_like(D), D], 1)
    E = np.exp(D - D.max(1, keepdims=True))
    P: Array = E / E.sum(1, keepdims=True)
    return P


def log_loss(P: Array, labels: NDArray[np.int64], w: Array) -> float:
    """Mean of -log of the probability (n, k) of the class that it was."""
    own = P[np.arange(len(P)), labels].clip(1e-15)
    return float(-(w @ np.log(own)) / w.sum())


def learn_calibration(
    F: Array, labels: NDArray[np.int64], w: Array, seed: int
) -> tuple[Calibration, dict[str, float]]:
    """The best map from scores F (h, t) to probabilities, and the log-loss of each.

    `labels` (h,) are numbers of classes, `w` (h,) weights of mean one.
    """
    drawn = np.random.default_rng(seed).permutation(len(F))[: max(1, VALUES // F.shape[1])]
    F, labels, w = F[drawn], labels[drawn], w[drawn]  # in an order of their own
    counts = np.bincount(labels, minlength=max(2, F.shape[1]))
    ways = ["temperature"]
    if len(F) >= PLATT_ROWS * len(counts):
        ways.append("platt")
    if len(counts) <= ISOTONIC_CLASSES and counts.min() >= ISOTONIC_ROWS:
        ways.append("isotonic")
    losses = dict.fromkeys(ways if len(F) >= JUDGED_ROWS else (), 0.0)
    fold = np.arange(len(F)) % FOLDS
    for k in range(FOLDS):
        learn, judge = fold != k, fold == k
        for way in losses:
            found = fitted(way, F[learn], labels[learn], w[learn])
            P = found.probabilities(F[judge])
            losses[way] += log_loss(P, labels[judge], w[judge]) * w[judge].sum() / w.sum()
    best = min(losses, key=lambda way: losses[way], default="temperature")
    return fitted(best, F, labels, w), losses


def fitted(way: str, F: Array, labels: NDArray[np.int64], w: Array) -> Calibration:
    """The map of that kind of least log-loss on these rows."""
    return isotonic(F, labels, w) if way == "isotonic" else affine(way, F, labels, w)


def affine(way: str, F: Array, labels: NDArray[np.int64], w: Array) -> Affine:
    """Newton's method would need second derivatives of up to 2,000 numbers; L-BFGS does not."""
    scores, at, weights = (torch.from_numpy(array) for array in (F, labels, w / w.sum()))
    t = 1 if way == "temperature" else F.shape[1]
    factor = torch.zeros(t, dtype=torch.float64, requires_grad=True)  # its logarithm
    offset = torch.zeros(F.shape[1], dtype=torch.float64, requires_grad=way == "platt")
    free = [p for p in (factor, offset) if p.requires_grad]
    search = torch.optim.LBFGS(
        free,
        max_iter=50,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        search.zero_grad()
        D = scores * factor.exp() + offset
        D = torch.cat([torch.zeros_like(D), D], 1) if F.shape[1] == 1 else D
        each = torch.nn.functional.cross_entropy(D, at, reduction="none")
        tied = OFFSET_PENALTY * (offset.square().sum() + factor.square().sum()) / len(F)
        total: Tensor = weights @ each + tied
        total.backward()  # type: ignore[no-untyped-call]
        return total

    with torch.enable_grad():
        search.step(loss)  # type: ignore[no-untyped-call]
    a = factor.detach().exp().expand(F.shape[1]).numpy().copy()
    return Affine(a, offset.detach().numpy().copy(), way)


def isotonic(F: Array, labels: NDArray[np.int64], w: Array) -> Isotonic:
    """An increasing function for each score, through means of runs of rows."""
    classes = [1] if F.shape[1] == 1 else range(F.shape[1])
    scores, values = [], []
    for f, k in zip(F.T, classes, strict=True):
        at, share, weight = means(f, labels == k, w)
        scores.append(at)
        values.append(IsotonicRegression().fit(at, share, sample_weight=weight).predict(at))
    return Isotonic(scores, values)


def means(f: Array, hit: NDArray[np.bool_], w: Array) -> tuple[Array, Array, Array]:
    """Score, share of hits and weight of h^(1/3) runs of rows by score; one more row in each.

    Steps through all rows are noise: log-loss on rows left out is 0.5362 with them, 0.5350 with
    means and 0.5358 with one factor on HIGGS; on flights 0.2298, 0.2295 and 0.2336.
    """
    inner = np.linspace(0, 1, max(2, round(len(f) ** (1 / 3))) + 1)[1:-1]
    run = np.searchsorted(np.unique(np.quantile(f, inner)), f, side="right")
    weight: Array = np.bincount(run, w).astype(np.float64)
    there = weight > 0
    at = np.bincount(run, w * f)[there] / weight[there]
    share = (np.bincount(run, w * hit)[there] + SMOOTHING / 2) / (weight[there] + SMOOTHING)
    apart = np.diff(at, prepend=-np.inf) > 0  # rounding can make two of them one
    return at[apart], share[apart], weight[there][apart]


def calibration_from(data: dict[str, Any]) -> Calibration:
    """The map that plain data describe."""
    if data["name"] == Isotonic.name:
        parts = ([np.array(a) for a in data[key]] for key in ("scores", "values"))
        return Isotonic(*parts)
    return Affine(np.array(data["factor"]), np.array(data["offset"]), data["name"])
