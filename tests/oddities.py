"""What people pass by mistake, and what they type: odd arrays, frames, options and files."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import scipy.sparse as sp

from fuzz import cut, flipped, stuffed

N = 24


def rows(n=N, seed=0):
    """Two numbers a row."""
    return np.random.default_rng(seed).normal(size=(n, 2))


def some(values, value, seed=0):
    """Some entries replaced, as objects if need be."""
    there = np.random.default_rng(seed).random(values.shape) < 0.2
    kind = values.dtype if isinstance(value, float) else object
    return np.where(there, value, values.astype(kind))


# Of an array of floats (n, 2), something else with as many rows.
FEATURES = {
    "as they are": lambda X: X,
    "float16": lambda X: X.astype(np.float16),
    "longdouble": lambda X: X.astype(np.longdouble),
    "int8": lambda X: (10 * X).astype(np.int8),
    "uint64": lambda X: (2.0**63 + 1e10 * X).astype(np.uint64),
    "booleans": lambda X: X > 0,
    "complex": lambda X: X + 1j,
    "big endian": lambda X: X.astype(">f8"),
    "objects": lambda X: X.astype(object),
    "some None": lambda X: some(X, None),
    "some strings": lambda X: some(X, "a"),
    "lists inside": lambda X: np.array([[1, [2]]] * len(X), dtype=object),
    "numbers as text": lambda X: X.astype(str),
    "bytes": lambda X: X.astype("S4"),
    "strings": lambda X: np.full(X.shape, "a"),
    "dates": lambda X: np.full(X.shape, np.datetime64("2020-01-01")),
    "no dimension": lambda X: np.float64(X[0, 0]),
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[:, :, None],
    "no columns": lambda X: X[:, :0],
    "no rows": lambda X: X[:0],
    "one row": lambda X: X[:1],
    "one column": lambda X: X[:, :1],
    "three columns": lambda X: np.column_stack([X, X[:, 0]]),
    "some NaN": lambda X: some(X, np.nan),
    "some infinite": lambda X: some(X, np.inf),
    "huge": lambda X: 3e307 * X,
    "huge for float32": lambda X: (1e38 * X).astype(np.float32),
    "tiny": lambda X: 1e-310 * X,
    "near 1e15": lambda X: 1e15 + X,
    "copies of one row": lambda X: np.repeat(X[:1], len(X), 0),
    "copies of a column": lambda X: np.repeat(X[:, :1], 3, 1),
    "constant": np.ones_like,
    "columns first": np.asfortranarray,
    "backwards": lambda X: X[::-1, ::-1],
    "every other row": lambda X: np.repeat(X, 2, 0)[::2],
    "masked": lambda X: np.ma.masked_array(X, mask=X > 1),
    "records": lambda X: np.zeros(len(X), dtype=[("a", float), ("b", float)]),
    "sparse": sp.csr_matrix,
    "lists": lambda X: X.tolist(),
    "ragged": lambda X: [*X[1:].tolist(), [1.0]],
    "nothing": lambda X: None,
    "a dictionary": lambda X: {"a": 1},
    "a string": lambda X: "hello",
    "a number": lambda X: 5,
    "a generator": iter,
    "a frame": lambda X: pd.DataFrame(X, columns=["a", "b"]),
    "a frame without names": pd.DataFrame,
    "a frame with categories": lambda X: pd.DataFrame(
        {"a": X[:, 0], "b": ["u", None] * (len(X) // 2)}
    ),
    "a frame with two of a name": lambda X: pd.DataFrame(X, columns=["a", "a"]),
    "a frame of mixed objects": lambda X: pd.DataFrame({"a": [1, "x", None] * (len(X) // 3)}),
    "a frame without columns": lambda X: pd.DataFrame(index=range(len(X))),
    "a frame of complex numbers": lambda X: pd.DataFrame({"a": X[:, 0] + 1j, "b": "w"}),
    "a frame of lists": lambda X: pd.DataFrame({"a": [[1]] * len(X)}),
    "a frame of dates": lambda X: pd.DataFrame({"a": pd.date_range("2020", periods=len(X))}),
    "a frame of gaps": lambda X: pd.DataFrame({"a": [np.nan] * len(X), "b": [pd.NaT] * len(X)}),
    "a frame with infinity": lambda X: pd.DataFrame({"a": some(X, np.inf)[:, 0], "b": "w"}),
    "a frame of bytes": lambda X: pd.DataFrame({"a": [b"x"] * len(X)}),
    "a column": lambda X: pd.Series(X[:, 0]),
    "an Arrow table": lambda X: pa.table({"a": X[:, 0], "b": ["u", "v"] * (len(X) // 2)}),
    "an Arrow table of objects": lambda X: pa.table({"a": [{"k": 1}] * len(X)}),
    "an Arrow table with two of a name": lambda X: pa.table([X[:, 0], X[:, 1]], names=["a", "a"]),
    "an Arrow column": lambda X: pa.chunked_array([X[:, 0]]),
    "an Arrow table of nothing": lambda X: pa.table({"a": pa.nulls(len(X))}),
    "an Arrow table of times": lambda X: pa.table({"a": pa.array([1] * len(X), pa.time32("s"))}),
}
# Of an array of floats (n,), another target.
TARGETS = {
    "as they are": lambda y: y,
    "whole numbers": lambda y: np.arange(len(y)),
    "two labels": lambda y: y > 0,
    "strings": lambda y: np.where(y > 0, "a", "b"),
    "strings and numbers": lambda y: np.array([["a", 1][k % 2] for k in range(len(y))], object),
    "some NaN": lambda y: some(y, np.nan),
    "some infinite": lambda y: some(y, np.inf),
    "some None": lambda y: some(y, None),
    "one too few": lambda y: y[:-1],
    "two columns": lambda y: np.stack([y, y], 1),
    "one column": lambda y: y[:, None],
    "no columns": lambda y: np.zeros((len(y), 0)),
    "three dimensions": lambda y: y[:, None, None],
    "nothing": lambda y: None,
    "constant": np.zeros_like,
    "huge": lambda y: 3e307 * y,
    "tiny": lambda y: 1e-310 * y,
    "complex": lambda y: y + 1j,
    "dates": lambda y: np.arange(len(y)).astype("datetime64[D]"),
    "bytes": lambda y: np.full(len(y), b"a"),
    "a number": lambda y: 1.0,
    "a string": lambda y: "abc",
    "a dictionary": lambda y: {"a": 1},
    "sparse": lambda y: sp.csr_matrix(y[:, None]),
    "a column": pd.Series,
    "a column of categories": lambda y: pd.Series(pd.Categorical(np.where(y > 0, "a", "b"))),
    "an Arrow column": pa.array,
    "near 2^62": lambda y: 2**62 + np.arange(len(y)),
    "float16": lambda y: y.astype(np.float16),
    "masked": lambda y: np.ma.masked_array(y, mask=y > 1),
}
WEIGHTS = {
    "none": lambda n: None,
    "ones": np.ones,
    "negative": lambda n: -np.ones(n),
    "NaN": lambda n: np.full(n, np.nan),
    "infinite": lambda n: np.full(n, np.inf),
    "zero": np.zeros,
    "one row": lambda n: np.arange(n) == 1,
    "one too few": lambda n: np.ones(n - 1),
    "two columns": lambda n: np.ones((n, 2)),
    "one column": lambda n: np.ones((n, 1)),
    "strings": lambda n: ["a"] * n,
    "a number": lambda n: 2.0,
    "huge": lambda n: np.full(n, 1e308),
    "huge and tiny": lambda n: np.where(np.arange(n) % 2, 1e308, 1e-308),
    "tiny": lambda n: np.full(n, 1e-320),
    "complex": lambda n: np.ones(n) + 1j,
    "objects": lambda n: np.array([None] * n),
    "a dictionary": lambda n: {},
    "sparse": lambda n: sp.csr_matrix(np.ones((n, 1))),
    "a string": lambda n: "balanced",
}


# What is typed.

READING = {
    "--filter": ["a > 0", "a >", "y is null", "word == 'u'", "word > 1", "missing < 2", "", "flag"],
    "--delimiter": [";", ",", "tab", "", ";;", "\\n", "é"],
    "--decimal": [",", ".", ";", ""],
    "--encoding": ["latin-1", "utf-16", "nonsense", "", "rot13"],
    "--quote": ["'", '"', "", "''", ","],
    "--comment": ["#", "", "##", "a", "1"],
}
OPTIONS = {
    **READING,
    "--target": ["y", "y", "y", "label", "flag", "a,y", "y,y", "", "missing", "day"],
    "--features": ["a,b", "a", "a,a", "word", "day,a", "y", "missing", ",", "a,b,word,day"],
    "--weight": ["w", "w", "y", "missing", "word", ""],
    "--types": ["a=string", "a=float64", "a=int8", "a", "a=", "b=complex", "missing=string"],
    "--n-cells": ["1", "2", "0", "-1", "2.5", "x", str(10**20)],
    "--n-centers": ["1", "20", "0", "-3", str(10**18)],
    "--kernel": ["gaussian", "matern", "laplacian", "linear", "polynomial", "rbf", ""],
    "--metric": ["standard", "euclidean", "cosine", ""],
    "--penalty": ["1e-3", "0", "-1", "nan", "inf", "1e400", "1e-320", "x"],
    "--blend": ["1", "2", "0", "-1"],
    "--coarse": ["0", "5", "-1", "x"],
    "--max-memory": ["4GB", "1MB", "0", "-1", "x", "nan", "1e400", "..GB"],
    "--time-budget": ["0", "-1", "nan", "inf"],
    "--engine": ["local", "dask", ""],
    "--random-state": ["0", "-1", str(2**63), str(2**31), "x"],
    "--classify": [None],
    "--regress": [None],
    "--json": [None],
    "--debug": [None],
    "--unknown": [None, "1"],
}
ASKED = {
    **READING,
    "--keep-columns": [None],
    "--force": [None],
    "--keys": ["a", "word", "missing", "prediction", "a,a", ","],
    "--outputs": ["prediction", "interval", "std", "novelty", "probability", "prediction,std", "x"],
    "--coverage": ["0.5", "0.9", "0", "1", "-1", "nan", "0.9999", "x"],
    "--features": ["a,b", "a", "missing", "word"],
    "--types": OPTIONS["--types"],
    "--engine": OPTIONS["--engine"],
    "--json": [None],
    "--debug": [None],
}
BASIC = {"--kernel": "gaussian", "--metric": "standard", "--penalty": "1e-3", "--blend": "1"}
BASIC |= {"--coarse": "0", "--n-cells": "2"}
PLACES = ["out{}", "folder{}", "missing/out{}", "file{}/out{}", "."]


def arguments_of(options, pool, rng, most):
    """Options as arguments, up to `most` of them changed."""
    names = list(pool)
    changed = {
        name: pool[name][rng.integers(len(pool[name]))]
        for name in (names[rng.integers(len(names))] for _ in range(rng.integers(0, most + 1)))
    }
    pairs = {**options, **changed}.items()
    return [text for name, value in pairs for text in (name, value) if text is not None]


def place(rng, kind):
    """Where results go, most often where they can."""
    return PLACES[int(rng.integers(len(PLACES)) * (rng.random() < 0.3))].format(kind, kind)


def table(n=60):
    """Numbers with missing values, categories, dates, weights, a target and labels."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, n))
    y = np.sin(a) + b
    columns = {"a": a, "b": pa.array(b, mask=rng.random(n) < 0.1), "y": y}
    columns |= {"word": np.where(a > 0, "u", "v"), "w": rng.exponential(size=n)}
    columns["day"] = pa.array(np.arange(n, dtype="int32"), pa.int32()).cast(pa.date32())
    return pa.table(columns | {"label": np.where(y > 0, "high", "low"), "flag": y > 0})


