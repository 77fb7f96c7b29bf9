"""Scores as probabilities, learned on leave-one-out rows.

Three maps are compared by log-loss: one factor for all scores (temperature), a factor and an
offset for each class (Platt), and any increasing function (isotonic). The one that is best on rows
it was not fitted to is fitted again to all of them. With too few rows of a class it is one factor
for all scores, and offsets with which the mean probability of every class is its share of the rows
(base rate). Start at :func:`learn_calibration`.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.isotonic import IsotonicRegression

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
FOLDS = 4
VALUES = 2**21  # scores that are used: all rows of two classes, 10,000 of 200
PLATT_ROWS = 20  # per class; with fewer the factor of a class is noise
BASE_RATE_STEPS = 50  # each brings mean probabilities closer to shares; a few are enough
BASE_RATE_PENALTY = 1.0  # rows: what keeps the factor near 1 where few rows of a class decide it
COMPARED_ROWS = 30  # with fewer rows one factor is all that is learned
ISOTONIC_ROWS = 1000  # per class, at least; with fewer the shape is noise
ISOTONIC_CLASSES = 20  # at most; with more, each fit has few rows
SMOOTHING = 1.0  # rows, half of them of the class, in every bin, so that none is at 0 or 1
OFFSET_PENALTY = 1e-2  # rows; keeps factors, and offsets of classes without rows, finite


@final
@dataclass(frozen=True)
class Affine:
    """Probabilities are the softmax of a factor times scores, plus offsets.

    Two classes have one score, and its logistic function.

    Parameters
    ----------
    factor, offset
        Shape (t,) each.
    name
        "temperature" if there is one factor and no offset, "base rate" if there is one factor and
        offsets keep the share of each class, else "platt".
    """

    factor: Array
    offset: Array
    name: str

    def decide(self, F: Array) -> Array:
        """Scores (n, t) whose sign, or largest entry, is the class."""
        return F * self.factor + self.offset

    def probabilities(self, F: Array) -> Array:
        """The probability of each class, shape (n, k)."""
        D = self.decide(F)
        if D.shape[1] == 1:
            D = np.concatenate([np.zeros_like(D), D], 1)
        P: Array = softmax(D, axis=1)
        return P

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for a model file."""
        factor, offset = self.factor.tolist(), self.offset.tolist()
        return {"name": self.name, "factor": factor, "offset": offset}


