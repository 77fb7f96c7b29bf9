"""The linear algebra of one cell."""

from parkrr.solvers.factors import cholesky_or_nan, plus
from parkrr.solvers.penalty_path import PENALTIES, PenaltyPath, leave_one_out, penalty_path
from parkrr.solvers.problem import (
    LocalProblem,
    Shard,
    add_gram,
    kernel_of_rows,
    left_out_rows,
    mirrored,
)
from parkrr.solvers.solvers import (
    Direct,
    Falkon,
    LocalFit,
    Solver,
    cheaper,
    lost_in_float32,
    nothing_to_fit,
    solve_statistics,
    statistics_jitter,
)
