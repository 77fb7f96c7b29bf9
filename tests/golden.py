"""Small models of every kind, compared with a record of what they were.

``python tests/golden.py`` fits them and compares them with golden.json, ``--write`` writes that
file, ``--only NAME ...`` takes some of them. Nothing here depends on a clock: cells, centres and
threads are given, and budgets of time are without end.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import load_file

import parkrr
from parkrr import (
    Blend,
    Coarse,
    FeatureMap,
    Gaussian,
    Laplacian,
    Linear,
    LocalEngine,
    Matern,
    ParKClassifier,
    ParKRegressor,
    Polynomial,
    RayEngine,
    scan_parquet,
)

RECORD = Path(__file__).with_name("golden.json")
CLOSE = 1e-12  # of the spread: rounding in another order
ALLOWED = 1e-10  # of the spread
ALLOWED_ELSEWHERE = 1e-3  # on another kind of machine, which rounds differently
ASKED = 230  # rows: more than one thread answers at once
SHOWN = 12  # numbers of each answer that the record keeps
THREADS = 2
NO_CLOCK = 1e6  # seconds
ANY = {"engine": LocalEngine(THREADS), "progress": False, "random_state": 0}
# Problems that are well-conditioned, so that rounding in another order changes little.
FIXED = {"penalty": 1e-3, "metric": "euclidean", "blend": 1, "coarse": 0, **ANY}


class Built(NamedTuple):
    """A fitted model, rows to ask it about, and other arrays that belong to the record."""

    model: Any
    rows: Any
    more: dict


def smooth(n, d=3, seed=0):
    """Rows (n, d), their targets, and rows to ask about."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + ASKED, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=len(X))
    return X[:n], y[:n], X[n:]


def gaussian_direct(folder):
    X, y, asked = smooth(2500)
    how = {"n_cells": 6, "n_centers": 600, "centroids": "greedy", "precision": "float64"}
    model = ParKRegressor(Gaussian(1.5), solver="direct", **how, **FIXED)
    return Built(model.fit(X, y), asked, {})


def every_row_a_center(folder):
    """The solver of cells whose centres are all rows, noise that grows with the first feature."""
    X, y, asked = smooth(1600, seed=1)
    y = y + X[:, 0].clip(0) * np.random.default_rng(1).normal(size=len(y))
    model = ParKRegressor(Matern(2.0, nu=1.5), n_cells=4, **FIXED)
    return Built(model.fit(X, y), asked, {})


def laplacian_falkon_float32(folder):
    X, y, asked = smooth(3000, seed=2)
    how = {"n_cells": 5, "n_centers": 500, "centroids": "rpcholesky", "precision": "float32"}
    model = ParKRegressor(Laplacian(2.0), solver="falkon", max_iter=200, **how, **FIXED)
    return Built(model.fit(X.astype(np.float32), y), asked.astype(np.float32), {})


def matern_blend_coarse_outputs(folder):
    X, y, asked = smooth(2000, seed=3)
    levels = {"blend": Blend(3, 1.5), "coarse": Coarse(100, Matern(3.0))}
    model = ParKRegressor(Matern(1.5, nu=2.5), n_cells=8, n_centers=800, **FIXED | levels)
    return Built(model.fit(X, np.stack([y, np.cos(X[:, 1]) - y], 1)), asked, {})


def matern_half_weights_float32(folder):
    """Weights, a map that is given, cells as they come, a coarse level of the same kernel."""
    X, y, asked = smooth(2000, seed=4)
    w = np.random.default_rng(4).integers(0, 4, size=len(y)).astype(float)
    spot = FeatureMap(torch.ones(3).double(), torch.tensor([1.0, 0.5, 2.0]).double())
    how = {"metric": spot, "coarse": 60, "balance": False, "precision": "float32"}
    model = ParKRegressor(Matern(2.0, nu=0.5), n_cells=5, n_centers=500, **FIXED | how)
    return Built(model.fit(X, y, sample_weight=w), asked, {})


