"""Metric search: kernel, penalty and metric of least error in small cells.

One kernel learns the metric by descents (:mod:`.metric_descent`), weights of columns and a matrix.
They, and what the sample search chose, are compared on cells (:mod:`.cell_comparison`), whose
validation rows no descent has seen. The other kernels start from the better of them.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from parkrr.data import ArraySource, Holdout, draw_indices, validation_positions
from parkrr.kernels import FeatureMap, Kernel, Matern, Radial
from parkrr.park import FitSettings, divide_rows, select_centroids
from parkrr.runtime import LocalEngine
from parkrr.tuning.cell_comparison import (
    CELL_ROWS,
    MOST_CELLS,
    CellComparison,
    RidgeError,
    draw_comparison_cells,
)
from parkrr.tuning.column_screening import SCREENED_ROWS, ColumnScreening, divide_sample
from parkrr.tuning.log import METRIC_PART, Candidate, OpenChoices, TuningLog
from parkrr.tuning.metric_descent import (
    BATCH_ROWS,
    FEWEST_ROWS,
    GRADIENT_BATCHES,
    LARGE_BATCHES,
    RATE,
    REFRESH,
    MetricDescent,
    count_batches,
)
from parkrr.tuning.sample_search import search_lengthscale

Result = TypeVar("Result")
FIRST_FAMILY = Matern(nu=1.5)  # that learns the metric, if it is there
JUMPS = 2  # to the average gradient outer product, before the descent proper
JUMP_STEPS = 8  # before each of them
FIRST_STEPS = 16  # after the last of them
# Fewest and most steps that decrease to zero. 1,000 rows of seven data sets had the same error with
# 40 as with 80; 8,000 rows of flights had 0.844 with 80, and 0.817 with 160.
LAST_STEPS = (40, 200)
ROWS_PER_STEP = 40  # so many rows for each of them, in between
FIRST_ROWS = 300  # of the batches of most steps
ROWS_PER_COLUMN = 2  # of these batches: few rows tell too little of many weights
STOP_SHARE = 0.25  # of the last steps, after which a shape of the matrix that is behind stops
# Times the least squared error of batches. At 1.1 hotel rates lost their weights, which were 1.11
# behind in batches and far ahead on cells: 0.205 and 0.183.
BEHIND = 1.3
MANY_CELLS = 600  # to compare on, from which on they are divided on two levels
OTHER_STEPS = 24  # at most, of the other kernels, decreasing to zero
OTHER_SHARE = 0.3  # of the last steps of the first kernel
# On which kernels are compared, of at most BATCH_ROWS rows. Batches of 300 rows favour smooth
# kernels, and more of them do not help: 10,000 rows of kin40k had 1.04 times the error of the
# Gaussian kernel with the Matern 3/2 on 32 of them, 1.02 on 128, and on 16 of 600 rows 0.84. Final
# errors are 0.94.
COMMON_BATCHES = 16
MOST_VALUES = 20_000_000  # of columns to find neighbours among: 160 MB, twice with scores
MATRIX_COLUMNS = 100  # with more, only weights are learned
# Training rows for each entry of a matrix, for which one is learned. With fewer than 2 it was worse
# than weights on six tables of six (2,000 rows of adult 0.135 and 0.096); with 2.4, pol had 0.096
# with a matrix and 0.120 with weights.
ROWS_PER_ENTRY = 2
# For which its error in batches can stop the weights. With fewer a matrix fits its batches too
# well: 2,000 rows of hotel rates lost their weights and had 0.284 instead of 0.244.
ROWS_PER_TRUSTED_ENTRY = 15
# For which a metric is learned, unless you ask for one: five folds of german, with 14, had 0.252
# with weights and 0.204 without.
ROWS_PER_FEATURE = 20
ROWS_PER_SELECTED = 10  # the same, of columns that screening has left
ROWS_PER_SCREENED = 5  # for which columns are screened, in the hope that few are left
FEWEST_SCREENED = 400  # rows from which columns are screened
SCREENING_SHARE = 0.5  # of the time of descents that it may take
SMALLEST_RIDGE = 1e-3  # to start from: below, slopes are flat
FIRST_FACTORS, LAST_FACTORS = (2.0,), (math.sqrt(2.0),)  # between lengthscales
COMPARISONS, DESCENT_SHARE = 6, 0.8  # usual comparisons on cells, and the time of the rest
FEWEST_CELLS, CELLS_A_SECOND = 4, 3  # to compare on, for each second of a short time budget
RESERVED = 3.0  # comparisons that a time budget has to leave time for
LOSS = 1.005  # an error this much larger in float32, and the fit is in float64
FAR = 1e3  # spreads at which a value counts as no further away in a descent
FARTHEST = 1e4  # factor between the first lengthscale of a comparison and the last


# Seconds of a local batch of n rows and e columns on one core, a + n^2 (b + c e), and of a distance
# between a batch centre and a row, a + b e. Measured on one core of two at 2.5 GHz; they need not
# be those of your machine, for they only fix how many steps a search takes.
BATCH_SECONDS = (1e-3, 5e-8, 2e-10)
NEAR_SECONDS = (1e-8, 5e-10)
SCREENING_SECONDS = (5e-10, 2e-7, 8e-10)  # n^2 (a n + b + c e), of n rows and e columns
REFERENCE_CORES = 2


class Effort(NamedTuple):
    """How much is searched, and how large a cell may be."""

    steps: float  # of descents, over those of "balanced"; of the last ones alone above 1
    first_share: float  # of the last steps that have batches of FIRST_ROWS rows; >= STOP_SHARE
    largest_cell: int  # rows


EFFORTS = {
    "fast": Effort(0.25, 1.0, 2800),
    "balanced": Effort(1.0, 1.0, 14_000),
    "thorough": Effort(2.0, STOP_SHARE, 14_000),
}


class DescentSteps(NamedTuple):
    """Steps before each jump, after the last, of decreasing length, and of other kernels."""

    jump: int
    first: int
    last: int
    other: int

    def total(self, n_shapes: int, n_others: int) -> int:
        """Steps of the first kernel for each shape of the matrix, and of the others."""
        return n_shapes * (JUMPS * self.jump + self.first + self.last) + n_others * self.other


def count_descent_steps(
    n: int, columns: list[int], n_others: int, seconds: float, effort: Effort
) -> DescentSteps:
    """Steps of descents on n rows that take at most so many seconds on the reference machine.

    Parameters
    ----------
    n
        Rows to learn from.
    columns
        Columns of the descent of each shape of the matrix.
    n_others
        Kernels that start from what the first has learned.
    seconds
        Of all descents together.
    effort
        What they take at most.
    """
    last = min(max(n // ROWS_PER_STEP, LAST_STEPS[0]), LAST_STEPS[1])
    other = min(OTHER_STEPS, round(OTHER_SHARE * last))
    jump_batches = GRADIENT_BATCHES / LARGE_BATCHES
    fixed, by_pair, by_number = BATCH_SECONDS

    def step_seconds(e: int, n_rows: int) -> float:
        rows = min(n_rows, max(FEWEST_ROWS, n // 2))
        batch = fixed + rows**2 * (by_pair + by_number * e)
        near = min(n, MOST_VALUES // e) * (NEAR_SECONDS[0] + NEAR_SECONDS[1] * e)
        return count_batches(n_rows, n) * (batch + near) / REFERENCE_CORES

    share = effort.first_share
    descents = [*((e, last) for e in columns), *((max(columns), other),) * n_others]
    first_rows = count_first_rows(max(columns))
    total = sum(steps * share * step_seconds(e, first_rows) for e, steps in descents)
    total += sum(steps * (1 - share) * step_seconds(e, BATCH_ROWS) for e, steps in descents)
    total += sum((JUMPS * JUMP_STEPS + FIRST_STEPS) * step_seconds(e, first_rows) for e in columns)
    total += sum(JUMPS * jump_batches * step_seconds(e, BATCH_ROWS) for e in columns)
    affordable = min(effort.steps, seconds / total)
    # More early steps lead elsewhere: weights that have vanished do not come back. With twice as
    # many, flights had a validation error of 0.772 on cells, with as many as usual 0.486.
    early = min(1.0, affordable)
    counts = (early * JUMP_STEPS, early * FIRST_STEPS, affordable * last, affordable * other)
    return DescentSteps(*map(round, counts))


def count_first_rows(e: int) -> int:
    """Rows of the batches of most steps, that learn from e columns.

    With four rows a column instead of two, errors of hotel rates, adult, gas sensors and telco (84
    to 134 columns) were 0.996 to 1.005 times as large, in up to twice the time of the whole fit.
    """
    return min(BATCH_ROWS, max(FIRST_ROWS, ROWS_PER_COLUMN * e))


def count_screened_rows(n: int, e: int, seconds: float) -> int:
    """Rows of a sample for column screening, which takes a part of the time of descents."""
    rows = min(n, SCREENED_ROWS)
    while rows >= FEWEST_SCREENED and screening_seconds(rows, e) > SCREENING_SHARE * seconds:
        rows = rows * 3 // 4
    return rows


def screening_seconds(n: int, e: int) -> float:
    """Seconds of the reference machine to screen e columns on n rows."""
    by_cube, by_pair, by_number = SCREENING_SECONDS
    return n**2 * (by_cube * n + by_pair + by_number * e)


def decreasing_rates(steps: int) -> list[float]:
    """Lengths of so many steps, decreasing to zero."""
    return [RATE * (1 - k / steps) for k in range(steps)]


class DescentCandidate(NamedTuple):
    """A candidate, the shape of the matrix it learns, and its descent."""

    start: Candidate
    shape: str  # "diagonal" or "full"
    descent: MetricDescent
    columns: Tensor | None = None  # (k,)  of the feature map that are left; None for all

    @property
    def metric(self) -> FeatureMap:
        """The feature map with the matrix that the descent has reached."""
        A, metric = self.descent.matrix, self.start.metric
        if self.columns is not None:
            assert metric.origin is not None
            A = torch.diag(A) if A.ndim == 1 else A
            whole = A.new_zeros(metric.width(len(metric.origin)), len(A))  # (e, k)
            A = whole.index_copy(0, self.columns, A)
        return metric.with_matrix(A)


class ComparedShape(NamedTuple):
    """A candidate with its error in cells, and the shape of its matrix."""

    candidate: Candidate
    shape: str  # "none", "diagonal" or "full"


@dataclass
class MetricSearch:
    """Descents from the candidates of the sample search, and comparisons on cells."""

    settings: FitSettings  # of the cells
    choices: OpenChoices
    rows: ArraySource  # raw rows in canonical order, targets scaled
    candidates: list[Candidate]  # to start from; the first is the baseline of all errors
    seed: int  # of comparison cells and local batches
    log: TuningLog
    seconds: float  # of the reference machine, from which steps of descents are counted
    holdout: Holdout | None = None
    effort: Effort = EFFORTS["balanced"]
    steps_taken: int = 0
    planned_steps: int = 0
    n_compared: int = 0
    validation_rows: int = 0  # of the last comparison on cells

    def __post_init__(self) -> None:
        # Of kernels behind each map, which its tensors identify; cells are drawn again, because
        # those of 500 columns take 100 MB a map.
        self.compared: dict[tuple[FeatureMap, torch.dtype], dict[Kernel, RidgeError]] = {}

    @cached_property
    def is_validation(self) -> Tensor:
        """Whether each row is a validation row, shape (n,)."""
        if self.holdout is not None:
            return self.holdout.is_validation
        places = validation_positions(self.rows.n_rows, self.settings.seed)
        return places.to(self.rows.X.device)

    def run(self) -> tuple[Candidate, torch.dtype]:
        """The best candidate, and the dtype in which it should be fitted."""
        learn, started = self.choices.learn_metric, time.perf_counter()
        first = self.compare(self.candidates[0], () if learn else FIRST_FACTORS)
        self.log.progress.reserve(RESERVED * (time.perf_counter() - started))
        best = first
        if learn:
            compared = [ComparedShape(first, "none"), *self.learn_metric()]
            best = compared[self.select_shape(compared)].candidate
        if not self.log.progress.is_over:
            best = self.compare(best, LAST_FACTORS)
        if self.settings.dtype == torch.float64 or not self.choices.precision:
            return best, self.settings.dtype
        if self.log.progress.is_ended_by_user:
            return best, torch.float64  # which is never wrong
        short = self.compare(best, dtype=torch.float32, fixed=True)
        return best, torch.float32 if short.error <= LOSS * best.error else torch.float64

    def learn_metric(self) -> list[ComparedShape]:
        """What descents make of the candidates, compared on cells."""
        started = self.start_descents()
        if not started:
            return []
        columns = [len(each.descent.matrix) for each in started]
        n = started[0].descent.rows.n_rows
        n_others = len({family_of(candidate.kernel) for candidate in self.candidates}) - 1
        steps = count_descent_steps(n, columns, n_others, self.seconds, self.effort)
        if not steps.first:
            return []
        self.planned_steps = steps.total(len(started), n_others)
        # Errors of shapes and kernels are compared, so their batches are alike.
        first_rows = count_first_rows(max(columns))
        last_rows = BATCH_ROWS if self.effort.first_share < 1 else first_rows
        learned = self.descend(started, steps, first_rows, last_rows)
        if not learned:  # stopped before
            return []
        shapes = [ComparedShape(self.compare(self.current(each)), each.shape) for each in learned]
        best = learned[self.select_shape(shapes)]
        others = self.descend_others(best, steps.other, first_rows, last_rows)
        selected = self.select_kernel([best, *others])
        if selected is not best:
            shapes.append(ComparedShape(self.compare(self.current(selected)), selected.shape))
        return shapes

    def select_shape(self, compared: list[ComparedShape]) -> int:
        """The number of the least error; that of weights, unless one is lower by more than chance.

        Errors of m validation rows that differ by less than 1 / sqrt(m) are as good as equal. Over
        17 tables of 600 to 2,000 rows, the least error alone had a geometric mean of test errors of
        0.961, over that of weights alone, and this rule 0.956.
        """
        m = self.validation_rows
        chance = 1 / math.sqrt(max(4, m)) if m else 0.0  # where no cell could compare them
        share = {"none": 1.0, "diagonal": 1 - chance, "full": 1.0}
        errors = [each.candidate.error * share[each.shape] for each in compared]
        return errors.index(min(errors))

    def descend(
        self, started: list[DescentCandidate], steps: DescentSteps, first_rows: int, last_rows: int
    ) -> list[DescentCandidate]:
        """Steps of the first kernel, last on batches of `last_rows`; shapes far behind stop."""
        for _ in range(JUMPS):
            self.advance(started, [RATE] * steps.jump, first_rows)
            if not self.log.progress.is_over:
                jumping = [each for each in started if each.columns is None]
                self.run_side_by_side(MetricDescent.jump_to_gradient_products, jumping)
        self.advance(started, [RATE] * steps.first, first_rows)
        for each in started:
            self.note_descent(each, JUMPS * steps.jump + steps.first)
        started = [each for each in started if each.descent.steps]
        if not started:
            return []
        rates = decreasing_rates(steps.last)
        cut, large = round(STOP_SHARE * steps.last), round(self.effort.first_share * steps.last)
        for part, is_last in ((rates[:cut], 0), (rates[cut:large], 0), (rates[large:], 1)):
            planned = [len(each.descent.steps) + len(part) for each in started]
            self.advance(started, part, last_rows if is_last else first_rows)
            for each, count in zip(started, planned, strict=True):
                self.note_descent(each, count)
            started = leave_out_behind(started)
        return started

    def descend_others(
        self, best: DescentCandidate, steps: int, first_rows: int, last_rows: int
    ) -> list[DescentCandidate]:
        """Other kernels from the matrix of the best descent, on batches of so many rows.

        Descents of all kernels from the beginning took twice the time and were no better: over
        thirteen tables the geometric mean of errors was 0.2387, and is 0.2287.
        """
        others = [
            best._replace(start=candidate, descent=best.descent.restart(candidate.kernel))
            for candidate in self.candidates
            if candidate.map_name == best.start.map_name and candidate is not best.start
        ]
        rates, cut = decreasing_rates(steps), round(self.effort.first_share * steps)
        self.advance(others, rates[:cut], first_rows)
        self.advance(others, rates[cut:], last_rows)
        for each in others:
            self.note_descent(each, steps)
        return [each for each in others if each.descent.steps]

    def select_kernel(self, alike: list[DescentCandidate]) -> DescentCandidate:
        """The kernel of least error on the same batches, drawn by the first metric.

        Errors of the last steps are of other batches for each kernel: on kin40k and flights they
        had kernels in another order than common batches and cells, by up to 0.4.
        """
        if len(alike) == 1 or self.log.progress.is_over:
            return alike[0]
        self.log.progress.begin("kernel comparison")
        descent = alike[0].descent
        # At most a quarter of the rows: with 600 a fit of 2,000 rows took 20 MB more.
        n_rows = min(BATCH_ROWS, max(FIRST_ROWS, descent.rows.n_rows // 4))
        batches = descent.draw_batches(COMMON_BATCHES, n_rows)
        errors = self.run_side_by_side(partial(MetricDescent.measure_error, batches=batches), alike)
        for each, error in zip(alike, errors, strict=True):
            candidate = self.current(each)._replace(error=error)
            self.log.note_candidate("kernel comparison", candidate)
            self.report("kernel comparison", candidate, error / self.log.variance)
        return alike[errors.index(min(errors))]

    def start_descents(self) -> list[DescentCandidate]:
        """One descent of weights, of features with scores, and one of a matrix, without.

        The matrix needs rows enough. Where no candidate has scores, weights are without them. Of
        many features only those that matter are left. The kernel is Matern if it is there: where
        the Gaussian came first, 2,000 rows of kin40k had an error of 0.154, and have 0.134.
        """
        training = (~self.is_validation).nonzero()[:, 0]
        if len(training) < 2:  # one to fit, one to validate
            return []
        d, n = self.rows.X.shape[1], self.rows.total_weight
        any_scores = any(candidate.metric.knots is not None for candidate in self.candidates)
        most = MOST_VALUES // max(candidate.metric.width(d) for candidate in self.candidates)
        training = training[draw_indices(len(training), most, self.seed).to(training.device)]
        rows = ArraySource(*self.rows.block(training))
        groups = None if self.holdout is None else self.holdout.groups
        groups = None if groups is None else groups[training]
        # Validation rows are given with `time`, `cv` and `X_val`, and where columns hold means of
        # targets of other rows. Those tell of a single row that is left out: the error of hotel
        # rates was 0.234 with single rows, and 0.216 with parts.
        in_parts = self.holdout is not None and groups is None
        started = []
        families = [family_of(candidate.kernel) for candidate in self.candidates]
        first = FIRST_FAMILY if FIRST_FAMILY in families else families[0]
        for candidate in self.candidates:
            if family_of(candidate.kernel) != first:
                continue
            assert isinstance(candidate.kernel, Radial)
            columns = rows.map(partial(bounded_columns, candidate.metric)).load()
            ridge = candidate.penalty * n
            weights = torch.ones(columns.X.shape[1], dtype=torch.float64, device=columns.X.device)
            descent = MetricDescent(
                columns,
                candidate.kernel,
                weights,
                ridge=max(ridge, SMALLEST_RIDGE) if self.choices.penalty else ridge,
                fixed=not self.choices.penalty,
                engine=self.settings.engine,
                seed=self.seed,
                groups=groups,
                in_parts=in_parts,
            )
            weighed = DescentCandidate(candidate, "diagonal", descent)
            if d > MATRIX_COLUMNS:
                weighed = self.screen_columns(weighed)
                enough = ROWS_PER_SELECTED * len(weighed.descent.matrix)
                if self.rows.n_rows < enough and self.choices.metric == "auto":
                    continue
            scores = candidate.metric.knots is not None
            if scores or not any_scores:
                started.append(weighed)
            if not scores and can_learn_matrix(rows.n_rows, len(weighed.descent.matrix)):
                mixed = replace(weighed.descent, matrix=torch.diag(weighed.descent.matrix))
                started.append(weighed._replace(shape="full", descent=mixed))
        return started

    def screen_columns(self, each: DescentCandidate) -> DescentCandidate:
        """The descent of the columns that matter, from weights that say how much."""
        descent, progress = each.descent, self.log.progress
        n = count_screened_rows(descent.rows.n_rows, descent.rows.X.shape[1], self.seconds)
        if n < FEWEST_SCREENED or progress.is_over:
            return each
        progress.begin("column screening")
        index = draw_indices(descent.rows.n_rows, n, self.seed).to(descent.rows.X.device)
        groups = None if descent.groups is None else descent.groups[index]
        sample, n_training = divide_sample(descent.make_batch(index).rows, groups, self.seed)
        screening = ColumnScreening(sample, n_training, descent.kernel, descent.engine)
        screened = screening.run(lambda: progress.is_over)
        if screened is None:
            return each
        columns, weights, ridge = screened
        descent = replace(
            descent,
            rows=replace(descent.rows, X=descent.rows.X[:, columns]),
            matrix=weights,
            ridge=descent.ridge if descent.fixed else ridge,
        )
        return each._replace(descent=descent, columns=columns)

    def advance(self, descents: list[DescentCandidate], rates: list[float], n_rows: int) -> None:
        """Take these steps on batches of so many rows, unless choosing is stopped before."""
        for first in range(0, len(rates), REFRESH):
            if self.log.progress.is_over:
                return
            these = rates[first : first + REFRESH]
            take_steps = partial(MetricDescent.advance, rates=these, n_rows=n_rows)
            self.run_side_by_side(take_steps, descents)
            self.steps_taken += len(these) * len(descents)
            for each in descents:
                error = each.descent.error / self.log.variance
                self.report("metric descent", self.current(each), error)

    def run_side_by_side(
        self, function: Callable[[MetricDescent], Result], descents: list[DescentCandidate]
    ) -> list[Result]:
        """function(descent) of every descent, each with its share of the cores.

        Operations on 400 rows are so short that two threads in one step gain little: a step of four
        batches took 17 ms on one thread and 14 to 21 on two, and 10 where two descents had a thread
        each.
        """
        local = self.settings.engine.local
        for each in descents:
            each.descent.engine = LocalEngine(local.threads_per_task(len(descents)))
        return local.map(function, [each.descent for each in descents])

    def report(self, step: str, candidate: Candidate, error: float) -> None:
        """Show a candidate and the share of the metric search that is done."""
        descents = self.steps_taken / self.planned_steps if self.planned_steps else 0.0
        comparisons = min(1.0, self.n_compared / COMPARISONS)
        done = DESCENT_SHARE * descents + (1 - DESCENT_SHARE) * comparisons
        first, last = METRIC_PART
        self.log.report(step, candidate, error, first + (last - first) * done)

    def current(self, each: DescentCandidate) -> Candidate:
        """The candidate with the matrix and the ridge that its descent has reached."""
        descent = each.descent
        return each.start._replace(
            metric=each.metric,
            penalty=descent.ridge / self.rows.total_weight,
            map_name=f"{each.start.map_name}, {each.shape} matrix, step {len(descent.steps)}",
        )

    def note_descent(self, each: DescentCandidate, planned: int) -> None:
        """Record how far a descent has come, and where the clock stopped the first of them."""
        candidate = self.current(each)._replace(error=each.descent.error)
        self.log.note_candidate("metric descent", candidate)
        name = f"{candidate.map_name} of {planned}, {candidate.kernel!r}"
        self.log.note_stop(f"metric descent: {name}", each.descent.error)

    def compare(
        self,
        candidate: Candidate,
        factors: tuple[float, ...] = (),
        dtype: torch.dtype = torch.float64,
        fixed: bool = False,
    ) -> Candidate:
        """The candidate with the lengthscale and penalty of least error in cells.

        Without factors the lengthscale stays; if `fixed` so does the penalty. A candidate is
        returned as it is where no cell has both training and validation rows.
        """
        self.log.progress.begin("comparison on cells")
        comparison = self.prepare_comparison(candidate, dtype, fixed or not self.choices.penalty)
        if not comparison.cells:
            return candidate
        self.validation_rows = sum(cell.validation.n_rows for cell in comparison.cells)
        kernel = candidate.kernel
        if self.choices.lengthscale and isinstance(kernel, Radial):
            start, with_length = kernel.one_lengthscale, kernel.with_lengthscale
            bounds = (start / FARTHEST, start * FARTHEST)
            length = search_lengthscale(
                lambda x: comparison.find_ridge(with_length(x)).error, start, factors, bounds
            )
            kernel = with_length(length)
        best = comparison.find_ridge(kernel)
        penalty = candidate.penalty if comparison.fixed else best.ridge / self.rows.total_weight
        candidate = candidate._replace(kernel=kernel, error=best.error, penalty=penalty)
        self.log.note_candidate("comparison on cells", candidate, precision=str(dtype))
        self.n_compared += 1
        # Errors are relative to a baseline, whose own error is that of the first candidate.
        self.report("comparison on cells", candidate, best.error * self.candidates[0].error)
        return candidate

    def prepare_comparison(
        self, candidate: Candidate, dtype: torch.dtype, fixed: bool
    ) -> CellComparison:
        """Cells behind the feature map of a candidate, and what was compared on them before."""
        n = self.rows.total_weight
        # Cells of both precisions are those of float64, for rounding can make one cell more, and
        # others are drawn then.
        rows = self.rows.map(partial(candidate.metric, dtype=dtype))
        exact = self.rows.map(partial(candidate.metric, dtype=torch.float64))
        settings = replace(
            self.settings,
            kernel=candidate.kernel,
            n_cells=max(self.settings.n_cells, math.ceil(rows.n_rows / CELL_ROWS)),
            centroids="uniform",
            n_candidates=1,
        )
        cells = [replace(cell, view=rows.view) for cell in self.divide(settings, exact)]
        comparison_cells = draw_comparison_cells(
            cells,
            self.is_validation,
            self.candidates[0].predict,
            center_share=min(1.0, self.settings.n_centers / n),
            seed=self.seed,
            most=round(min(MOST_CELLS, max(FEWEST_CELLS, CELLS_A_SECOND * self.seconds))),
        )
        best = self.compared.setdefault((candidate.metric, dtype), {})
        engine, ridge = self.settings.engine, candidate.penalty * n
        return CellComparison(comparison_cells, engine, ridge, fixed, best)

    def divide(self, settings: FitSettings, rows: ArraySource) -> list[ArraySource]:
        """Cells of these mapped rows; many of them inside of regions, as in fits from disk.

        With 2,500 cells of 2 million rows a comparison took 6 s on one level, of 50 s in all.
        """
        if settings.n_cells > MANY_CELLS:
            regions = self.divide(replace(settings, n_cells=math.isqrt(settings.n_cells)), rows)
            share = settings.n_cells / rows.n_rows
            inside = [replace(settings, n_cells=math.ceil(share * r.n_rows)) for r in regions]
            if len(regions) > 1:  # not of copies of one row
                return [cell for part in map(self.divide, inside, regions) for cell in part]
        seen = rows
        if self.holdout is not None and self.holdout.keeps_apart:  # as in a fit without them
            own = self.is_validation
            index = torch.arange(len(own), device=own.device) if rows.index is None else rows.index
            seen = replace(rows, index=index[~own[index]])
        # Cells of random rows: with even ones, which are all smaller than the final cell, ames lost
        # its learned weights and had an error of 0.328 instead of 0.290.
        C = select_centroids(settings, seen, self.seed, even=False)
        return divide_rows(settings, rows, C)[1]


def can_learn_matrix(n: int, e: int) -> bool:
    """Whether n training rows are enough for a matrix of e columns."""
    return e <= MATRIX_COLUMNS and n >= ROWS_PER_ENTRY * e**2


def leave_out_behind(descents: list[DescentCandidate]) -> list[DescentCandidate]:
    """Descents whose error in batches is not far behind; weights stay where rows are few."""
    least = min(each.descent.error for each in descents)
    n, entries = (
        descents[0].descent.rows.n_rows,
        max(each.descent.matrix.numel() for each in descents),
    )
    few = n < ROWS_PER_TRUSTED_ENTRY * entries
    return [
        each
        for each in descents
        if each.descent.error <= BEHIND * least or (few and each.shape == "diagonal")
    ]


def family_of(kernel: Kernel) -> Kernel:
    """The kernel without its lengthscale."""
    return kernel.with_lengthscale(1.0) if isinstance(kernel, Radial) else kernel


def bounded_columns(metric: FeatureMap, X: Tensor) -> Tensor:
    """The columns (n, e) that a matrix is learned for, without the wild values in rows X (n, d).

    The slope at a row that is far from all others is zero, but rounding of a value of 1e30 made it
    1e44, and that was the only feature of the average gradient outer product.
    """
    return metric.columns(X, torch.float64).clamp_(-FAR, FAR)