@final
@dataclass(frozen=True)
class Isotonic:
    """Probabilities are increasing functions of the score of each class, over their sum.

    Parameters
    ----------
    scores, values
        The points through which each function goes, straight in between. One function for two
        classes.
    """

    scores: list[Array]
    values: list[Array]
    name = "isotonic"

    def decide(self, F: Array) -> Array:
        """Two classes: the score less the one at which both are as likely; else probabilities."""
        if F.shape[1] > 1:
            return self.probabilities(F)
        f = self.scores[0]
        shifted: Array = F.clip(f[0], f[-1]) - self.equal_score
        return shifted

    @property
    def equal_score(self) -> float:
        """Of two classes, the score above which the second is more likely."""
        f, p = self.scores[0], self.values[0]
        if p[-1] <= 0.5:
            return float(f[-1])
        if p[0] > 0.5:
            return float(np.nextafter(f[0], -np.inf))
        return float(np.interp(0.5, p, f))

    def probabilities(self, F: Array) -> Array:
        """The probability of each class, shape (n, k)."""
        curves = zip(F.T, self.scores, self.values, strict=True)
        P = np.stack([np.interp(f, scores, values) for f, scores, values in curves], 1)
        if F.shape[1] == 1:
            return np.concatenate([1 - P, P], 1)
        shares: Array = P / P.sum(1, keepdims=True)
        return shares

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for a model file."""
        scores, values = ([a.tolist() for a in arrays] for arrays in (self.scores, self.values))
        return {"name": self.name, "scores": scores, "values": values}


Calibration: TypeAlias = Affine | Isotonic


def calibration_from_dict(data: dict[str, Any]) -> Calibration:
    """The calibration that `to_dict` describes."""
    if data["name"] == Isotonic.name:
        parts = ([np.array(a) for a in data[key]] for key in ("scores", "values"))
        return Isotonic(*parts)
    return Affine(np.array(data["factor"]), np.array(data["offset"]), data["name"])


def learn_calibration(
    F: Array, labels: Labels, w: Array, seed: int
) -> tuple[Calibration, dict[str, float]]:
    """The best map from scores F (h, t) to probabilities, and the log-loss of each.

    `labels` (h,) are numbers of classes, `w` (h,) weights of mean one, by which classes have the
    shares that they have among all rows.
    """
    from sklearn.metrics import log_loss  # noqa: PLC0415 - slow to import

    n_classes, most = max(2, F.shape[1]), max(1, VALUES // F.shape[1])
    order = np.random.default_rng(seed).permutation(len(F))
    rank = rank_within(labels[order])
    if len(F) > most:  # as many of each class, rare ones in full, with the weight of all
        drawn = np.argsort(rank, kind="stable")[:most]
        order, rank = order[drawn], rank[drawn]
        kept = np.bincount(labels[order], w[order], n_classes).clip(1e-300)
        w = w * (np.bincount(labels, w, n_classes) / kept)[labels]
    F, labels, w = F[order], labels[order], w[order]
    counts = np.bincount(labels, minlength=n_classes)
    names = ["temperature"]
    # Nothing is known of a class without rows, which updates may bring.
    if counts[counts > 0].min() < PLATT_ROWS and len(F) >= COMPARED_ROWS:
        names = ["base rate"]
    if counts.min() >= PLATT_ROWS or (n_classes > 2 and len(F) >= PLATT_ROWS * n_classes):
        names.append("platt")
    if len(counts) <= ISOTONIC_CLASSES and counts.min() >= ISOTONIC_ROWS:
        names.append("isotonic")
    losses = {}
    if len(F) >= COMPARED_ROWS:
        fold, P = np.empty(len(F), dtype=np.int64), np.empty((len(F), len(counts)))
        # In turn over the rows of one class after the other: classes of one row share the folds.
        fold[np.lexsort((rank, labels))] = np.arange(len(F)) % FOLDS
        for name in names:
            for k in range(FOLDS):
                train, test = fold != k, fold == k
                calibration = fit_calibration(name, F[train], labels[train], w[train])
                P[test] = calibration.probabilities(F[test])
            losses[name] = float(
                log_loss(labels, P, sample_weight=w, labels=np.arange(len(counts)))
            )
    best = min(losses, key=lambda name: losses[name], default="temperature")
    return fit_calibration(best, F, labels, w), losses


def rank_within(labels: Labels) -> Labels:
    """How many rows of the same class come before each, shape (h,)."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank


def fit_calibration(name: str, F: Array, labels: Labels, w: Array) -> Calibration:
    """The map of that kind of least log-loss on these rows."""
    return fit_isotonic(F, labels, w) if name == "isotonic" else fit_affine(name, F, labels, w)


