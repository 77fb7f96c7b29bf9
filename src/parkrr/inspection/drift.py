"""Whether new rows are like the rows of the fit: their novelty, and the cells they belong to.

Both are compared with the fit by a test, and by the size of the difference: of a million rows a
test finds differences that matter to nobody.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from parkrr.errors import ParameterError
from parkrr.inspection.diagnostics import FittedEstimator, check_fitted
from parkrr.uncertainty import novelty_of_centers

REFERENCE_ROWS = 10_000  # of the fit, whose novelty is computed without themselves
NOVEL = 0.01  # share of them that counts as novel
LARGE_NOVEL_SHARE = 0.02  # of new rows
LARGE_MOVED_SHARE = 0.05  # of new rows, that would have to be in other cells
LEAST_EXPECTED = 5.0  # rows of a cell, for which the statistic has the chi-squared distribution


@dataclass(frozen=True)
class Drift:
    """How unlike the rows of the fit some rows are; print it for a summary.

    Parameters
    ----------
    rows
        Number of new rows.
    novel_share
        Share of new rows that are more novel than 99 % of the training rows; 0.01 is expected.
    novel_pvalue
        Probability of so large a share if new rows are drawn as training rows are.
    moved_share
        Half of the sum of absolute differences between the shares of cells among new rows and
        among training rows: the share of rows that would have to be in other cells.
    statistic
        Chi-squared statistic of these shares. Cells that expect fewer than five rows count as
        one.
    degrees
        Its degrees of freedom; 0 if there is only one cell, which nothing can be compared in.
    cells_pvalue
        Probability of so large a statistic if new rows are drawn as training rows are.
    alpha
        The level of both tests together.
    cell_shares
        Share of each cell among training rows and among new rows.
    """

    rows: int
    novel_share: float
    novel_pvalue: float
    moved_share: float
    statistic: float
    degrees: int
    cells_pvalue: float
    alpha: float
    cell_shares: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    @property
    def is_novel(self) -> bool:
        """Whether more rows than chance allows, and more than 2 %, are novel."""
        return self.novel_pvalue < self.alpha / 2 and self.novel_share > LARGE_NOVEL_SHARE

    @property
    def has_moved(self) -> bool:
        """Whether shares of cells differ by more than chance allows, and by more than 5 %."""
        return self.cells_pvalue < self.alpha / 2 and self.moved_share > LARGE_MOVED_SHARE

    @property
    def has_drifted(self) -> bool:
        """Whether the rows are unlike those of the fit, in either way."""
        return self.is_novel or self.has_moved

    def __str__(self) -> str:
        """One paragraph that ends with the verdict."""
        novel = (
            f"{self.rows:,} rows: {self.novel_share:.1%} are more novel than 99% of the training "
            f"rows (p {self.novel_pvalue:.2g})."
        )
        cells = "There is one cell, so shares of cells cannot be compared."
        if self.degrees:
            cells = (
                f"{self.moved_share:.1%} would have to be in other cells for the shares of the fit "
                f"(chi-squared {self.statistic:.1f}, {self.degrees} degrees of freedom, "
                f"p {self.cells_pvalue:.2g})."
            )
        return f"{novel} {cells} {self.verdict}"

    @property
    def verdict(self) -> str:
        """Whether the rows have drifted and in which way, as a sentence."""
        ways = ["rows are novel"] * self.is_novel + ["shares of cells differ"] * self.has_moved
        return f"Drift: {' and '.join(ways)}." if ways else "No drift."


def drift(model: FittedEstimator, X: Any, alpha: float = 0.01) -> Drift:
    """Test whether rows X (n, d) are like the rows of the fit.

    The novelty of new rows is compared with that of up to 10,000 training rows, each computed
    without the row itself, and the shares of cells with those of the fit. The result is a drift
    if a difference is larger than chance allows and large enough to matter: more than 2 % of the
    rows are novel, or more than 5 % would have to be in other cells. Targets are not used: it
    finds other rows, not another relation between rows and targets. Training rows are known by
    the centres of the model, which are a random sample of them.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator, which may come from a file.
    X : array-like or frame of shape (n, d)
        New rows, drawn independently of each other; a few hundred or more.
    alpha : float, default=0.01
        Probability of finding a drift in rows that are drawn as those of the fit, at most; above
        0 and below 1.

    Returns
    -------
    Drift
        Shares, statistics, p-values, and whether the rows have drifted.

    Raises
    ------
    ParameterError
        If `model` is not fitted, or `alpha` is not valid.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0, random_state=0)
    >>> model = model.fit(X[:2000], np.sin(X[:2000, 0]))
    >>> inspection.drift(model, X[2000:]).has_drifted
    False
    >>> inspection.drift(model, X[2000:] + [1.0, 0.0]).has_drifted
    True
    """
    if not 0 < alpha < 1:
        raise ParameterError(f"alpha must be above 0 and below 1, got {alpha!r}; 0.01 is usual")
    rows, inner = check_fitted(model)._rows(X), model.model_
    novelty = model._predictor().novelty(rows, model._cores)  # (n,)
    known = novelty_of_centers(inner, REFERENCE_ROWS, model._cores)  # (r,)
    cells = inner.apply_in_chunks(inner.route, rows, model._cores).cpu().numpy()
    before = np.array([cell.rows for cell in model.report_])  # (Q,)
    after = np.bincount(cells, minlength=len(before))
    shares = np.stack([before / before.sum(), after / after.sum()], 1)  # (Q, 2)
    novel_share, novel_pvalue = compare_novelty(novelty, known)
    statistic, degrees = compare_shares(before, after)
    return Drift(
        rows=len(rows),
        novel_share=novel_share,
        novel_pvalue=novel_pvalue,
        moved_share=float(np.abs(shares[:, 1] - shares[:, 0]).sum() / 2),
        statistic=statistic,
        degrees=degrees,
        cells_pvalue=float(stats.chi2.sf(statistic, degrees)) if degrees else 1.0,
        alpha=alpha,
        cell_shares=tuple((old, new) for old, new in shares.tolist()),
    )


def compare_novelty(
    novelty: NDArray[np.float64], known: NDArray[np.float64]
) -> tuple[float, float]:
    """The share of rows (n,) more novel than 99 % of known ones (r,), and its p-value.

    If all n + r rows are drawn alike, the number of new rows above the k-th largest of the known
    ones has a beta-binomial distribution, whatever that of novelty is. Equal values make it fewer.
    """
    k = max(1, round(NOVEL * (len(known) + 1)))
    threshold = np.sort(known)[-k]
    count, n = int((novelty > threshold).sum()), len(novelty)
    return count / n, float(stats.betabinom.sf(count - 1, n, k, len(known) + 1 - k))


def compare_shares(before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[float, int]:
    """The chi-squared statistic of counts in cells (Q,) of two samples, and its degrees of freedom.

    Cells that expect few rows, by their share of the first sample, count as one. Which these are
    does not depend on the second sample, or the statistic would have another distribution.
    """
    expected = before * min(1.0, after.sum() / before.sum())  # (Q,)  in the smaller sample
    order = np.argsort(expected)
    # The first cells in order that have enough rows together, or all that have too few by
    # themselves if these are more.
    together = np.searchsorted(np.cumsum(expected[order]), LEAST_EXPECTED) + 1
    n_joined = max(int(together), int((expected < LEAST_EXPECTED).sum()))
    counts = np.stack([before[order], after[order]])  # (2, Q)
    table = np.column_stack([counts[:, :n_joined].sum(1), counts[:, n_joined:]])  # (2, groups)
    table = table[:, table.sum(0) > 0]
    mean = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    return float(((table - mean) ** 2 / mean).sum()), table.shape[1] - 1
