"""Damaged and made-up model files: each must be refused by name, or answer.

    python benchmarks/fuzz.py --files 100000

Files of tests/fixtures are changed at random: bytes, and with knowledge of the format fields of the
header and tensors, so that what lies behind the first checks is reached as well. Two processes;
a batch that does not end is a hang. Seeds are fixed, so `--seed` and the number of a file that
failed bring it back.
"""

import argparse
import collections
import concurrent.futures
import copy
import faulthandler
import json
import multiprocessing
import resource
import struct
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

from parkrr import load
from parkrr.errors import ModelFileError, NotFiniteError
from parkrr.report import summarize
from recording import record

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
BATCH = 1000  # files
ENDS = ("refused", "answered", "overflowed")
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "?"}
# What stands where something else should.
ODD = [None, True, False, -1, 0, 1, 2, 7, 2**31, 2**62, 2**63, 10**30, -(2**63)]
ODD += [0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), [], {}, [[]], [0], [1.0]]
ODD += ["", "x", "nan", "learned", "ray", "../x", "\ud800", "é", ["a", "a"], list(range(50))]
ODD += [{"kernel": {}}, {"metric": 1}, {"pairs": [[[], 1]]}]


def bases():
    """The bytes of each fixture, and rows to ask it about."""
    found = []
    for path in sorted(FIXTURES.glob("*.park")):
        rows = json.loads(path.with_suffix(".json").read_text())["rows"]
        found.append((path.read_bytes(), as_rows(rows)))
    return found


def as_rows(rows):
    """Rows as an array, or as a table whose days are dates."""
    if isinstance(rows, list):
        return np.array(rows)
    days = pa.array(rows["day"], pa.int32()).cast(pa.date32())
    return pa.table({**rows, "day": days})


# Files as tensors and plain data, and back.


