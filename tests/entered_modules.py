"""List the modules of the package that a fit and a prediction enter.

``python tests/entered_modules.py`` fits 2,000 rows with every parameter named, so that nothing is
left to choose, and prints the files in which a function is called, in the order of the first call.
They are what you have to read to follow such a fit from start to end.
"""

import sys
import threading
from pathlib import Path

import numpy as np

import parkrr
from parkrr import Gaussian, ParKRegressor

PACKAGE = Path(parkrr.__file__).parent
NAMED = {
    "kernel": Gaussian(1.0),
    "penalty": 1e-6,
    "metric": "standard",
    "n_cells": 4,
    "n_centers": 400,
    "blend": 1,
    "coarse": 0,
    "precision": "float64",
    "keep_statistics": False,
    "progress": False,
    "random_state": 0,
}
MOST = {"fit": 20, "predict": 8}  # modules that each may enter


def entered(function):
    """The modules in which function() calls a function, on any thread, in order."""
    modules = {}

    def profile(frame, event, _):
        path = Path(frame.f_code.co_filename)
        # The body of a module runs when it is imported, which is not a call.
        if event == "call" and frame.f_code.co_name != "<module>" and path.is_relative_to(PACKAGE):
            modules.setdefault(path.relative_to(PACKAGE).with_suffix("").as_posix())

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(modules)


def entered_modules():
    """The modules that a fit and a prediction enter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2000)
    model = ParKRegressor(**NAMED)
    return {
        "fit": entered(lambda: model.fit(X, y)),
        "predict": entered(lambda: model.predict(X)),
    }


def main():
    """Print them."""
    modules = entered_modules()
    for step, names in modules.items():
        print(f"{step} enters {len(names)} modules, at most {MOST[step]}:")
        print("".join(f"  {name}\n" for name in names))
    return any(len(names) > MOST[step] for step, names in modules.items())


if __name__ == "__main__":
    sys.exit(main())