def polynomial_falkon(folder):
    X, y, asked = smooth(1500, seed=5)
    how = {"metric": "standard", "fit_intercept": False, "solver": "falkon", "max_iter": 500}
    kernel = Polynomial(3, 0.5)
    model = ParKRegressor(kernel, n_cells=3, n_centers=150, **FIXED | how | {"penalty": 1e-2})
    return Built(model.fit(X, y), asked, {})


def linear_one_cell(folder):
    X, y, asked = smooth(1500, seed=6)
    how = {"metric": "standard", "penalty": "auto"}
    model = ParKRegressor(Linear(), n_cells=1, n_centers=3, **FIXED | how)
    return Built(model.fit(X, y + X @ [1.0, 2.0, 3.0]), asked, {})


def global_falkon(folder):
    """One cell, for which few iterations are estimated to be faster than a direct solve."""
    X, y, asked = smooth(2500, seed=7)
    how = {"n_cells": 1, "n_centers": 700, "solver": "auto", "max_iter": 12, "tol": 1e-3}
    model = ParKRegressor(Gaussian(1.0), **how, **FIXED).fit(X, y)
    assert model.report_[0].solver == "falkon"
    return Built(model, asked, {})


def chosen_standard(folder):
    """Kernel, lengthscale, penalty, blend and coarse level are chosen, and then used again."""
    X, y, asked = smooth(1500, seed=8)
    model = ParKRegressor(metric="standard", n_cells=6, n_centers=600, **ANY).fit(X, y)
    again = ParKRegressor(**model.chosen_.params).fit(X, y)
    return Built(model, asked, {"again": again.predict(asked)})


def chosen_learned(folder):
    X, y, asked = smooth(600, d=4, seed=9)
    how = {"metric": "learned", "n_cells": 3, "n_centers": 600, "time_budget": NO_CLOCK}
    model = ParKRegressor(Matern(), blend=1, **how, **ANY)
    return Built(model.fit(X, y), asked, {})


def chosen_all(folder):
    """Everything but cells, centres and time has its default."""
    X, y, asked = smooth(600, d=4, seed=10)
    model = ParKRegressor(n_cells=4, n_centers=600, time_budget=NO_CLOCK, **ANY)
    return Built(model.fit(X * [1, 10, 100, 1000], y), asked * [1, 10, 100, 1000], {})


def few_rows(folder):
    """Each row is left out in turn; some of them are copies."""
    X, y, asked = smooth(200, seed=11)
    X[150:170], y[150:170] = X[:20], y[:20]
    w = np.random.default_rng(11).uniform(0.5, 2, size=len(y))
    return Built(ParKRegressor(**ANY).fit(X, y, sample_weight=w), asked, {})


def trips(n, seed):
    """A frame of numbers, words, truth values, dates and gaps, and a target."""
    rng = np.random.default_rng(seed)
    far, busy = rng.gamma(2.0, 3.0, size=n), rng.random(n) < 0.3
    town = rng.choice(["north", "south", "east", "west"], size=n, p=[0.4, 0.3, 0.2, 0.1])
    street = np.array([f"street {k}" for k in rng.integers(40, size=n)], dtype=object)
    hours = pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(8760, size=n), unit="h")
    y = far + 3 * (town == "south") + 2 * busy + np.cos(hours.hour / 4) + rng.normal(size=n)
    far[rng.random(n) < 0.05] = np.nan
    street[rng.random(n) < 0.05] = None
    columns = {"far": far, "busy": busy, "town": pd.Categorical(town), "street": street}
    return pd.DataFrame({**columns, "start": hours}), np.asarray(y)


def frame_of_words_and_dates(folder):
    X, y = trips(1200, 12)
    asked, _ = trips(ASKED, 13)
    how = {"metric": "standard", "penalty": "auto", "n_cells": 4, "n_centers": 400}
    return Built(ParKRegressor(Matern(4.0), **how, **ANY).fit(X, y), asked, {})


