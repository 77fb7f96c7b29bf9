"""Which rows belong together, and how neighbouring cells are blended."""

from parkrr.partition.blending import HARD, Blend, CellShares, Regions, median_margin
from parkrr.partition.centroids import (
    CENTROIDS,
    PARTITION_ROWS_PER_CELL,
    assign,
    balance_cells,
    choose_centroids,
    move_to_means,
    rows_around,
)
