"""A model in use.

Detect drift before targets are known, export to ONNX, and ask the example service.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
from fastapi.testclient import TestClient

from parkrr import Gaussian, ParKRegressor, inspection

sys.path.insert(0, str(Path(__file__).parent / "service"))
import app


def trips(n, seed, mean_km, snow):
    """Trips of one month, with categories and missing values."""
    rng = np.random.default_rng(seed)
    shares = [0.6 - snow, 0.4, snow]
    month = pd.DataFrame(
        {
            "km": rng.normal(mean_km, 2, n).round(1),
            "sky": rng.choice(["sun", "rain", "snow"], n, p=shares),
        }
    )
    minutes = 3 * month["km"] + 8 * (month["sky"] == "snow") + rng.normal(size=n)
    month.loc[::20, "km"] = np.nan
    return month, minutes


june, minutes = trips(2000, 0, mean_km=6, snow=0.02)
settings = {"metric": "standard", "n_cells": 4, "blend": 1, "coarse": 0, "random_state": 0}
model = ParKRegressor(Gaussian(1.0), 1e-4, **settings).fit(june, minutes)

# Whether the rows of other months are like those of the fit, before their targets are known.
july, _ = trips(1000, 1, mean_km=6, snow=0.02)
december, _ = trips(1000, 2, mean_km=9, snow=0.4)
print("July:", inspection.drift(model, july).verdict)
print("December:", inspection.drift(model, december).verdict)

with tempfile.TemporaryDirectory() as folder:
    # Without Python: each column is an input, a missing number is NaN, a missing category "".
    model.to_onnx(f"{folder}/trips.onnx")
    session = onnxruntime.InferenceSession(f"{folder}/trips.onnx")
    columns = {"km": july["km"].to_numpy(), "sky": july["sky"].to_numpy(object)}
    [exported] = session.run(["prediction"], columns)
    print(f"ONNX differs by at most {np.abs(exported - model.predict(july)).max():.0e} minutes")

    # Over HTTP: as rows with names, or as tensors of the v2 inference protocol.
    model.save(f"{folder}/trips.park")
    client = TestClient(app.service(app.Settings(f"{folder}/trips.park")))
    rows = [{"km": 2.5, "sky": "rain"}, {"km": None, "sky": "snow"}]
    for row in client.post("/predict", json={"rows": rows}).json()["predictions"]:
        print("service:", {name: round(value, 2) for name, value in row.items()})
    tensors = [
        {"name": "km", "shape": [2], "datatype": "FP64", "data": [2.5, None]},
        {"name": "sky", "shape": [2], "datatype": "BYTES", "data": ["rain", "snow"]},
    ]
    response = client.post("/v2/models/trips/infer", json={"inputs": tensors}).json()
    print("v2 protocol:", [round(value, 2) for value in response["outputs"][0]["data"]])