def classifier_temperature(folder):
    """Two classes that are alike, so that one factor for all scores is enough."""
    rng = np.random.default_rng(14)
    X = rng.normal(size=(400, 2))
    labels = rng.random(400) < 1 / (1 + np.exp(-3 * X[:, 0] * X[:, 1]))
    asked = rng.normal(size=(ASKED, 2))
    how = {"metric": "standard", "n_cells": 2, "n_centers": 100}
    model = ParKClassifier(**how, **ANY).fit(X, labels)
    assert model.chosen_.uncertainty == "temperature"
    return Built(model, asked, {})


def classifier_platt(folder):
    """Four classes with words for labels, one of them rarer, weights of classes and of rows."""
    rng = np.random.default_rng(15)
    X = rng.normal(size=(4000, 2))
    sharp = [0 * X[:, 0] + 1.5, 3 * X[:, 1] - 1, -X[:, 1], 6 * X[:, 0] - 7]  # the last most of all
    at = (np.stack(sharp, 1) + rng.gumbel(size=(4000, 4))).argmax(1)
    labels, w = np.array(["a", "b", "c", "rare"])[at], rng.uniform(0.5, 1.5, size=4000)
    how = {"n_cells": 3, "n_centers": 200, "class_weight": "balanced"}
    model = ParKClassifier(Matern(1.0), **how, **FIXED)
    model.fit(X, labels, sample_weight=w)
    assert model.chosen_.uncertainty == "platt"
    return Built(model, rng.normal(size=(ASKED, 2)), {})


def classifier_isotonic(folder):
    """Two classes whose probability is a staircase."""
    rng = np.random.default_rng(16)
    X = rng.uniform(-3, 3, size=(14_000, 2))
    stairs = np.select([X[:, 0] < -1, X[:, 0] < 1], [0.02, 0.5], 0.98)
    labels = (rng.random(len(X)) < stairs).astype(int)
    model = ParKClassifier(Gaussian(1.5), n_cells=6, n_centers=180, **FIXED | {"penalty": 1e-4})
    model.fit(X, labels)
    assert model.chosen_.uncertainty == "isotonic"
    return Built(model, rng.uniform(-3, 3, size=(ASKED, 2)), {})


def updated(folder):
    """Rows that are learned later, forgotten, and learned after loading, with decay."""
    X, y, asked = smooth(2000, seed=17)
    how = {"n_cells": 4, "n_centers": 200, "keep_statistics": True}
    model = ParKRegressor(Gaussian(1.2), **how, **FIXED | {"coarse": 40})
    model.fit(X[:1000], y[:1000])
    first = model.predict(asked)
    model.partial_fit(X[1000:1600], y[1000:1600], np.linspace(0.5, 2, 600))
    second = model.predict(asked)
    model.forget(X[:100], y[:100])
    model.save(folder / "half.park")
    model = parkrr.load(folder / "half.park").set_params(**ANY)
    model.partial_fit(X[1600:], y[1600:], decay=0.5)
    return Built(model, asked, {"first": first, "second": second})


def updated_classifier(folder):
    """A model that begins with partial_fit, and has not seen all of its classes then."""
    X, y, asked = smooth(1500, seed=18)
    labels = np.select([y < -0.7, y < 0.7], [1, 2], 3)
    two = np.flatnonzero(labels[:800] < 3)
    model = ParKClassifier(Matern(1.5), n_cells=3, n_centers=150, **FIXED)
    model.partial_fit(X[two], labels[two], classes=[1, 2, 3])
    model.partial_fit(X[800:], labels[800:], decay=0.8)
    return Built(model.forget(X[900:1000], labels[900:1000]), asked, {})


