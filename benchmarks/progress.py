"""What a user sees while a fit runs: in a terminal, in a notebook and in a log.

    python benchmarks/progress.py        # a minute on two cores; the notebook needs nbclient

The terminal is a real pseudo-terminal: every redraw of the line is kept with its second. Ctrl-C is
sent after six seconds in a second fit.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from itertools import pairwise

from recording import record

COLUMNS = "110"
FIT = """
import signal
import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background has not
from parkrr import ParKRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(8000, 12))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
model = ParKRegressor(random_state=0).fit(X, y)
"""
LOG = "import logging\nlogging.basicConfig(level=logging.INFO)\n" + FIT
SHOWN = 12  # redraws in the table


def run_in_terminal(interrupt_after=None):
    """Every redraw of a line with its second, since the first of them."""
    main, other = pty.openpty()
    environment = {**os.environ, "COLUMNS": COLUMNS}
    process = subprocess.Popen([sys.executable, "-c", FIT], stderr=other, env=environment)
    os.close(other)
    frames, first, sent = [], None, False
    while process.poll() is None:
        if interrupt_after and first and not sent and time.time() - first > interrupt_after:
            process.send_signal(signal.SIGINT)
            sent = True
        if not select.select([main], [], [], 0.05)[0]:
            continue
        try:
            text = os.read(main, 65536).decode(errors="replace")
        except OSError:  # the terminal is closed
            break
        first = first or time.time()
        for line in re.split(r"[\r\n]+", text):
            clean = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rstrip()
            if clean:
                frames.append((round(time.time() - first, 2), clean))
    return {"returned": process.wait(), "frames": frames}


def run_in_notebook():
    """What a cell prints, or why there is none."""
    try:
        import nbformat
        from nbclient import NotebookClient
    except ImportError:
        return ["nbclient is not installed"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIT)])
    NotebookClient(notebook, timeout=300).execute()
    outputs = notebook.cells[0].outputs
    texts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs]
    return [line for text in texts for line in re.split(r"[\r\n]+", text) if line.strip()]


def main():
    terminal, interrupted = run_in_terminal(), run_in_terminal(interrupt_after=6)
    done = subprocess.run([sys.executable, "-c", LOG], capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if "parkrr" in line]
    results = {"terminal": terminal, "Ctrl-C": interrupted, "log": lines}
    results["notebook"] = run_in_notebook()
    frames = terminal["frames"]
    gaps = [b[0] - a[0] for a, b in pairwise(frames)]
    step = max(1, len(frames) // SHOWN)
    rows = [["terminal", second, f"`{line}`"] for second, line in frames[::step]]
    ends = [frame for frame in interrupted["frames"] if "parkrr:" in frame[1]]
    rows += [["Ctrl-C", second, f"`{line}`"] for second, line in ends]
    rows += [["log", "", f"`{line}`"] for line in lines]
    rows += [["notebook", "", f"`{line}`"] for line in results["notebook"][-2:]]
    notes = [
        f"{len(frames)} redraws, the longest gap between two of them {max(gaps):.1f} s. After "
        f"Ctrl-C the fit ended with a model (exit code {interrupted['returned']}) in "
        f"{interrupted['frames'][-1][0]:.0f} s instead of {frames[-1][0]:.0f}."
    ]
    record("progress", results, "What a fit shows", ["where", "second", "line"], rows, notes)


if __name__ == "__main__":
    main()
