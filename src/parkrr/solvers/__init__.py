"""The linear algebra of one cell: kernel ridge regression on its Nystrom centres, eq. (8)."""

from parkrr.solvers.direct import (
    PENALTIES,
    Direct,
    PenaltyPath,
    choose_solver,
    leave_one_out_errors,
    penalty_path,
    smallest_penalty,
    solve_gram,
    statistics_jitter,
)
from parkrr.solvers.factors import add_to_diagonal, cholesky_or_nan, solve_factor
from parkrr.solvers.falkon import Falkon
from parkrr.solvers.problem import (
    Influence,
    LocalFit,
    LocalProblem,
    Shard,
    Solver,
    add_gram,
    fill_lower,
    kernel_of_rows,
    leave_one_out_block,
    needs_float64,
    zero_fit,
)
from parkrr.solvers.reweighting import (
    half_deviance,
    mean_target,
    solve_reweighted,
    stabilize,
)
from parkrr.solvers.statistics import RAISED, solve_statistics
