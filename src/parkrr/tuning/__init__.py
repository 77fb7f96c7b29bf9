"""Whatever is "auto"."""

from parkrr.tuning.blend_trial import (
    ALL_CELLS,
    ANCHORS,
    AROUND,
    COARSE_CENTERS,
    HELD_OUT,
    NEAREST,
    WIDTHS,
)
from parkrr.tuning.cell_comparison import VOTER_ROWS, VOTERS, WINDOW
from parkrr.tuning.metric_descent import BALL_ROWS, BALLS, FRESH, SHARPENING_BALLS, LocalBatch
from parkrr.tuning.metric_search import (
    FULL_COLUMNS,
    HEAT,
    LAST_RUN,
    MOST_VALUES,
    ROWS_A_STEP,
    SHARPENED,
    WARM_STEPS,
)
from parkrr.tuning.pipeline import (
    SCORED_FEATURES,
    SCOUT_CENTERS,
    SCOUT_ROWS,
    STEPS,
    Chosen,
    OpenChoices,
    TuningLog,
    TuningPipeline,
)
from parkrr.tuning.sample_search import SampleSearch
