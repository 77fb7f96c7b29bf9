"""Progress of long steps: a bar in a terminal or notebook, one line in a log elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm

log = logging.getLogger("parkrr")
Tick = Callable[[int], None]
FEW = 10  # steps of very different lengths, whose pace says nothing of the time left
WITHOUT_TIME_LEFT = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}]"


@contextmanager
def progress(label: str, total: int, unit: str, shown: bool) -> Iterator[Tick]:
    """Call what this yields with how much has been done; it shows the rate and the time left.

    Examples
    --------
    >>> from parkrr.runtime.progress import progress
    >>> with progress("fitting cells", total=2, unit="cells", shown=False) as tick:
    ...     tick(1)
    ...     tick(1)
    """
    shown = shown and total > 0
    live = shown and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    start, done = time.perf_counter(), 0
    how = {"unit_scale": True} if total > FEW else {"bar_format": WITHOUT_TIME_LEFT}
    with tqdm(total=total, desc=label, unit=f" {unit}", disable=not live, **how) as bar:

        def tick(amount: int) -> None:
            nonlocal done
            done += amount
            bar.update(amount)

        yield tick
    if shown and not live:
        seconds = max(1e-9, time.perf_counter() - start)
        log.info("%s: %s %s in %.1f s, %.3g a second", label, done, unit, seconds, done / seconds)
