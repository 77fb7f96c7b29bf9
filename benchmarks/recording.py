"""Where results go, and what machine and versions made them."""

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
# Parts of the package that change no result: its version, and what people see.
SHOWN = ("__init__.py", "cli", "plots", "report", "runtime/formatting.py")


def commit():
    """The last commit that changed what results depend on; a + says that it has changed since."""
    places = ["src", *(f":(exclude)src/parkrr/{place}" for place in SHOWN)]

    def git(*arguments):
        command = ["git", *arguments, "--", *places]
        return subprocess.check_output(command, cwd=RESULTS.parents[1], text=True).strip()

    return git("log", "-1", "--format=%h") + ("+" if git("status", "-s") else "")


def machine():
    """The processor, cores, memory, versions and commit, as a dict."""
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":")[1].strip() for line in cpuinfo.splitlines() if "model name" in line]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "python": platform.python_version(),
        **{name: version(name) for name in ("parkrr", "torch", "numpy", "scikit-learn")},
        "commit": commit(),
    }


def record(name, results, title, header, rows, notes=()):
    """Write NAME.json and NAME.md, print the table."""
    RESULTS.mkdir(exist_ok=True)
    made_by = machine()
    (RESULTS / f"{name}.json").write_text(
        json.dumps({"machine": made_by, "results": results}, indent=1) + "\n"
    )
    lines = [f"# {title}", "", f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    lines += ["", *notes, "", ", ".join(f"{key} {value}" for key, value in made_by.items())]
    text = "\n".join(lines) + "\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
