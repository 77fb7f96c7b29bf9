"""A model as a file."""

from parkrr.persistence.model_file import (
    NARROW,
    REFUSED,
    Saved,
    axes,
    change,
    damaged,
    inner,
    intervals_from,
    named,
    narrowed,
    params_of,
    plain_intervals,
    plain_kernel,
    plain_params,
    read_model,
    sound,
    unnamed,
    write_model,
)
from parkrr.persistence.schema import check_estimator
