"""Where tasks run, on which device, in how much memory."""

from parkrr.runtime.devices import check_device, move_to_device
from parkrr.runtime.engine import (
    Engine,
    LocalEngine,
    as_engine,
    map_on_threads,
    run_tasks,
    sum_on_threads,
    torch_threads,
)
from parkrr.runtime.formatting import (
    describe_bytes,
    describe_count,
    describe_seconds,
    shorten_numbers,
    show_number,
)
from parkrr.runtime.memory import process_bytes, release_memory
from parkrr.runtime.progress import Callback, ChoiceProgress, FitEvent, follow_choices, progress
