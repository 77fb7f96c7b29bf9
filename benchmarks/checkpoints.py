"""Checkpoints of a hostile world: the same model, or an error that names the file and the way out.

    python benchmarks/checkpoints.py --disk 140 --bucket 60

Fits from files are killed at random moments, bits of their files are flipped before they resume
and while they run, several start at once in one folder, and files of rows mix types and columns.
Some trials are on a disk, some over S3's protocol on loopback (moto). Every fit is a process of its
own, and its model is compared with that of an undisturbed fit to the last bit.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import multiprocessing
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parkrr import ParKRegressor, scan_parquet
from parkrr.errors import ParKError
from parkrr.kernels import Gaussian
from recording import record

ROWS, FILES, GROUP = 3000, 3, 1000
SAME, REFUSED, DIFFERENT, FAILED = ENDS = ("same model", "refused by name", "different", "failed")
WAYS_OUT = ("use another folder", "the same call", "write the files", "delete", "resumes")
MACHINE = "import sys; from moto.server import main; main(sys.argv[1:])"
context = multiprocessing.get_context(
    "fork"
)  # before torch has threads: a start costs milliseconds


# Fits, each in a process of its own.


def fit(rows, checkpoint, result, changes):
    """Fit the rows and write the digest of the model, or the error, to a file."""
    model = ParKRegressor(
        **{"kernel": Gaussian(1.5), "penalty": 1e-6, "metric": "standard", "blend": 1, "coarse": 0}
        | {"n_cells": 4, "n_centers": 120, "random_state": 0, "precision": "float64"}
        | {"checkpoint": checkpoint, "progress": False, **changes}
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model.fit(scan_parquet(rows, target="y"))
            tensors = [*model.model_.weights, *model.model_.centers, model.model_.intercept]
            digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors))
            end = {"digest": digest.hexdigest()}
        except ParKError as error:
            end = {"error": f"{type(error).__name__}: {error}"}
        except Exception:
            end = {"failure": traceback.format_exc()}
    end["warnings"] = [str(warning.message) for warning in said]
    Path(result).write_text(json.dumps(end))


class Fit:
    """A fit that is running."""

    def __init__(self, rows, checkpoint, **changes):
        self.result = Path(tempfile.mktemp(prefix="fit-"))
        arguments = (rows, checkpoint, self.result, changes)
        self.process = context.Process(target=fit, args=arguments, daemon=True)
        self.process.start()

    def kill(self):
        self.process.kill()
        self.process.join()
        self.result.unlink(missing_ok=True)

    def end(self):
        """How it ended: the digest of a model, an error of parkrr, or another failure."""
        self.process.join(120)
        if self.process.is_alive():
            self.kill()
            return {"failure": "did not end in 120 seconds"}
        if not self.result.exists():
            return {"failure": f"exit code {self.process.exitcode}"}
        end = json.loads(self.result.read_text())
        self.result.unlink()
        return end


def verdict(end, wanted):
    """One of ENDS, and what was said if it is one of the bad ones."""
    if "digest" in end:
        return (SAME, "") if end["digest"] == wanted else (DIFFERENT, json.dumps(end["warnings"]))
    message = end.get("error", "")
    if "'" in message and any(way in message.lower() for way in WAYS_OUT):
        return REFUSED, message
    return FAILED, json.dumps(end)


# Folders on a disk and in a bucket.


class Disk:
    """Folders of this machine."""

    name = "disk"

    def __init__(self, root):
        self.root = root

    def url(self, folder):
        return str(self.root / folder)

    def read(self, folder):
        """The files of a folder."""
        return {path.name: path.read_bytes() for path in Path(self.url(folder)).iterdir()}

    def write(self, folder, name, content):
        path = Path(self.url(folder), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def remove(self, folder):
        shutil.rmtree(self.url(folder), ignore_errors=True)


class Bucket:
    """Folders of a bucket."""

    name = "bucket"

    def __init__(self, port):
        at = f"http://127.0.0.1:{port}"
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        self.client, self.port = boto3.client("s3", endpoint_url=at, **keys), port
        self.client.create_bucket(Bucket="rows")

    def url(self, folder):
        return f"s3://a:b@rows/{folder}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def keys(self, folder):
        found = self.client.list_objects_v2(Bucket="rows", Prefix=f"{folder}/").get("Contents", [])
        return [entry["Key"] for entry in found if not entry["Key"].endswith("/")]

    def read(self, folder):
        there = {}
        for key in self.keys(folder):
            with contextlib.suppress(self.client.exceptions.NoSuchKey):  # gone meanwhile
                content = self.client.get_object(Bucket="rows", Key=key)["Body"].read()
                there[key.rpartition("/")[2]] = content
        return there

    def write(self, folder, name, content):
        self.client.put_object(Bucket="rows", Key=f"{folder}/{name}", Body=content)

    def remove(self, folder):
        for key in self.keys(folder):
            self.client.delete_object(Bucket="rows", Key=key)


def start_server():
    """S3's protocol on loopback, in a process of its own; the process and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", MACHINE, "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, **quiet)
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, port
        time.sleep(0.1)
    raise RuntimeError("moto does not start")


