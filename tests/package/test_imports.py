"""What importing the package loads."""

import subprocess
import sys


def test_importing_parkrr_imports_neither_ray_nor_matplotlib_nor_typer():
    code = (
        "import sys; from parkrr import *; print([name for name in "
        "('ray', 'matplotlib', 'typer', 'rich') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


def test_a_fit_does_not_import_the_compiler_of_torch():
    code = (
        "import sys, numpy as np, parkrr; X = np.random.default_rng(0).normal(size=(80, 2)); "
        "parkrr.ParKClassifier(progress=False).fit(X, X[:, 0] > 0).predict_proba(X); "
        "parkrr.ParKRegressor(progress=False).fit(X, X[:, 0]).predict_interval(X); "
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
