"""The penalty of a loss with a logarithmic link, by leave-one-out deviance.

Everything else is chosen by squared errors of the target to a power at which its noise is nearly
the same everywhere. Of small counts it is not, and the penalty for these squares is too large: with
0.5 claims a row the leave-one-out deviance was 0.833 there and 0.822 at a sixteenth of it.
"""

from dataclasses import replace

from parkrr.data import ArraySource, Holdout, canonical_order, draw_indices
from parkrr.park import FitSettings, fit_park
from parkrr.partition import HARD
from parkrr.solvers import half_deviance, mean_target
from parkrr.tuning.log import TuningLog

SAMPLE_ROWS = 2000  # in one cell: a fit of six steps takes a second
FACTOR = 4.0  # from one penalty to the next
MOST_FACTORS = 4  # in one direction


def choose_loss_penalty(
    settings: FitSettings, rows: ArraySource, holdout: Holdout | None, log: TuningLog
) -> FitSettings:
    """The settings with the penalty of least leave-one-out deviance in a sample of the rows.

    lambda n is the same for the sample as for all rows. From the penalty that is set it goes up or
    down as long as the deviance falls.
    """
    index = canonical_order(rows)[draw_indices(rows.n_rows, SAMPLE_ROWS, settings.seed)]
    sample = replace(rows, index=index).load()
    held = None if holdout is None else holdout.take(index)
    if held is not None and not bool(held.is_validation.any()):
        return settings  # your validation rows are so few that the sample has none
    share = rows.total_weight / sample.total_weight
    one_cell = replace(settings, n_cells=1, n_centers=sample.n_rows, blend=HARD, shown=False)
    power = settings.power
    assert power is not None

    def deviance(penalty: float) -> float:
        result = fit_park(replace(one_cell, penalty=share * penalty), sample, held)
        left_out, mean = result.left_out, mean_target(sample)
        eta = (left_out.predictions(result.model, settings.engine.cores) / mean).log()
        each = half_deviance(left_out.Y / mean, eta, power)[:, 0]
        error = float(left_out.weights @ each) / len(each)
        log.note("loss", error, penalty=penalty)
        return error

    penalty = settings.penalty
    least = deviance(penalty)
    for direction in (1 / FACTOR, FACTOR):
        moved = False
        for _ in range(MOST_FACTORS):
            error = deviance(direction * penalty)
            if not error < least:
                break
            penalty, least, moved = direction * penalty, error, True
        if moved:
            break
    log.finish_step("loss")
    return replace(settings, penalty=penalty)
