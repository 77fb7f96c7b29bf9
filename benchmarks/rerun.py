"""Run again the benchmarks whose results are not of this version of the package.

A version is a commit that changed what results depend on (recording.py).

    python benchmarks/rerun.py --list         # the commit of each result
    python benchmarks/rerun.py                # all that are not of this version, about seven hours
    python benchmarks/rerun.py --since v0.1.0 # all that are of a commit before this one
    python benchmarks/rerun.py drift noise    # these, whatever their version

Benchmarks run one after another, the shorter ones first. Results that a script keeps from run to
run are dropped before, so that a file has those of one version. If a benchmark fails, its table and
data are as they were, and its name is printed at the end. After an interrupt the next call begins
with the benchmark that was interrupted. Libraries that docs/benchmarks.md names for each must be
installed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time

from recording import RESULTS, commit

# The script and arguments that write a result, more than one separated by a semicolon. Without any
# it is the script of the same name. FOLDER is a folder for rows and models of up to 20 GB.
BENCHMARKS = {
    "imports": "",
    "hot_loop": "",
    "drift": "",
    "narrowing": "",
    "sharing": "",
    "flights": "",
    "logistic": "",
    "noise": "",
    "prediction_speed": "",
    "prediction_peers": "",
    "rounding": "",
    "explanation": "",
    "export": "",
    "wide": "",
    "service": "",
    "service_mixed": "service --load mixed",
    "invariance": "",
    "repeatability": "",
    "losses": "",
    "guarantees": "",
    "balance": "",
    "validation_rows": "",
    "fuzz": "",
    "paper_table_higgs51k": "paper_table --task higgs51k",
    "fit_speed": "",
    "error_against_time": "",
    "tables": "",
    "tables_folds": "tables --folds --tables titanic insurance german"
    " --methods parkrr lightgbm-1000",
    "scale": "scale --folder FOLDER; scale --folder FOLDER --rows 1e7 --engine ray",
    "learning_curve": "learning_curve --folder FOLDER --rows 1e5 1e6 1e7;"
    "learning_curve --folder FOLDER --data rides --rows 1e7 1e8;"
    "learning_curve --folder FOLDER --data taxi1m --rows 100000 917148;"
    "learning_curve --folder FOLDER --data taxi1m --rows 917148 --in-memory;"
    "learning_curve --folder FOLDER --data houseelectric --rows 1e5 1e6 1639406;"
    "learning_curve --folder FOLDER --data houseelectric --rows 1639406 --in-memory;"
    "learning_curve --folder FOLDER --data airline3m --rows 1e5 1e6 1997887;"
    "learning_curve --folder FOLDER --data airline3m --rows 1997887 --in-memory",
    "scale_costs": "",
    "large_model": "large_model --folder FOLDER",
    "uncertainty": "",
    "plan": "",
    "peers": "",
    "effort": "",
    "autogluon_leaderboard": "",
    "checkpoints": "",
    "paper_table_taxi1m": "paper_table --task taxi1m",
    "paper_table_airline3m": "paper_table --task airline3m --trials 3",
    "paper_table_airline3m-cls": "paper_table --task airline3m-cls --trials 3",
}


def commit_of(name):
    """The commit that a result is of; "none" if it does not say, or if there is none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return "none"
    return json.loads(path.read_text())["machine"].get("commit", "none")


def is_current(name, since):
    """Whether the result is of that commit or a later one."""
    of = commit_of(name).rstrip("+")
    command = ["git", "merge-base", "--is-ancestor", since, of]
    return of != "none" and subprocess.call(command, cwd=RESULTS) == 0


def commands(name):
    """The scripts that write a result, each with its arguments."""
    return [line.split() for line in (BENCHMARKS[name] or name).split(";")]


def run(name):
    """Run one benchmark without its earlier results, which a failure or an interrupt puts back."""
    data, table = (RESULTS / f"{name}.{ending}" for ending in ("json", "md"))
    earlier = {path: path.read_text() for path in (data, table) if path.exists()}
    data.unlink(missing_ok=True)
    print(f"== {name}", flush=True)
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for script, *arguments in commands(name):
                given = [folder if one == "FOLDER" else one for one in arguments]
                subprocess.check_call([sys.executable, f"{RESULTS.parent / script}.py", *given])
    except BaseException:
        for path, text in earlier.items():
            path.write_text(text)
        raise
    print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of results")
    parser.add_argument("--list", action="store_true", help="show commits and run nothing")
    parser.add_argument("--since", default=commit().rstrip("+"), help="results of this are current")
    given = parser.parse_args()
    if unknown := set(given.names) - set(BENCHMARKS):
        parser.error(f"no such results: {', '.join(sorted(unknown))}. --list shows all names.")
    if given.list:
        for name in BENCHMARKS:
            print(f"{commit_of(name):10s}{name}")
        return
    names = given.names or [name for name in BENCHMARKS if not is_current(name, given.since)]
    failed = []
    for name in names:
        try:
            run(name)
        except subprocess.CalledProcessError as error:
            print(error, flush=True)
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
