"""Progress of long work: a line that moves, events for callbacks, a stop that keeps the best.

In a terminal or a notebook it is one line; elsewhere lines of the log named "parkrr".
"""

import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from parkrr.runtime.formatting import show_number

log = logging.getLogger("parkrr")
Tick = Callable[[int], None]
FEW_STEPS = 10  # of very different lengths, whose speed does not tell the time left
NO_ETA = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}]"
CHOICES = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
MOVE_SECONDS = 0.5  # after which a line shows the time again, whatever has been done
LOG_SECONDS = 10.0  # between two lines of a log


class FitEvent(NamedTuple):
    """What a fit has just compared while it chooses; every callback of `callbacks` gets it.

    Parameters
    ----------
    step : str
        "sample search", "metric descent", "kernel comparison", "comparison on cells" or
        "coarse comparison"; the last event of a search has "chosen".
    candidate : str
        What was compared: a kernel and a feature map, or a blend.
    error : float
        Its squared error on validation rows over the variance of the target.
    best_error : float
        The least error of this step so far.
    seconds : float
        Since the fit began to choose.
    share : float
        Of the work of choosing that is done, as expected: between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> X = np.linspace(0, 6, 400)[:, None]
    >>> events = []
    >>> model = ParKRegressor(callbacks=[events.append], random_state=0, progress=False)
    >>> _ = model.fit(X, np.sin(X[:, 0]))
    >>> events[0].step, events[-1].share
    ('sample search', 1.0)
    """

    step: str
    candidate: str
    error: float
    best_error: float
    seconds: float
    share: float


Callback = Callable[[FitEvent], object]


@dataclass
class ChoiceProgress:
    """Follows what a fit chooses: shows it, passes it to callbacks, and tells when to stop.

    Choosing stops early when the deadline has passed, on the first Ctrl-C, and when a callback
    returns True. `stopped_by` then is "time budget", "Ctrl-C" or "callback".
    """

    callbacks: Sequence[Callback] = ()
    deadline: float = math.inf  # of time.perf_counter
    show: Callable[[FitEvent], None] = lambda event: None
    show_step: Callable[[str], None] = lambda step: None
    stopped_by: str = ""
    started: float = field(default_factory=time.perf_counter)
    step: str = ""
    best_error: float = math.inf
    share: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether choosing is to end with the best so far."""
        if not self.stopped_by and time.perf_counter() > self.deadline:
            self.stopped_by = "time budget"
        return bool(self.stopped_by)

    @property
    def is_ended_by_user(self) -> bool:
        """Whether not even what a time budget has room for is to be tried."""
        return self.stopped_by in ("Ctrl-C", "callback")

    def reserve(self, seconds: float) -> None:
        """Stop so much earlier than the deadline, but not before half of what is left."""
        left = self.deadline - time.perf_counter()
        self.deadline -= min(seconds, max(0.0, left / 2)) if math.isfinite(left) else 0.0

    def begin(self, step: str) -> None:
        """Tell what is done from now on."""
        self.show_step(step)

    def report(self, step: str, candidate: str, error: float, share: float) -> None:
        """Tell of one comparison, and which share of all choosing is done with it."""
        self.best_error = min(self.best_error, error) if step == self.step else error
        self.step, self.share = step, max(self.share, min(share, 1.0))
        seconds = time.perf_counter() - self.started
        event = FitEvent(step, candidate, error, self.best_error, seconds, self.share)
        self.show(event)
        for callback in self.callbacks:
            result = callback(event)
            if isinstance(result, bool | np.bool_) and result:
                self.stopped_by = "callback"

    def interrupt(self) -> None:
        """Stop with the best so far, and say so."""
        self.stopped_by = "Ctrl-C"
        tqdm.write(
            "parkrr: fitting the best model so far; Ctrl-C again stops at once", file=sys.stderr
        )


@contextmanager
def follow_choices(
    callbacks: Sequence[Callback], deadline: float, shown: bool
) -> Iterator[ChoiceProgress]:
    """Show what is chosen in a line that moves, or in the log, and catch the first Ctrl-C."""
    live = shown and is_live()
    with tqdm(total=1.0, desc="choosing", smoothing=0, disable=not live, bar_format=CHOICES) as bar:
        logged = time.perf_counter()

        def show_step(step: str) -> None:
            bar.set_description_str(f"choosing, {step}")

        def show(event: FitEvent) -> None:
            nonlocal logged
            if live:
                bar.set_description_str(f"choosing, {event.step}", refresh=False)
                bar.set_postfix_str(f"validation error {event.best_error:.4g}", refresh=False)
                bar.update(event.share - bar.n)
            elif shown and time.perf_counter() - logged >= LOG_SECONDS:
                logged = time.perf_counter()
                log.info(
                    "choosing, %s: %.0f %% in %.0f s, validation error %.4g",
                    event.step, 100 * event.share, event.seconds, event.best_error,
                )  # fmt: skip

        choices = ChoiceProgress(callbacks, deadline, show, show_step)
        with moving(bar, live), on_interrupt(choices.interrupt):
            yield choices
        bar.update(1.0 - bar.n)
    if shown and not live:
        log.info(
            "choosing: %.1f s, validation error %.4g",
            time.perf_counter() - choices.started, choices.best_error,
        )  # fmt: skip


@contextmanager
def on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first Ctrl-C; the second interrupts as always.

    Only in the main thread, and only where Ctrl-C means what it does in Python: a program that
    handles it by itself keeps its handler.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def moving(bar: Any, live: bool) -> Iterator[None]:
    """Show the time that has passed twice a second, however long a piece of work takes."""
    if not live:
        yield
        return
    done = threading.Event()

    def move() -> None:
        while not done.wait(MOVE_SECONDS):
            bar.refresh()

    thread = threading.Thread(target=move, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def progress(label: str, total: int, unit: str, shown: bool) -> Iterator[Tick]:
    """Show a bar in a terminal or notebook, and write to the log elsewhere.

    Call the function it yields with the amount that has been done since the last call.

    Examples
    --------
    >>> from parkrr.runtime import progress
    >>> with progress("fitting cells", total=2, unit="cells", shown=False) as tick:
    ...     tick(1)
    ...     tick(1)
    """
    shown = shown and total > 0
    live = shown and is_live()
    start, done = time.perf_counter(), 0
    form: dict[str, Any] = {"unit_scale": True} if total > FEW_STEPS else {"bar_format": NO_ETA}
    with tqdm(total=total, desc=label, unit=f" {unit}", disable=not live, **form) as bar:
        logged = start

        def tick(amount: int) -> None:
            nonlocal done, logged
            done += amount
            bar.update(amount)
            if shown and not live and time.perf_counter() - logged >= LOG_SECONDS:
                logged = time.perf_counter()
                so_far = f"{done:,} of {total:,} {unit}"
                log.info("%s: %s in %.0f s", label, so_far, logged - start)

        with moving(bar, live):
            yield tick
    if shown and not live:
        seconds = max(1e-9, time.perf_counter() - start)
        rate = show_number(done / seconds)
        log.info("%s: %s %s in %.1f s, %s a second", label, f"{done:,}", unit, seconds, rate)


def is_live() -> bool:
    """Whether a line can move: in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