def taken_apart(data):
    """Tensors by name, and what the header says of parkrr."""
    [length] = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["parkrr"])
    body = data[8 + length :]
    tensors = {
        name: np.frombuffer(body[slice(*t["data_offsets"])], DTYPES[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items()
    }
    return tensors, about


def put_together(tensors, about, change=lambda header: None):
    """A file with a header that fits, until `change` has changed it."""
    names = {np.dtype(kind): name for name, kind in DTYPES.items()}
    header, body = {"__metadata__": {"parkrr": json.dumps(about)}}, b""
    for name, tensor in sorted(tensors.items(), key=lambda pair: -pair[1].itemsize):
        data = tensor.tobytes()
        span = [len(body), len(body) + len(data)]
        kind = names[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": span}
        body += data
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


# Changes of bytes.


def flipped(data, rng):
    """Some bits turned over."""
    changed = bytearray(data)
    for at in rng.integers(0, len(data), rng.integers(1, 9)):
        changed[at] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def flipped_header(data, rng):
    """Some bits of the header turned over."""
    [length] = struct.unpack("<Q", data[:8])
    return flipped(data[: 8 + length], rng) + data[8 + length :]


def cut(data, rng):
    """A part is missing: the end, the beginning, or something in between."""
    a, b = sorted(rng.integers(0, len(data), 2))
    return [data[:a], data[a:], data[:a] + data[b:]][rng.integers(3)]


def stuffed(data, rng):
    """A part is there twice, or something else is in between."""
    a, b = sorted(rng.integers(0, len(data), 2))
    b = min(b, a + 5000)
    more = [data[a:b], rng.bytes(b - a), b"\0" * (b - a), b"[" * (b - a)][rng.integers(4)]
    at = rng.integers(0, len(data))
    return data[:at] + more + data[at + rng.integers(2) * len(more) :]


def long_header(data, rng):
    """The header claims another length."""
    power = int(rng.integers(0, 64))
    return struct.pack("<Q", int(rng.integers(0, 2**63)) >> power) + data[8:]


# Changes of what is in the file.


def places(value, found=None, owner=None, key=None):
    """Every place in plain data: what it is part of, and under which key."""
    found = [] if found is None else found
    if owner is not None:
        found.append((owner, key))
    parts = list(enumerate(value)) if isinstance(value, list) else []
    for k, part in value.items() if isinstance(value, dict) else parts:
        places(part, found, value, k)
    return found


def disturbed(data, rng):
    """One place of plain data changed in place: replaced, deleted, or beside something new."""
    there = places(data)
    owner, key = there[rng.integers(len(there))]
    way = rng.integers(6)
    if way == 0:
        del owner[key]
    elif way == 1 and isinstance(owner, dict):
        owner[["unknown", "", "__reduce__", "kernel"][rng.integers(4)]] = owner[key]
    elif way == 2:
        other, name = there[rng.integers(len(there))]
        owner[key] = copy.deepcopy(other[name])
    elif way == 3 and isinstance(owner[key], int | float):
        owner[key] = owner[key] * [-1, 2, 0.5, 1e300][rng.integers(4)]
    else:
        owner[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])


def changed_facts(data, rng):
    """Plain data of the model changed."""
    tensors, about = taken_apart(data)
    for _ in range(rng.integers(1, 3)):
        disturbed(about, rng)
    return put_together(tensors, about)


def changed_header(data, rng):
    """What the header says of tensors changed."""
    tensors, about = taken_apart(data)
    return put_together(tensors, about, lambda header: disturbed(header, rng))


def changed_tensors(data, rng):
    """One tensor or two: other numbers, another dtype or shape, gone, or one more."""
    tensors, about = taken_apart(data)
    names = sorted(tensors)
    for _ in range(rng.integers(1, 3)):
        name = names[rng.integers(len(names))]
        change = TENSOR_CHANGES[rng.integers(len(TENSOR_CHANGES))]
        tensors[name] = change(tensors.get(name, np.zeros(3)), rng)
        if rng.random() < 0.1:
            tensors[["unknown", "more.unknown", names[0] + ".x"][rng.integers(3)]] = tensors[name]
        if rng.random() < 0.1:
            del tensors[name]
    return put_together(tensors, about)


def odd_numbers(tensor, rng):
    """Some entries are what no model has."""
    changed = tensor.copy().reshape(-1)
    odd = [np.nan, np.inf, -np.inf, 1e38, -1e38, 1e300, 1e-300, 0, -1, 2**31, 2**62]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = np.float64(odd[rng.integers(len(odd))]).astype(tensor.dtype)
    if changed.size:
        changed[rng.integers(0, changed.size, rng.integers(1, 4))] = value
    return changed.reshape(tensor.shape)


def odd_bits(tensor, rng):
    """Random bits of random entries."""
    data = tensor.tobytes()
    return np.frombuffer(flipped(data, rng) if data else data, tensor.dtype).reshape(tensor.shape)


def other_dtype(tensor, rng):
    """The same numbers in another dtype."""
    kind = list(DTYPES.values())[rng.integers(len(DTYPES))]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensor.astype(kind)


def other_shape(tensor, rng):
    """More or fewer rows or axes, or the axes in another order."""
    ways = [
        lambda: tensor[:-1] if tensor.ndim else tensor,
        lambda: np.concatenate([tensor, tensor[:1]]) if tensor.ndim else tensor,
        lambda: tensor.T,
        lambda: tensor.reshape(-1),
        lambda: tensor[..., None],
        lambda: tensor[..., :0],
        lambda: tensor.reshape(-1)[:1].reshape(()) if tensor.size else tensor,
        lambda: tensor.repeat(2, axis=-1) if tensor.ndim else tensor,
    ]
    return np.ascontiguousarray(ways[rng.integers(len(ways))]())


def shuffled(tensor, rng):
    """The same entries elsewhere."""
    return rng.permutation(tensor.flatten()).reshape(tensor.shape)


TENSOR_CHANGES = [odd_numbers, odd_bits, other_dtype, other_shape, shuffled]
CHANGES = [
    flipped,
    flipped_header,
    cut,
    stuffed,
    long_header,
    changed_facts,
    changed_facts,
    changed_header,
    changed_tensors,
    changed_tensors,
]


def mutated(data, number, seed):
    """The file of that number: what was done to it, and its bytes."""
    rng = np.random.default_rng([seed, number])
    change = CHANGES[number % len(CHANGES)]
    return change.__name__, change(data, rng)


def verdict(path, rows):
    """Load a file and ask it all there is to ask: one of ENDS, or an exception."""
    try:
        model = load(path)
    except ModelFileError as error:
        return "refused" if path.name in str(error) else f"refused without its name: {error}"
    summarize(model)
    try:
        answers = asked(model, rows)
    except NotFiniteError:
        return "overflowed"
    assert all(len(values) == len(rows) for values in answers)
    return "answered"


def asked(model, rows):
    """All answers of a model to rows."""
    answers = [model.predict(rows), model.novelty(rows)]
    if hasattr(model, "classes_"):
        return [*answers, model.predict_proba(rows), model.decision_function(rows)]
    bars = model.intervals_
    answers += [model.predict(rows, return_std=True)[1], model.predict_quantile(rows, [0.1, 0.5])]
    if bars.largest_coverage >= 0.5:
        answers += model.predict_interval(rows, coverage=0.5)
    return answers


def batch(numbers, seed):
    """Verdicts on files of these numbers, by how they were changed, and what failed."""
    counts, failures, there = collections.Counter(), [], bases()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that a file made up may overflow
        path = Path(folder, "model.park")
        for number in numbers:
            data, rows = there[number // len(CHANGES) % len(there)]
            how, changed = mutated(data, number, seed)
            path.write_bytes(changed)
            try:
                end = verdict(path, rows)
            except Exception:
                end = traceback.format_exc(limit=-3)
            if end not in ENDS:
                failures.append((int(number), how, end))
            counts[how, end if end in ENDS else "failed"] += 1
    return counts, failures


def watched(numbers, seed, patience):
    """A batch that ends in so many seconds; also MB before it and at most."""
    before = verdicts_on_fixtures()
    faulthandler.dump_traceback_later(patience, exit=True)  # the only end of a hang
    found = batch(numbers, seed)
    faulthandler.cancel_dump_traceback_later()
    return *found, before, peak()


def verdicts_on_fixtures():
    """Peak memory after sound files were asked the same questions."""
    for path, (_, rows) in zip(sorted(FIXTURES.glob("*.park")), bases(), strict=True):
        assert verdict(path, rows) == "answered"
    return peak()


def peak():
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=float, default=1e5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--patience", type=float, default=300, help="seconds for 1,000 files")
    options = parser.parse_args()
    numbers = np.array_split(np.arange(int(options.files)), max(1, int(options.files) // BATCH))
    counts, failures, most, start = collections.Counter(), [], {}, time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.processes, context) as pool:
        jobs = [pool.submit(watched, part, options.seed, options.patience) for part in numbers]
        for job in concurrent.futures.as_completed(jobs):
            found, failed, before, after = job.result()
            counts, failures = counts + found, failures + failed
            most = {
                "before": min(before, most.get("before", before)),
                "after": max(after, most.get("after", after)),
            }
    tell(options, counts, failures, most, time.perf_counter() - start)


def tell(options, counts, failures, most, seconds):
    """Write down how it ended."""
    for number, how, trace in failures[:10]:
        print(f"file {number}, {how}: {trace}")
    ends = (*ENDS, "failed")
    ways = sorted({how for how, _ in counts})
    rows = [[how, *(f"{counts[how, end]:,}" for end in ends)] for how in ways]
    rows.append(["all", *(f"{sum(counts[how, end] for how in ways):,}" for end in ends)])
    notes = [
        f"{int(options.files):,} files in {seconds:.0f} s. A process took {most['before']:.0f} MB "
        f"after sound files, and {most['after']:.0f} MB at most.",
        "Answered: what was changed passes, and every question was answered. Overflowed: numbers "
        "pass, but predictions were refused because they are not finite.",
    ]
    results = {"files": int(options.files), "seed": options.seed, "seconds": seconds}
    results |= {"peak_mb": most, "failures": failures}
    results["counts"] = {how: {end: counts[how, end] for end in ends} for how in ways}
    record("fuzz", results, "Damaged model files", ["change", *ends], rows, notes)


if __name__ == "__main__":
    main()
