"""Rows from anywhere, as blocks of numbers."""

from parkrr.data.column_kinds import family_of, name_type
from parkrr.data.csv import (
    Dialect,
    convert_to_parquet,
    file_versions,
    is_convertible,
    is_csv,
    is_single_file,
    join_parts,
    scan_csv,
    set_time,
)
from parkrr.data.encoded_table import (
    EncodedTable,
    FoldedRows,
    array_as_table,
    as_table,
    hash_table,
    is_plain,
    learn_encoded_table,
    learn_frame_encoder,
    read_file_rows,
)
from parkrr.data.encoders import (
    FOLDS,
    PERIODS,
    Category,
    ColumnEncoder,
    DateTime,
    Ignored,
    Number,
    TableEncoder,
    TrainingEncoder,
    assign_folds,
    largest_width,
    learn_numbers,
)
from parkrr.data.holdout import Holdout, hold_out
from parkrr.data.parquet import (
    BLOCK_BYTES,
    ParquetTable,
    count_sampled_groups,
    fingerprint,
    rows_per_block,
    scan_parquet,
    write_parquet,
)
from parkrr.data.rows import (
    FEW_ROWS,
    VALIDATION_SHARE,
    ArraySource,
    Block,
    CellRows,
    Source,
    as_real,
    as_source,
    as_tensor,
    canonical_order,
    check_any_rows,
    check_weights,
    choose_rows,
    collect,
    cut_evenly,
    draw_indices,
    group_by_cell,
    has_copies,
    hash_rows,
    is_frame,
    is_pandas,
    join_blocks,
    merge_copies,
    name_columns,
    naming_parameter,
    read_labels,
    read_numbers,
    select_validation_rows,
    validation_positions,
)
from parkrr.data.storage import Folder, atomic_write, is_url, locate_file, open_folder
from parkrr.data.targets import (
    Target,
    class_indices,
    compute_class_weights,
    decode_classes,
    encode_classes,
    learn_target,
)
