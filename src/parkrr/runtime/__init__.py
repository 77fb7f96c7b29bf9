"""Where and how work runs; no mathematics."""

from parkrr.runtime.devices import check_device, moved
from parkrr.runtime.engine import Engine, LocalEngine, as_engine, mapped_on_threads, torch_threads
from parkrr.runtime.formatting import plural, told_bytes, told_seconds
from parkrr.runtime.memory import free_bytes, give_back, process_bytes
from parkrr.runtime.progress import Tick, progress
