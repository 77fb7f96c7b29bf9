"""Whatever is "auto": kernel, lengthscale, penalty, metric, precision, blend, coarse level."""

from parkrr.tuning import (
    cell_comparison,
    coarse_comparison,
    metric_descent,
    metric_search,
    sample_search,
)
from parkrr.tuning.log import Chosen, OpenChoices, TuningLog
from parkrr.tuning.loss_penalty import choose_loss_penalty
from parkrr.tuning.metric_descent import LocalBatch
from parkrr.tuning.metric_search import EFFORTS, Effort
from parkrr.tuning.pipeline import SCORED_FEATURES, tune
from parkrr.tuning.sample_search import SampleSearch
