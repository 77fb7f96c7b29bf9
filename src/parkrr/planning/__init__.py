"""Parameters to settings, sizes, bytes and seconds."""

from parkrr.planning.disk_sizes import (
    SORT_COPIES,
    DiskPlan,
    groups_of,
    learned,
    sizes_on_disk,
    stays_on_disk,
)
from parkrr.planning.plan import Plan, checked_shape, left_of, plan_rows, plan_table
from parkrr.planning.settings import (
    check_keeping,
    chosen_park,
    given_sizes,
    park_of,
    patience,
    wish_of,
)
