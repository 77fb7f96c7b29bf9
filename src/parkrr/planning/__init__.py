"""Parameters to settings, sizes, bytes and seconds."""

from parkrr.planning.disk_sizes import (
    HEAVIEST,
    SORT_COPIES,
    DiskPlan,
    count_passes,
    learn_table,
    sizes_on_disk,
    stays_on_disk,
)
from parkrr.planning.plan import Plan, plan_rows, plan_table, subtract_memory
from parkrr.planning.settings import (
    KEPT_CHOICES,
    apply_lengthscales,
    build_settings,
    check_keep_statistics,
    check_loss,
    check_positive_target,
    check_size,
    count_choices,
    keep_choices,
    open_choices,
    size_rows,
    spend_time,
    tune_settings,
)
