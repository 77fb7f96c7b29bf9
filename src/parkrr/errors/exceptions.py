"""Every exception of parkrr, as one tree.

Each also descends from the built-in it refines, so that ``except ValueError`` keeps working, and
can be rebuilt from its ``args``, because it may cross a process.
"""


class ParKError(Exception):
    """Base class of all exceptions that parkrr raises."""


class ParameterError(ParKError, ValueError):
    """A parameter breaks its rule; the message names both, the value and the way out."""


class BudgetError(ParameterError):
    """A fit would take more memory than it may; the message names what would have to shrink."""


class NotFiniteError(ParKError, ValueError):
    """Arithmetic overflowed; the message names what did, and the way out."""


class FileError(ParKError, OSError):
    """A file cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


class SourceError(FileError):
    """A file cannot be read; the message names it."""

    def __str__(self) -> str:
        return f"{self.path!r} cannot be read: {self.reason}"


class StorageError(FileError):
    """A file cannot be written; the message names it and the way out."""

    def __str__(self) -> str:
        return f"{self.path!r} cannot be written: {self.reason}"


class CheckpointError(ParKError, ValueError):
    """A checkpoint is in use, damaged, or belongs to another fit; the message names which."""


class ResultError(CheckpointError):
    """A result of a finished task is gone or damaged; the message names its file."""


class ModelFileError(ParKError, ValueError):
    """A file is not a model this version can read."""


class CellError(ParKError, RuntimeError):
    """Fitting one cell failed; the cause is chained."""

    def __init__(self, cell: int, n_rows: int, reason: str) -> None:
        super().__init__(cell, n_rows, reason)  # pickle rebuilds an exception from its args
        self.cell = cell
        self.n_rows = n_rows
        self.reason = reason

    def __str__(self) -> str:
        return f"cell {self.cell} ({self.n_rows:,} rows) could not be fitted: {self.reason}"
