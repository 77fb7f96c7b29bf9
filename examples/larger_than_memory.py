"""A folder of Parquet files with words, dates and gaps: fitted from disk, saved, applied."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parkrr import ParKRegressor, load, scan_parquet

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
for month in range(1, 4):
    n = 20_000
    start = np.datetime64(f"2024-0{month}-01") + rng.integers(0, 28 * 86_400, n).astype("m8[s]")
    hour = start.astype("M8[h]").astype(int) % 24
    zone = rng.choice(["centre", "harbour", "airport"], n)
    miles = rng.lognormal(1, 0.5, n)
    minutes = miles * np.where(zone == "centre", 6, 3) * (1 + np.exp(-((hour - 17) ** 2) / 8))
    gaps = np.where(rng.random(n) < 0.05, np.nan, miles)
    table = pa.table({"start": start, "zone": zone, "miles": gaps, "minutes": minutes})
    pq.write_table(table, folder / f"2024-{month}.parquet", row_group_size=5000)

trips = scan_parquet(folder, target="minutes")
print(f"{trips.n_rows:,} rows with {trips.features}")

# A checkpoint keeps rows on disk and survives interruptions. Leave kernel and penalty out to
# have them chosen; named, the example takes a second.
model = ParKRegressor(
    kernel="matern",
    penalty=1e-7,
    metric="standard",
    n_cells=8,
    n_centers=4000,
    max_memory="3GB",
    checkpoint=folder / "checkpoint",
    random_state=0,
)
model.fit(trips)
print(dict(zip(model.feature_names_in_, model.feature_importances_.round(2), strict=True)))

model.save(folder / "minutes.park")
load(folder / "minutes.park").predict_to(trips, folder / "answers", keys=["start", "minutes"])
answers = pq.read_table(folder / "answers" / "part-00000.parquet")
error = np.array(answers["prediction"]) - np.array(answers["minutes"])
print(f"{len(answers):,} answers, off by {np.abs(error).mean():.2f} minutes on average")
