"""How a run of the command line ends: a code for each kind of failure, and interrupts."""

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

UNEXPECTED, USAGE, DATA, BUDGET, STORAGE, MODEL, CHECKPOINT, MISSING = range(1, 9)
INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended
MEANINGS = {
    0: "done",
    UNEXPECTED: "the fit failed, or something unexpected happened",
    USAGE: "a parameter or an option is wrong",
    DATA: "data cannot be read",
    BUDGET: "the fit would not keep the memory or time it may take",
    STORAGE: "results cannot be written",
    MODEL: "the model file cannot be read",
    CHECKPOINT: "the checkpoint belongs to another fit",
    MISSING: "a package is not installed",
    INTERRUPTED: "interrupted by Ctrl-C",
}
# The first that fits counts, so what refines another stands before it.
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
STOPPING = b"\nstopping when what runs has ended; Ctrl-C again to stop now\n"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Interrupted(Exception):
    """Ctrl-C; `folder` holds what is finished, None if nothing is kept."""

    def __init__(self, folder: str | None = None) -> None:
        super().__init__(folder)
        self.folder = folder


def code_of(error: BaseException | None) -> int:
    """The exit code for an error, or for what caused it."""
    while error is not None:
        if isinstance(error, Interrupted):
            return INTERRUPTED
        for kind, code in CODES:
            if isinstance(error, kind):
                return code
        # Whatever cannot be read names itself as SourceError, so this is a file to write.
        if isinstance(error, OSError) and (error.filename is not None or error.errno in FULL):
            return STORAGE
        error = error.__cause__
    return UNEXPECTED


@contextmanager
def kept_in(folder: str | None) -> Iterator[None]:
    """Says of an interrupt where finished work is."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(folder) from stop


@contextmanager
def interruptible() -> Iterator[None]:
    """The first Ctrl-C waits for what runs, the second does not.

    Tasks on threads cannot be cut off, and take seconds; a task that is cut off is run again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, stop_now)
        os.write(2, STOPPING)  # print cannot be called while it is running
        raise KeyboardInterrupt

    def stop_now(number: int, frame: FrameType | None) -> None:
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # threads would be waited for by anything less

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