def write_files(folder):
    """The table in every kind of file, and some that are nearly one; their names."""
    whole = table()
    pq.write_table(whole, folder / "good.parquet", row_group_size=20)
    pv.write_csv(whole, folder / "good.csv")
    with pa.ipc.new_file(folder / "good.arrow", whole.schema) as writer:
        writer.write_table(whole)
    pq.write_table(whole[:0], folder / "empty.parquet")
    pq.write_table(pa.table({"a": [[1]], "y": [1.0]}), folder / "nested.parquet")
    pq.write_table(whole[:1], folder / "one.parquet")
    text = {
        "empty.csv": b"",
        "header.csv": b"a,b,y\n",
        "ragged.csv": b"a,b,y\n1,2,3\n1,2\n",
        "twice.csv": b"a,a,y\n1,2,3\n",
        "latin.csv": "a,b,y\n1,2,3\ném,2,3\n".encode("latin-1"),
        "mixed.csv": b"a,b,y\n1,2,3\nx,,4\n,1e999,nan\n",
        "strings.csv": b"a,b,y\nx,y,z\nu,v,w\n",
        "constant.csv": b"a,b,y\n" + b"1,1,1\n" * 30,
        "few.csv": b"a,b,y\n1,2,3\n4,5,6\n",
        "quotes.csv": b'a,b,y\n"1,2,3\n4,5,6\n',
        "zero.csv": b"\0" * 100,
        "bom.csv": "﻿a,b,y\n1,2,3\n2,3,4\n".encode(),
        "nothing.parquet": b"",
        "text.parquet": b"not parquet",
        "text.arrow": b"not arrow",
        "csv.tsv": b"a,b,y\n1,2,3\n",
    }
    for name, content in text.items():
        (folder / name).write_bytes(content)
    return sorted(path.name for path in folder.iterdir())


def damaged(path, folder, rng):
    """A copy in that folder, changed at random."""
    change = [flipped, cut, stuffed][rng.integers(3)]
    other = folder / path.name
    other.write_bytes(change(path.read_bytes(), rng))
    return other
