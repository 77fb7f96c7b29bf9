"""Seconds to import parkrr over those of torch and scikit-learn alone, each in a new process."""

import statistics
import subprocess
import sys

from recording import record

COMMANDS = {"torch and scikit-learn": "import torch, sklearn", "parkrr": "from parkrr import *"}
TIMED = "import time; s = time.perf_counter(); {}; print(time.perf_counter() - s)"
ROUNDS = 9


def seconds(code):
    command = [sys.executable, "-c", TIMED.format(code)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    rounds = [{name: seconds(code) for name, code in COMMANDS.items()} for _ in range(ROUNDS + 1)]
    rounds = rounds[1:]  # the first one fills the file cache
    ratios = [r["parkrr"] / r["torch and scikit-learn"] for r in rounds]
    rows = [
        [
            name,
            f"{statistics.median(r[name] for r in rounds):.2f}",
            f"{min(r[name] for r in rounds):.2f}",
        ]
        for name in COMMANDS
    ]
    notes = [
        f"parkrr over the two alone, in pairs: median {statistics.median(ratios):.2f}, from "
        f"{min(ratios):.2f} to {max(ratios):.2f}, {ROUNDS} pairs."
    ]
    record("imports", rounds, "Seconds to import", ["import", "median", "least"], rows, notes)


if __name__ == "__main__":
    main()
