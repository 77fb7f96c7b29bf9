"""A map under clouds.

Fill the clouds in a temperature map, with prediction intervals and novelty.

The rows are land surface temperatures from satellite.parquet in the folder PARKRR_DATA, or a
synthetic field if that file is missing. Pixels under clouds are never fitted, only used to check
the predictions. `python satellite_map.py map.png` writes the plot to map.png.
"""

import os
import sys
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq

from parkrr import Blend, Laplacian, ParKRegressor


def read_map(path):
    """Return longitude, latitude, temperature, and whether a cloud hides the pixel."""
    table = pq.read_table(path)
    columns = (table[name].to_numpy().astype(float) for name in ("lon", "lat", "target"))
    return *columns, table["split"].to_numpy() == "test"


def synthetic_map(width=500, height=300):
    """Return the same for a field with waves of many lengths, and round clouds."""
    rng = np.random.default_rng(0)
    x, y = (axis.ravel() / 120 for axis in np.meshgrid(np.arange(width), np.arange(height)))
    waves = rng.normal(size=(60, 2)) * rng.uniform(1, 8, (60, 1))
    field = sum(np.sin(k @ [x, y] + 7 * rng.random()) / np.linalg.norm(k) for k in waves)
    clouds = [np.hypot(x - a, y - b) < r for a, b, r in rng.uniform(0, (4, 2.5, 0.45), (18, 3))]
    temperature = 42 + 2 * field + 0.3 * rng.normal(size=len(x))
    return x - 96, y + 34, temperature, np.any(clouds, 0)


path = Path(os.environ.get("PARKRR_DATA", "."), "satellite.parquet")
lon, lat, temperature, hidden = read_map(path) if path.exists() else synthetic_map()
X = np.column_stack([lon, lat])
column, row = (np.unique(v, return_inverse=True)[1] for v in (lon.round(4), lat.round(4)))
shown = (column % 2 == 0) & (row % 2 == 0)  # a quarter of the pixels, never fitted
seen = np.random.default_rng(0).permutation(np.flatnonzero(~hidden & ~shown))[:14_000]

# Kernel and penalty are set by hand. "auto" chooses them on rows drawn at random, which have
# neighbours on all sides; a hole in the map needs a rough kernel with a long lengthscale.
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

covered = (lower <= truth) & (truth <= upper)
print(f"coverage of 0.9 intervals under a clear sky: {covered[~cloudy].mean():.2f}")
print(f"coverage under clouds, far from training rows: {covered[cloudy].mean():.2f}")
edges = np.quantile(novelty[cloudy], [0, 0.25, 0.5, 0.75, 1])
for low, high in pairwise(edges):
    there = cloudy & (low <= novelty) & (novelty <= high)
    error = np.abs(prediction - truth)[there].mean()
    print(f"novelty {low:.2f} to {high:.2f}: mean absolute error {error:.2f} degrees")

panels = [
    ("Measured by the satellite", np.where(cloudy, np.nan, truth), "inferno", "degrees C"),
    ("Prediction", prediction, "inferno", "degrees C"),
    ("Width of the 0.9 interval", upper - lower, "viridis", "degrees C"),
    ("Novelty", novelty, "bone_r", "0 near training rows, 1 far away"),
]
figure = plt.figure(figsize=(11, 7.6), layout="constrained")
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

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
plt.show()