def files(folder, n, seed, n_files=3):
    """Parquet files of smooth rows with weights, words and labels, and rows to ask about."""
    X, y, asked = smooth(n, seed=seed)
    rng = np.random.default_rng(seed)

    def columns(Z):
        kind = rng.choice(["p", "q", None], size=len(Z), p=[0.5, 0.4, 0.1]).tolist()
        return {"a": Z[:, 0], "b": Z[:, 1], "c": Z[:, 2], "kind": kind}

    table = pa.table({**columns(X), "y": y, "w": rng.uniform(0.5, 2, size=n), "up": y > 0.5})
    folder.mkdir()
    size = -(-n // n_files)
    for k in range(n_files):
        part = table[k * size : (k + 1) * size]
        pq.write_table(part, folder / f"{k}.parquet", row_group_size=size // 4 + 1)
    return pa.table(columns(asked))


def written(model, source, folder, answers):
    """What predict_to writes, a column of numbers for each name."""
    model.predict_to(source, folder, outputs=answers)
    table = pq.read_table(folder)
    return {f"file {name}": np.array(table[name].to_pylist()) for name in table.column_names}


FEATURES = ["a", "b", "c", "kind"]


def files_in_memory(folder):
    asked = files(folder / "rows", 2000, 19)
    table = scan_parquet(folder / "rows", target="y", features=FEATURES, weight="w")
    how = {"metric": "standard", "n_cells": 4, "n_centers": 400}
    model = ParKRegressor(Gaussian(1.5), **FIXED | how).fit(table)
    more = written(model, table, folder / "out", ["prediction", "interval", "std", "novelty"])
    return Built(model, asked, more)


def files_chosen(folder):
    """From disk, penalty, blend and coarse level chosen on a sample."""
    asked = files(folder / "rows", 2500, 20)
    table = scan_parquet(folder / "rows", target="y", features=FEATURES)
    how = {"metric": "standard", "n_cells": 5, "n_centers": 250, "checkpoint": folder / "job"}
    return Built(ParKRegressor(Matern(3.0), **how, **ANY).fit(table), asked, {})


def files_several_passes(folder):
    """From disk by statistics: slices, and cells in groups for which memory suffices."""
    asked = files(folder / "rows", 12_000, 21)
    table = scan_parquet(folder / "rows", target="y", features=FEATURES, weight="w")
    how = {"metric": "standard", "n_cells": 48, "n_centers": 12_000, "max_memory": 1.2e9}
    how |= {"checkpoint": folder / "job", "keep_statistics": True, "blend": Blend(2, 1.0)}
    model = ParKRegressor(Matern(1.5), **FIXED | how).fit(table)
    assert len(list((folder / "job").iterdir())) > 32  # two files for each of 8 slices, two passes
    return Built(model, asked, {})


def files_falkon(folder):
    """A classifier from disk whose rows are sorted by cell."""
    asked = files(folder / "rows", 6000, 22)
    table = scan_parquet(folder / "rows", target="up", features=FEATURES, weight="w")
    how = {"metric": "standard", "n_cells": 5, "n_centers": 300, "checkpoint": folder / "job"}
    how |= {"class_weight": "balanced", "solver": "falkon", "penalty": 1e-4}
    model = ParKClassifier(Gaussian(1.5), **FIXED | how).fit(table)
    return Built(model, asked, written(model, table, folder / "out", ["probability", "novelty"]))


def files_ray(folder):
    """From disk with the tasks in workers of Ray."""
    asked = files(folder / "rows", 4000, 23)
    table = scan_parquet(folder / "rows", target=["y", "w"], features=FEATURES)
    engine = RayEngine(local=LocalEngine(THREADS))
    how = {"metric": "standard", "n_cells": 6, "n_centers": 300, "coarse": 50, "engine": engine}
    model = ParKRegressor(Gaussian(1.5), **FIXED | how, checkpoint=folder / "job")
    with cluster():
        model.fit(table)
        more = written(model, table, folder / "out", ["prediction", "interval"])
    return Built(model, asked, more)


@contextmanager
def cluster():
    """Two workers of Ray on this machine, unless the process is connected already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        import ray

        own = not ray.is_initialized()
        if own:
            store = {"object_store_memory": 80 << 20, "include_dashboard": False}
            ray.init(address="local", num_cpus=2, log_to_driver=False, **store)
        try:
            yield
        finally:
            if own:
                ray.shutdown()


MODELS = {
    build.__name__: build
    for build in (
        gaussian_direct,
        every_row_a_center,
        laplacian_falkon_float32,
        matern_blend_coarse_outputs,
        matern_half_weights_float32,
        polynomial_falkon,
        linear_one_cell,
        global_falkon,
        chosen_standard,
        chosen_learned,
        chosen_all,
        few_rows,
        frame_of_words_and_dates,
        classifier_temperature,
        classifier_platt,
        classifier_isotonic,
        updated,
        updated_classifier,
        files_in_memory,
        files_chosen,
        files_several_passes,
        files_falkon,
        files_ray,
    )
}


def answers_of(model, rows):
    """Everything that a model says about rows, by name."""
    first = [model.predict(rows[k : k + 1])[0] for k in range(3)]
    found = {"prediction": model.predict(rows), "one by one": np.array(first)}
    found["novelty"] = model.novelty(rows)
    if hasattr(model, "predict_proba"):
        found["probability"] = model.predict_proba(rows)
        found["decision"] = model.decision_function(rows)
    else:
        found["std"] = model.predict(rows, return_std=True)[1]
        found["lower"], found["upper"] = model.predict_interval(rows, coverage=0.9)
        found["quantile"] = model.predict_quantile(rows, [0.1, 0.5, 0.8])
    if hasattr(model, "feature_importances_"):
        found["importance"] = model.feature_importances_
    return found


def digest(array):
    """Of type, shape and bytes."""
    array = np.ascontiguousarray(array)
    head = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()


def numbers(array, classes):
    """An answer as float64, labels as their number."""
    if classes is not None and array.dtype.kind == classes.dtype.kind:
        array = np.searchsorted(classes, array)
    return np.asarray(array, dtype=np.float64).ravel()


def summary(array, classes):
    """Digest, shape, some numbers, and mean and spread of all, in which any change shows."""
    flat = numbers(array, classes)
    some = flat[np.linspace(0, len(flat) - 1, min(SHOWN, len(flat))).astype(int)]
    values = " ".join(float(x).hex() for x in (*some, flat.mean(), flat.std()))
    return {"sha256": digest(array), "shape": list(array.shape), "values": values}


def tensors_of(model, path):
    """Type, shape and digest of every tensor in the model's file."""
    model.save(path)
    tensors = load_file(path)
    return {
        name: f"{tensors[name].dtype} {tensors[name].shape} {digest(tensors[name])[:16]}"
        for name in sorted(tensors)
    }


def rounded(text):
    """Text whose numbers have six digits."""
    return re.sub(r"\d+\.\d*(e[-+]?\d+)?|\d+e[-+]?\d+", lambda x: f"{float(x[0]):.6g}", text)


def facts_of(model):
    """What was chosen, in words."""
    names = ("kernel", "penalty", "blend", "coarse", "n_cells", "n_centers", "precision")
    chosen = {name: rounded(repr(model.chosen_.params[name])) for name in names}
    solvers = sorted({cell.solver for cell in model.report_})
    own = {"cells": model.n_cells_, "iterations": model.n_iter_, "solvers": solvers}
    return {**own, "uncertainty": model.chosen_.uncertainty, "chosen": chosen}


@contextmanager
def two_threads():
    """Let torch use as many threads as the record was made with."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fitted(name):
    """The record of one model, fitted now."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, two_threads():
        model, rows, more = MODELS[name](Path(folder))
        said = answers_of(model, rows)
        path = Path(folder) / "model.park"
        tensors = tensors_of(model, path)
        # Rounding may differ: weights of several outputs lie in another order in memory.
        said["loaded"] = parkrr.load(path).set_params(**ANY).predict(rows)
    classes = getattr(model, "classes_", None)
    spread = 1.0 if classes is not None else float(np.ptp(said["prediction"]))
    together = hashlib.sha256(json.dumps(tensors).encode()).hexdigest()
    return {
        "facts": facts_of(model),
        "spread": spread,
        "answers": {key: summary(array, classes) for key, array in {**said, **more}.items()},
        "tensors_sha256": together,
        "tensors": tensors,
    }


def machine():
    """What rounding depends on."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = re.search(r"model name\s*: (.*)|$", info.read_text())[1] or cpu
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "capability": capability, "cpu": cpu}


def read_record():
    """The record as it was written."""
    return json.loads(RECORD.read_text())


class Verdict(NamedTuple):
    """Whether a model is what it was, and that in words."""

    good: bool
    text: str


def apart(old, new, spread):
    """How far two summaries of an answer are from each other, over the spread."""
    if old["shape"] != new["shape"]:
        return np.inf
    a, b = (np.array([float.fromhex(x) for x in one["values"].split()]) for one in (old, new))
    return 0.0 if np.array_equal(a, b) else float(np.abs(a - b).max() / spread)


def layout(tensors):
    """Names, types and shapes without digests."""
    return {name: text.rsplit(" ", 1)[0] for name, text in tensors.items()}


def compare(old, new, same_machine):
    """What became of a model: its record then and now."""
    allowed = ALLOWED if same_machine else ALLOWED_ELSEWHERE
    if old == new:
        return Verdict(True, "bit for bit")
    if sorted(old["answers"]) != sorted(new["answers"]):
        return Verdict(False, f"DIFFERENT answers {sorted(old['answers'].keys() ^ new['answers'])}")
    pairs = {name: (was, new["answers"][name]) for name, was in old["answers"].items()}
    gaps = {name: apart(*pair, old["spread"]) for name, pair in pairs.items()}
    worst = max(gaps, key=gaps.get)
    found = [f"max relative difference {gaps[worst]:.1e}, of {worst}"]
    bits = [name for name, (was, now) in pairs.items() if was["sha256"] != now["sha256"]]
    found += [f"answers not bit for bit: {', '.join(bits)}"] if bits else []
    found += differences(old["facts"], new["facts"])
    found += differences(old["tensors"], new["tensors"], "tensor ")
    same_words = old["facts"] == new["facts"] and layout(old["tensors"]) == layout(new["tensors"])
    good = bool(gaps[worst] <= allowed) and (same_words or not same_machine)
    close = next((e for e in (CLOSE, ALLOWED, allowed) if gaps[worst] <= e), None)
    return Verdict(good, f"{f'within {close:.0e}' if good else 'DIFFERENT'} ({'; '.join(found)})")


def differences(old, new, kind=""):
    """Names of what differs, with values if they are short."""
    names = [name for name in sorted({**old, **new}) if old.get(name) != new.get(name)]
    if kind:
        return [f"{kind}{', '.join(names)}"] if names else []
    return [f"{name} was {old.get(name)}, is {new.get(name)}" for name in names]


def judged(name, record):
    """The verdict on one model, fitted now."""
    new = json.loads(json.dumps(fitted(name)))
    return compare(record["models"][name], new, record["machine"] == machine())


def write(names):
    """Put these models into the record; all of them if it is of another kind of machine."""
    old = read_record() if RECORD.exists() else {"machine": None, "models": {}}
    kept = old["models"] if old["machine"] == machine() else {}
    if not kept and set(names) != set(MODELS):
        raise SystemExit("the record is of another kind of machine: write all models, no --only")
    for name in names:
        start = time.perf_counter()
        kept[name] = fitted(name)
        print(f"{name}: written, {time.perf_counter() - start:.1f} s", flush=True)
    models = {name: kept[name] for name in MODELS if name in kept}
    RECORD.write_text(json.dumps({"machine": machine(), "models": models}, indent=1) + "\n")


def main():
    """Compare with the record or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the record")
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    asked = parser.parse_args()
    if asked.write:
        write(asked.only)
        return 0
    record = read_record()
    if record["machine"] != machine():
        print(f"The record is of {record['machine']}, this is {machine()}: rounding differs, and")
        print(f"{ALLOWED_ELSEWHERE:.0e} of the spread is allowed instead of {ALLOWED:.0e}.")
    good = True
    for name in asked.only:
        start = time.perf_counter()
        verdict = judged(name, record)
        good &= verdict.good
        print(f"{name}: {verdict.text}, {time.perf_counter() - start:.1f} s", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
