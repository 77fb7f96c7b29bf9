"""The same seed on one core and on two, idle and beside four busy processes: one model or several?

    python benchmarks/repeatability.py [elevators airline_nyc13 ames adult]

Each fit has default parameters and runs in a process of its own. Models are compared by a digest of
all their tensors and of their predictions. Results are kept from run to run.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
from sklearn.model_selection import train_test_split

import real_data
from recording import RESULTS, record

NAMES = ("elevators", "airline_nyc13", "ames", "adult")
MOST_ROWS = 20_000
BUSY = "x = 0\nwhile True: x += 1"
CASES = {
    "one core": (1, 0),
    "two cores": (2, 0),
    "one core, busy": (1, 4),
    "two cores, busy": (2, 4),
}


def load(name):
    """Training and test rows, and the estimator for them."""
    from parkrr import ParKClassifier, ParKRegressor

    path = real_data.folder() / "tables" / f"{name}.parquet"
    if not path.exists():
        data = real_data.load(name)
        return data.X[:MOST_ROWS], data.y[:MOST_ROWS], data.X_test, data.y_test, ParKRegressor
    table = pq.read_table(path)
    task = json.loads(table.schema.metadata[b"park"])["task"]
    frame = table.to_pandas()
    X, y = frame.drop(columns="target"), frame["target"].to_numpy()
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.2, random_state=0, stratify=None if task == "reg" else y
    )
    return X, y, X_test, y_test, ParKRegressor if task == "reg" else ParKClassifier


def fit(name):
    """Print the digest of a model, its score and the seconds of its fit."""
    from parkrr import ParKClassifier

    X, y, X_test, y_test, kind = load(name)
    start = time.perf_counter()
    model = kind(random_state=0, progress=False).fit(X, y)
    seconds = time.perf_counter() - start
    own, digest = model.model_, hashlib.sha256()
    tensors = [own.metric.matrix, own.centroids, *own.centers, *own.weights, own.intercept]
    for tensor in tensors:
        digest.update(b"" if tensor is None else tensor.contiguous().numpy().tobytes())
    digest.update(repr(model.chosen_.params["kernel"]).encode())
    # Labels may be Python objects, whose bytes are addresses.
    predict = model.predict_proba if kind is ParKClassifier else model.predict
    digest.update(np.ascontiguousarray(predict(X_test[:200])).tobytes())
    facts = {"digest": digest.hexdigest()[:16], "score": model.score(X_test, y_test)}
    print(json.dumps({**facts, "seconds": seconds}))


def run_case(name, cores, busy):
    """A fit in a process of its own, beside so many busy ones."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        allowed = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:cores])
        command = ["taskset", "-c", allowed, sys.executable, __file__, "--fit", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        for other in others:
            other.kill()
            other.wait()


def main(names):
    kept = RESULTS / "repeatability.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for name in names:
        for case, given in CASES.items():
            results.setdefault(name, {})[case] = run_case(name, *given)
            print(name, case, results[name][case], flush=True)
            write(results)


def write(results):
    rows = []
    for name, cases in results.items():
        shown = [cases.get(case) for case in CASES]
        digests = {each["digest"] for each in cases.values()}
        seconds = " / ".join("-" if each is None else f"{each['seconds']:.0f}" for each in shown)
        score = next(iter(cases.values()))["score"]
        rows.append([name, f"{score:.4f}", seconds, f"{len(digests)} ({len(cases)} fits)"])
    header = ["data", "R2 or accuracy", f"seconds ({', '.join(CASES)})", "distinct models"]
    record("repeatability", results, "The same seed in four circumstances", header, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        fit(sys.argv[2])
    else:
        main(sys.argv[1:] or NAMES)
