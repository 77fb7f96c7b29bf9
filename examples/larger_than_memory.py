"""A folder of Parquet files, fitted with less memory than its rows would take.

Made-up readings of sensors, 24 numbers a row, with time stamps, words and gaps. As numbers they
take 0.25 GB; a fit in memory holds about four copies of that beside the 0.7 GB of Python and torch:
1.7 GB. Here 1.5 GB are allowed for everything, and the peak is printed. A billion rows go the same
way.
"""

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parkrr import ParKRegressor, load, scan_parquet
from parkrr.kernels import Matern

SENSORS, MONTHS, ROWS = 24, 6, 150_000


def month(number):
    """A month of readings: power depends on three sensors, the hour and the site."""
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
            row_group_size=50_000,  # small row groups: a worker decodes one at a time
            use_dictionary=["site"],
        )
    rows = scan_parquet(folder, target="power")  # reads footers, nothing else
    print(f"{rows.n_rows:,} rows of {len(rows.features)} columns")

    # Leave kernel and penalty out to have them chosen on a sample, in a minute or two. Add
    # checkpoint="some-folder" and a fit that was killed goes on where it was.
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
    weights = zip(model.feature_names_in_, model.feature_importances_, strict=True)
    print("what matters:", ", ".join(name for name, w in weights if w > 0.05))

    model.save(f"{folder}/power.park")
    new = scan_parquet(f"{folder}/month-0.parquet")
    answers = Path(folder, "answers")
    load(f"{folder}/power.park").predict_to(new, answers, keys=["start", "power"])
    found = pq.read_table(answers / "part-00000.parquet")
    error = np.array(found["prediction"]) - np.array(found["power"])
    print(f"{len(found):,} answers, off by {np.abs(error).mean():.2f} on average")
