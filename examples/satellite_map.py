"""A map with clouds in it: temperatures, how sure they are, and where nothing was seen.

Land surface temperatures measured by a satellite, from the file satellite.parquet in the folder
PARKRR_DATA, or made up. What lay under clouds is kept aside to check the answers there.
Draws a picture, `python satellite_map.py map.png` draws it there.
"""

import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from parkrr import ParKRegressor
from parkrr.kernels import Laplacian
from parkrr.partition.centroids import Blend


def measured(path):
    """Longitude, latitude, temperature, and whether a cloud hid it."""
    table = pq.read_table(path)
    columns = (table[name].to_numpy().astype(float) for name in ("lon", "lat", "target"))
    return *columns, table["split"].to_numpy() == "test"


def made_up(width=500, height=300):
    """The same of a field with waves of many lengths, and round clouds."""
    rng = np.random.default_rng(0)
    x, y = (axis.ravel() / 120 for axis in np.meshgrid(np.arange(width), np.arange(height)))
    waves = rng.normal(size=(60, 2)) * rng.uniform(1, 8, (60, 1))
    field = sum(np.sin(k @ [x, y] + 7 * rng.random()) / np.linalg.norm(k) for k in waves)
    clouds = [np.hypot(x - a, y - b) < r for a, b, r in rng.uniform(0, (4, 2.5, 0.45), (18, 3))]
    temperature = 42 + 2 * field + 0.3 * rng.normal(size=len(x))
    return x - 96, y + 34, temperature, np.any(clouds, 0)


path = Path(os.environ.get("PARKRR_DATA", "."), "satellite.parquet")
lon, lat, temperature, hidden = measured(path) if path.exists() else made_up()
X = np.column_stack([lon, lat])
column, row = (np.unique(v, return_inverse=True)[1] for v in (lon.round(4), lat.round(4)))
shown = (column % 2 == 0) & (row % 2 == 0)  # a quarter of the pixels, which no model sees
seen = np.random.default_rng(0).permutation(np.flatnonzero(~hidden & ~shown))[:14_000]

# Kernel and penalty by hand: what is "auto" is chosen on rows drawn at random, which have
# neighbours on all sides, and a gap wants a kernel that is rough and reaches far.
model = ParKRegressor(
    kernel=Laplacian(0.5),
    penalty=1e-8,
    n_cells=5,
    blend=Blend(n_nearest=3, width=0.05),
    coarse=0,
    random_state=1,
).fit(X[seen], temperature[seen])

truth, cloudy = temperature[shown], hidden[shown]
prediction = model.predict(X[shown])
lower, upper = model.predict_interval(X[shown], coverage=0.9)
novelty = model.novelty(X[shown])

held = (lower <= truth) & (truth <= upper)
print(f"in the open {held[~cloudy].mean():.2f} of temperatures lie in their 0.9 interval,")
print(f"under clouds {held[cloudy].mean():.2f}: new kinds of places, where nothing is promised")
edges = np.quantile(novelty[cloudy], [0, 0.25, 0.5, 0.75, 1])
for low, high in pairwise(edges):
    there = cloudy & (low <= novelty) & (novelty <= high)
    off = np.abs(prediction - truth)[there].mean()
    print(f"novelty {low:.2f} to {high:.2f}: off by {off:.2f} degrees on average")

panels = [
    ("What the satellite saw", np.where(cloudy, np.nan, truth), "inferno", "degrees C"),
    ("Prediction", prediction, "inferno", "degrees C"),
    ("Width of the 0.9 interval", upper - lower, "viridis", "degrees C"),
    ("Novelty", novelty, "bone_r", "0 seen before, 1 never seen"),
]
figure = Figure(figsize=(11, 7.6), layout="constrained")
axes = figure.subplots(2, 2, sharex=True, sharey=True)
for axis, (title, values, colours, unit) in zip(axes.flat, panels, strict=True):
    grid = np.full((row.max() // 2 + 1, column.max() // 2 + 1), np.nan)
    grid[row[shown] // 2, column[shown] // 2] = values
    temperatures = np.quantile(truth, [0.002, 0.998])
    low, high = temperatures if colours == "inferno" else (0, None)
    image = axis.imshow(
        grid,
        origin="lower",
        extent=(lon.min(), lon.max(), lat.min(), lat.max()),
        aspect=1 / np.cos(np.radians(lat.mean())),
        cmap=colours,
        vmin=low,
        vmax=high,
    )
    axis.set_facecolor("0.85")
    axis.set_title(title, loc="left", fontsize=12)
    axis.tick_params(labelsize=8, length=2)
    axis.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axis, shrink=0.82, pad=0.015)
    bar.set_label(unit, fontsize=9)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)
figure.get_layout_engine().set(h_pad=0.06)
figure.supxlabel("longitude", fontsize=9)
figure.supylabel("latitude", fontsize=9)

picture = sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.mkdtemp(), "map.png")
figure.savefig(picture, dpi=110)
print(f"{picture} shows it")