# Trials. Each returns how it ended and what was done.


class World:
    """Where trials happen, and what an undisturbed fit gives."""

    def __init__(self, place, rows, seconds, wanted, other, finished):
        self.place, self.rows, self.seconds = place, rows, seconds
        self.wanted, self.other, self.finished = wanted, other, finished  # files of a whole fit


def flip(content, rng):
    """The same bytes with a random bit flipped."""
    changed = bytearray(content)
    at = int(rng.integers(8 * len(changed)))
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def kills(world, folder, rng):
    """Killed four times at random moments, then left to end."""
    url = world.place.url(folder)
    for _ in range(4):
        running = Fit(world.rows, url)
        time.sleep(rng.uniform(0, world.seconds))
        running.kill()
    return verdict(Fit(world.rows, url).end(), world.wanted)


def flips(world, folder, rng):
    """A bit of a random file flipped in a fit that is finished, or lacks some results."""
    names = sorted(world.finished)
    missing = {name for name in names if name.endswith(".numbers") and rng.random() < 0.3}
    missing = missing if rng.random() < 0.7 else set()
    there = {name: world.finished[name] for name in names if name not in missing}
    damaged = sorted(name for name in there if there[name])[rng.integers(len(there))]
    for name, content in there.items():
        world.place.write(folder, name, flip(content, rng) if name == damaged else content)
    end, message = verdict(Fit(world.rows, world.place.url(folder)).end(), world.wanted)
    if end == REFUSED and damaged not in message:
        return FAILED, f"{damaged} is not named: {message}"
    return end, f"{damaged}: {message}"


def flips_while_running(world, folder, rng):
    """A bit of a random file flipped at a random moment of a fit."""
    running = Fit(world.rows, world.place.url(folder))
    time.sleep(rng.uniform(0.2, 1) * world.seconds)
    try:
        there = world.place.read(folder)
    except OSError:  # not yet made, or a file went meanwhile
        there = {}
    names = sorted(name for name in there if there[name] and not name.startswith("."))
    damaged = names[rng.integers(len(names))] if names else None
    if damaged is not None:
        world.place.write(folder, damaged, flip(there[damaged], rng))
    first = verdict(running.end(), world.wanted)
    if first[0] not in (SAME, REFUSED):
        return first[0], f"{damaged}: {first[1]}"
    again = verdict(Fit(world.rows, world.place.url(folder)).end(), world.wanted)
    return again[0], f"{damaged}: {again[1]}"


def starts(world, folder, rng):
    """Two fits in one folder, one of them perhaps of another job or killed on the way."""
    url, way = world.place.url(folder), rng.integers(3)
    changes = {"penalty": 1e-3} if way == 1 else {}
    first = Fit(world.rows, url)
    time.sleep(rng.uniform(0, 1.2) * world.seconds if way else rng.uniform(0, 0.3))
    if way == 2:
        first.kill()
    second = Fit(world.rows, url, **changes)
    ends = [verdict(second.end(), world.other if way == 1 else world.wanted)]
    ends += [] if way == 2 else [verdict(first.end(), world.wanted)]
    if all(end == REFUSED for end, _ in ends):
        return FAILED, f"nobody went on: {ends}"
    if way != 1:  # whoever was refused may come back
        ends.append(verdict(Fit(world.rows, url).end(), world.wanted))
    return max(ends, key=lambda end: ENDS.index(end[0]))


WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.null()]
BROKEN = [pa.float32(), pa.float64()]
TEXT = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
DAYS = [pa.date32(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us")]


def schemas(world, folder, rng):
    """Files that mix types and columns, beside the same rows in one schema."""
    mixed, plain, refused = {}, {}, False
    kinds = {"whole": WHOLE, "half": BROKEN, "text": TEXT, "day": DAYS}
    drawn = {
        name: [few[k] for k in rng.integers(len(few), size=FILES)] for name, few in kinds.items()
    }
    absent = {name: rng.random(FILES) < 0.2 for name in drawn}
    if rng.random() < 0.25:  # a number in one file, text in another
        refused, absent["whole"] = True, np.zeros(FILES, dtype=bool)
        drawn["whole"] = [pa.int64()] * (FILES - 1) + [pa.string()]
    canonical = {"whole": pa.float64(), "half": pa.float64(), "text": pa.string(),
                 "day": pa.timestamp("us")}  # fmt: skip
    for k in range(FILES):
        n = ROWS // FILES
        values = {
            "whole": pa.array(rng.integers(-100, 100, n)),
            "half": pa.array(rng.integers(-100, 100, n) / 2),
            "text": pa.array(rng.choice(["a", "b", "c"], n)),
            "day": pa.array(rng.integers(0, 20_000, n), pa.int32()).cast(pa.date32()),
        }
        y = pa.array(rng.normal(size=n) + np.asarray(values["half"]) / 50)
        own, same = {"y": y}, {"y": y}
        for name, column in values.items():
            kind = drawn[name][k]
            gone = absent[name][k] or pa.types.is_null(kind)
            same[name] = pa.nulls(n, canonical[name]) if gone else column.cast(canonical[name])
            coded = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
            if not absent[name][k]:
                own[name] = pa.nulls(n) if gone else coded.cast(kind)
        order = rng.permutation(list(own))
        mixed[k] = pa.table({name: own[name] for name in (order if k else sorted(own))})
        plain[k] = pa.table({name: same[name] for name in same})
    names = list(dict.fromkeys(name for k in range(FILES) for name in mixed[k].schema.names))
    for part, tables in (("mixed", mixed), ("plain", plain)):
        for k, table in tables.items():
            sink = pa.BufferOutputStream()
            ordered = table.select(names) if part == "plain" else table
            pq.write_table(ordered, sink, row_group_size=GROUP)
            world.place.write(f"{folder}/{part}", f"{k}.parquet", sink.getvalue().to_pybytes())
    url = world.place.url
    end = Fit(url(f"{folder}/mixed"), url(f"{folder}/c")).end()
    wanted = {} if refused else Fit(url(f"{folder}/plain"), url(f"{folder}/d")).end()
    outcome = verdict(end, wanted.get("digest"))
    if refused != (outcome[0] == REFUSED) or (refused and "2.parquet" not in outcome[1]):
        return FAILED, json.dumps([refused, outcome, end])
    if not refused and not any("files have different columns" in said for said in end["warnings"]):
        alike = all(len(set(map(str, kinds))) == 1 for kinds in drawn.values())
        return (
            (SAME, "") if alike and not any(map(any, absent.values())) else (FAILED, "no warning")
        )
    return outcome


TRIALS = [kills, flips, flips_while_running, starts, schemas]


def prepare(place, folder):
    """Rows in files, and what an undisturbed fit gives."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.05 * rng.normal(size=ROWS)
    for k, part in enumerate(np.array_split(np.arange(ROWS), FILES)):
        sink = pa.BufferOutputStream()
        columns = {**{name: X[part, j] for j, name in enumerate("abc")}, "y": y[part]}
        pq.write_table(pa.table(columns), sink, row_group_size=GROUP)
        place.write(f"{folder}/rows", f"{k}.parquet", sink.getvalue().to_pybytes())
    rows = place.url(f"{folder}/rows")
    seconds, digests = [], []
    for name, changes in (("one", {}), ("two", {}), ("other", {"penalty": 1e-3})):
        start = time.perf_counter()
        digests.append(Fit(rows, place.url(f"{folder}/{name}"), **changes).end()["digest"])
        seconds.append(time.perf_counter() - start)
    assert digests[0] == digests[1] != digests[2]
    finished = place.read(f"{folder}/one")
    return World(place, rows, seconds[1], digests[0], digests[2], finished)


def run(place, trials, seed, results):
    """The trials of one place."""
    world = prepare(place, "base")
    for number in range(trials):
        kind = TRIALS[number % len(TRIALS)]
        end, message = kind(world, f"trial-{number}", np.random.default_rng([seed, number]))
        results.put((number, kind.__name__, place.name, end, message))
        place.remove(f"trial-{number}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--disk", type=int, default=140, help="trials on a disk")
    parser.add_argument("--bucket", type=int, default=60, help="trials over S3's protocol")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="after which no trial counts")
    options = parser.parse_args()
    start, counts, bad = time.perf_counter(), collections.Counter(), []
    server, port = start_server()
    results, running = context.Queue(), []
    try:
        with tempfile.TemporaryDirectory(prefix="checkpoints-") as root:
            for place in (Disk(Path(root)), Bucket(port)):
                arguments = (place, getattr(options, place.name), options.seed, results)
                running.append(context.Process(target=run, args=arguments))
                running[-1].start()
            left = options.disk + options.bucket
            while left and time.perf_counter() - start < 60 * options.minutes:
                with contextlib.suppress(queue.Empty):
                    number, kind, place, end, message = results.get(timeout=1)
                    counts[kind, place, end] += 1
                    left -= 1
                    if end in (DIFFERENT, FAILED):
                        bad.append((number, kind, place, end, message))
                        print(*bad[-1], flush=True)
            for process in running:
                process.kill()
                process.join()
    finally:
        server.kill()
        server.wait()
    tell(options, counts, bad, time.perf_counter() - start)


def tell(options, counts, bad, seconds):
    """Write down how it ended."""
    table = []
    for kind in TRIALS:
        for place in ("disk", "bucket"):
            ends = [counts[kind.__name__, place, end] for end in ENDS]
            table.append([kind.__doc__.rstrip("."), place, sum(ends), *ends])
    table.append(["all", "", *(sum(row[k] for row in table) for k in range(2, 7))])
    notes = [
        f"{sum(counts.values())} trials in {seconds:.0f} s, seed {options.seed}. Refused: an error "
        f"of parkrr that names the file or folder and the way out.",
    ]
    results = {"seed": options.seed, "seconds": seconds, "bad": bad}
    results["counts"] = {" ".join(key): count for key, count in sorted(counts.items())}
    title = "Killed, damaged and concurrent fits, and files of different columns"
    record("checkpoints", results, title, ["what happens", "where", "trials", *ENDS], table, notes)


if __name__ == "__main__":
    main()
