"""Which rows belong together."""

from parkrr.partition.centroids import (
    CENTROIDS,
    HARD,
    PARTITION_ROWS_PER_CELL,
    Blend,
    assign,
    balanced,
    choose_centroids,
    nearest,
    nearest_cell,
    rows_around,
)
