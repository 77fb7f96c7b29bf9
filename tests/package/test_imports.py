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
