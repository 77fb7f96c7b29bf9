"""Rows from anywhere, as blocks of numbers."""

from parkrr.data.csv import ARROW, CSV, converted, found, is_csv, is_file, join_parts
from parkrr.data.encoded_table import (
    BLOCK_BYTES,
    RowTable,
    Target,
    class_numbers,
    class_weights,
    codes,
    decoded,
    encode_frame,
    frame_table,
    learn_frame,
    learn_rows,
    learn_target,
)
from parkrr.data.encoders import (
    TURNS,
    Category,
    Column,
    Columns,
    DateTime,
    Number,
    categories,
    from_plain,
    is_category,
    width_guess,
)
from parkrr.data.parquet import (
    LOOKED_AT,
    LOOKED_SHARE,
    ParquetTable,
    block_rows,
    fingerprint,
    scan_parquet,
    write_parquet,
)
from parkrr.data.rows import (
    FEW_ROWS,
    JUDGES,
    ArraySource,
    Block,
    CellRows,
    Source,
    canonical,
    cuts,
    draw,
    grouped,
    joined,
    judges,
    judging_places,
    merged,
)
from parkrr.data.storage import Folder, is_url, open_folder, placed, publishing
from parkrr.data.validation import as_source, as_tensor, check_weights, naming, real