def fit_affine(name: str, F: Array, labels: Labels, w: Array) -> Affine:
    """Factor and offset of least penalized log-loss, by L-BFGS.

    Newton's method would need second derivatives of up to 2,000 numbers. torch.optim imports
    torch's compiler, which took 3 of 4.4 s of the first fit of 800 rows.

    The target of each of fewer than `COMPARED_ROWS` rows is (n_k + 1) / (n_k + 2) for its class k
    of n_k rows (Platt, 1999): where 10 rows were separable, no factor was large enough, and of
    probabilities above 0.99 an eighth were wrong.
    """
    binary, t = F.shape[1] == 1, F.shape[1] if name == "platt" else 1
    n_classes, moved = max(2, F.shape[1]), np.zeros(len(F))  # of the target, to other classes
    if len(F) < COMPARED_ROWS:
        moved = 1 / (np.bincount(labels, minlength=n_classes) + 2)[labels]
    other = moved / (n_classes - 1)
    weights, rows = w[:, None] / w.sum(), np.arange(len(F))
    factor_penalty = BASE_RATE_PENALTY if name == "base rate" else OFFSET_PENALTY

    def loss(parameters: Array) -> tuple[float, Array]:
        """The loss and its slopes by log factors (t,) and offsets, none or one for each score."""
        log_factor, offset = parameters[:t], parameters[t:]
        scaled = F * np.exp(log_factor)
        D = scaled + (offset if len(offset) else 0.0)
        log_P = log_softmax(np.pad(D, ((0, 0), (int(binary), 0))), axis=1)  # (h, classes)
        size = OFFSET_PENALTY * offset @ offset + factor_penalty * log_factor @ log_factor
        R = np.exp(log_P)
        R -= other[:, None]
        R[rows, labels] -= 1 - moved - other
        R = (R * weights)[:, int(binary) :]  # by D, shape of F
        by_factor = np.atleast_1d((R * scaled).sum(0 if t == F.shape[1] else None))
        by_factor += 2 * factor_penalty / len(F) * log_factor
        by_offset = R.sum(0)[: len(offset)] + 2 * OFFSET_PENALTY / len(F) * offset
        fit = (1 - moved - other) * log_P[rows, labels] + other * log_P.sum(1)
        value = size / len(F) - weights[:, 0] @ fit
        return float(value), np.concatenate([by_factor, by_offset])

    start = np.zeros(t + (0 if name == "temperature" else F.shape[1]))
    settings = {"maxiter": 50, "gtol": 1e-10, "ftol": 1e-14}
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", options=settings).x
    offset = solution[t:] if len(solution) > t else np.zeros(F.shape[1])
    fitted = Affine(np.broadcast_to(np.exp(solution[:t]), F.shape[1]).copy(), offset, name)
    return keep_base_rate(fitted, F, labels, w) if name == "base rate" else fitted


def keep_base_rate(fitted: Affine, F: Array, labels: Labels, w: Array) -> Affine:
    """The same with offsets for which the mean probability of each class is its share."""
    n_classes = max(2, F.shape[1])
    shares = (np.bincount(labels, w, n_classes) + SMOOTHING / n_classes) / (w.sum() + SMOOTHING)
    for _ in range(BASE_RATE_STEPS):
        step = np.log(shares) - np.log((w @ fitted.probabilities(F) / w.sum()).clip(1e-300))
        step = step[1:] - step[:1] if F.shape[1] == 1 else step
        fitted = replace(fitted, offset=fitted.offset + step)
        if np.abs(step).max() < 1e-6:
            break
    return fitted


def fit_isotonic(F: Array, labels: Labels, w: Array) -> Isotonic:
    """An increasing function for each score, through means of h^(1/3) bins of rows by score.

    Steps through all rows are noise: log-loss on a holdout is 0.5362 with them, 0.5350 with bins
    and 0.5358 with one factor on HIGGS; on flights 0.2298, 0.2295 and 0.2336.
    """
    scores, values = [], []
    for f, k in zip(F.T, [1] if F.shape[1] == 1 else range(F.shape[1]), strict=True):
        inner = np.linspace(0, 1, max(2, round(len(f) ** (1 / 3))) + 1)[1:-1]
        bins = np.searchsorted(np.unique(np.quantile(f, inner)), f, side="right")
        weight: Array = np.bincount(bins, w).astype(np.float64)
        filled = weight > 0
        x = np.bincount(bins, w * f)[filled] / weight[filled]
        hits = np.bincount(bins, w * (labels == k))[filled]
        share = (hits + SMOOTHING / 2) / (weight[filled] + SMOOTHING)
        apart = np.diff(x, prepend=-np.inf) > 0  # rounding can make two of them equal
        x, share, weight = x[apart], share[apart], weight[filled][apart]
        scores.append(x)
        values.append(IsotonicRegression().fit(x, share, sample_weight=weight).predict(x))
    return Isotonic(scores, values)
