"""Every exception, and the checks of parameters that raise them."""

from parkrr.errors.checks import (
    check_bool,
    check_bytes,
    check_column_kinds,
    check_integer,
    check_integer_or,
    check_one_of,
    check_positive,
    check_positive_or,
    check_share,
    suggest,
)
from parkrr.errors.exceptions import (
    BudgetError,
    CellError,
    CheckpointError,
    ModelFileError,
    NotFiniteError,
    ParameterError,
    ParKError,
    ResultError,
    SourceError,
    StorageError,
)
