"""How a run of the command line ends: a code for each kind of failure, and Ctrl-C."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from parkrr.errors import (
    BudgetError,
    CheckpointError,
    ModelFileError,
    ParameterError,
    SourceError,
    StorageError,
)

UNEXPECTED, USAGE, DATA, BUDGET, STORAGE, MODEL, CHECKPOINT, MISSING, DRIFT = range(1, 10)
INTERRUPTED = 130  # the code of shells for a program that Ctrl-C ended
MEANINGS = {
    0: "success",
    UNEXPECTED: "the fit failed, or an unexpected error",
    USAGE: "a parameter or an option is wrong",
    DATA: "data cannot be read",
    BUDGET: "the fit would exceed its memory or time",
    STORAGE: "results cannot be written",
    MODEL: "the model file cannot be read",
    CHECKPOINT: "the checkpoint is in use, damaged, or belongs to another fit",
    MISSING: "a package is not installed",
    DRIFT: "drift: the rows are unlike those of the fit",
    INTERRUPTED: "interrupted by Ctrl-C",
}
# The first that fits counts, so a subclass stands before its base.
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (BudgetError, BUDGET),
    (MemoryError, BUDGET),
    (CheckpointError, CHECKPOINT),
    (ModelFileError, MODEL),
    (SourceError, DATA),
    (StorageError, STORAGE),
    (ParameterError, USAGE),
    (ModuleNotFoundError, MISSING),
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Interrupted(Exception):
    """Ctrl-C; `folder` holds finished work, None if nothing is saved."""

    def __init__(self, folder: str | None = None) -> None:
        super().__init__(folder)
        self.folder = folder


def code_of(error: BaseException | None) -> int:
    """The exit code for an error, or for its cause."""
    while error is not None:
        if isinstance(error, Interrupted):
            return INTERRUPTED
        for kind, code in CODES:
            if isinstance(error, kind):
                return code
        # A file that cannot be read is a SourceError, so this is a file to write.
        if isinstance(error, OSError) and (error.filename is not None or error.errno in DISK_FULL):
            return STORAGE
        error = error.__cause__
    return UNEXPECTED


@contextmanager
def reporting_interrupts(folder: str | None) -> Iterator[None]:
    """Raise Ctrl-C as an exception that names the folder of finished work."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(folder) from stop


@contextmanager
def interruptible() -> Iterator[None]:
    """The first Ctrl-C waits for running tasks, the second does not.

    Tasks on threads cannot be stopped, and take seconds; an unfinished task is run again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, stop_now)
        # print cannot be called while it is running
        os.write(2, b"\nstopping when running tasks have ended; press Ctrl-C again to stop now\n")
        raise KeyboardInterrupt

    def stop_now(number: int, frame: FrameType | None) -> None:
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # anything less would wait for threads

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
