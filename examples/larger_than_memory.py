"""Less memory than rows.

A folder of Parquet files is fitted with less memory than its rows would take.

The rows are synthetic sensor readings with dates, categories and missing values. As numbers they
take 0.25 GB. A fit in memory holds about four copies of them beside the 0.7 GB of Python and
torch: 1.7 GB. This fit may use 1.5 GB for everything, and the script prints its peak.
"""

import resource
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parkrr import Matern, ParKRegressor, load, plots, scan_parquet

SENSORS, MONTHS, ROWS = 24, 6, 150_000


def month(number):
    """Return a month of readings: power depends on three sensors, the hour and the site."""
    rng = np.random.default_rng(number)
    seconds = np.sort(rng.integers(0, 28 * 86_400, ROWS))
    start = np.datetime64(f"2024-0{number + 1}-01") + seconds.astype("m8[s]")
    readings = rng.standard_normal((SENSORS, ROWS), dtype=np.float32)
    site = rng.choice(["north", "south", "east"], ROWS)
    hour = seconds % 86_400 / 3600
    power = np.sin(readings[0]) + readings[1] * readings[2] + np.cos(hour / 24 * 2 * np.pi)
    power += np.where(site == "north", 1.0, 0.0) + 0.1 * rng.normal(size=ROWS)
    readings[3][rng.random(ROWS) < 0.05] = np.nan
    columns = {f"sensor_{k}": values for k, values in enumerate(readings)}
    return pa.table({"start": start, "site": site, **columns, "power": power})


with tempfile.TemporaryDirectory() as folder:
    for number in range(MONTHS):
        pq.write_table(
            month(number),
            f"{folder}/month-{number}.parquet",
            row_group_size=50_000,  # a worker decodes one row group at a time
            use_dictionary=["site"],
        )
    rows = scan_parquet(folder, target="power")  # reads the footers only
    print(f"{rows.n_rows:,} rows of {len(rows.features)} columns")

    # Leave out kernel and penalty to have them chosen on a sample, in a minute or two. With
    # checkpoint="some-folder" an interrupted fit resumes when you run it again.
    model = ParKRegressor(
        kernel=Matern(10.0),
        penalty=1e-7,
        metric="standard",
        n_cells=16,
        n_centers=2400,
        blend=1,
        coarse=0,
        max_memory="1.5GB",
        random_state=0,
    )
    print(model.plan(rows))
    started = time.perf_counter()
    model.fit(rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # of kilobytes
    print(f"fitted in {time.perf_counter() - started:.1f} s, peak {peak:.2f} of 1.50 GB")
    importances = zip(model.feature_names_in_, model.feature_importances_, strict=True)
    print("important features:", ", ".join(name for name, share in importances if share > 0.05))

    model.save(f"{folder}/power.park")
    new = scan_parquet(f"{folder}/month-0.parquet")
    output = Path(folder, "predictions")
    load(f"{folder}/power.park").predict_to(new, output, keys=["start", "power"])
    predicted = pq.read_table(output / "part-00000.parquet")
    error = np.array(predicted["prediction"]) - np.array(predicted["power"])
    print(f"{len(predicted):,} predictions, mean absolute error {np.abs(error).mean():.2f}")

plots.plot_error_by_cell(model)
plt.show()
