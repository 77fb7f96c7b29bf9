"""Rows from Delta Lake, DuckDB, polars, Hugging Face and a generator.

Every source holds the same synthetic rides, so every model is the same to the last bit. Libraries
that are not installed are skipped: pip install deltalake duckdb polars datasets
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parkrr import Gaussian, ParKRegressor, scan, scan_parquet


def rides(rows=2_000):
    """Return rides: minutes depend on the distance, the hour and the city."""
    rng = np.random.default_rng(0)
    km, hour = rng.gamma(2.0, 2.0, rows), rng.uniform(0, 24, rows)
    city = rng.choice(["Bonn", "Oslo", "Rome"], rows)
    minutes = 3 * km * (1.5 + np.sin(hour / 24 * 2 * np.pi)) + 5 * (city == "Rome")
    minutes += rng.normal(size=rows)
    return pa.table({"km": km, "hour": hour, "city": city, "minutes": minutes})


def read_in_batches():
    """Return the rows of anything that yields Arrow batches, such as a client of a database."""
    return iter(TABLE.to_batches(max_chunksize=500))


def sources(folder):
    """Yield the name of each library that is installed and the rows it holds."""
    if find_spec("deltalake"):
        from deltalake import DeltaTable, write_deltalake  # noqa: PLC0415

        write_deltalake(folder / "delta", TABLE)
        yield "Delta Lake", DeltaTable(folder / "delta")
    if find_spec("duckdb"):
        import duckdb  # noqa: PLC0415

        database = duckdb.connect(folder / "rides.duckdb")
        database.register("arrow_table", TABLE)
        database.execute("create table rides as select * from arrow_table")
        yield "DuckDB", database.sql("select * from rides")
    if find_spec("polars"):
        import polars  # noqa: PLC0415

        yield "polars", polars.scan_parquet(folder / "rides.parquet")
    if find_spec("datasets"):
        from datasets import Dataset  # noqa: PLC0415

        yield "Hugging Face", Dataset(TABLE)
    yield "generator", read_in_batches


TABLE = rides()
NEW = rides(5).drop_columns(["minutes"])
model = ParKRegressor(
    kernel=Gaussian(2.0), penalty=1e-5, metric="standard", progress=False, random_state=0
)

with tempfile.TemporaryDirectory() as name:
    pq.write_table(TABLE, Path(name, "rides.parquet"))
    expected = model.fit(scan_parquet(f"{name}/rides.parquet", target="minutes")).predict(NEW)
    print(f"Parquet: {np.round(expected, 1)} minutes")
    for library, source in sources(Path(name)):
        rows = scan(source, target="minutes")
        same = np.array_equal(model.fit(rows).predict(NEW), expected)
        read = "its own files" if rows.content is None else "a copy"
        print(f"{library}: {rows.n_rows:,} rows from {read}, the same model: {same}")
    model.predict_to(rows, f"{name}/predictions", keys=["city"])
    print(f"mean absolute error of the last one: {model.score_files(rows)['mae']:.2f} minutes")
