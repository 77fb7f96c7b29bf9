"""A model file read with numpy alone: what docs/modelfile.md says, as code that a test runs."""

import json
import struct

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "?"}
LEVELS = np.concatenate([[0.001], np.arange(1, 400) / 400, [0.999]])
DAY = 86400.0
TURNS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}


def read(path):
    """Tensors by name, as float64 where they are floats, and what is known of them."""
    with open(path, "rb") as file:
        data = file.read()
    [length] = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["parkrr"])
    body, tensors = data[8 + length :], {}
    for name, t in header.items():
        values = np.frombuffer(body[slice(*t["data_offsets"])], DTYPES[t["dtype"]])
        values = values.astype(float) if t["dtype"].startswith("F") else values
        tensors[name] = values.reshape(t["shape"])
    return tensors, about


def encoded(columns, table):
    """Columns of Python values as numbers, (n, d); None is a missing value."""
    return np.column_stack([encoded_column(column, table[column["name"]]) for column in columns])


def encoded_column(column, values):
    if column["kind"] == "Category":
        codes = dict(zip(column["values"], column["codes"], strict=True))
        return np.array([codes.get(value, column["other"]) for value in values])
    x = np.array([np.nan if value is None else value for value in values], float)
    missing = ~np.isfinite(x)
    x = np.where(missing, column["fill"], x)
    parts = [x]
    if column["kind"] == "DateTime":  # seconds since 1970, or since midnight
        parts = [x] if column["elapsed"] else []
        for turn in column["turns"]:
            angle = 2 * np.pi * x / TURNS[turn]
            parts += [np.sin(angle), np.cos(angle)]
    return np.column_stack([*parts, missing] if column["flagged"] else parts)


def mapped(X, t):
    """Rows (n, d) as the kernel sees them, (n, e)."""
    if "metric.origin" not in t:
        return X
    F = (X - t["metric.origin"]) * t.get("metric.scale", 1.0)
    if "metric.bounds" in t:
        F = F.clip(*t["metric.bounds"])
    if "metric.knots" in t:
        columns = zip(X.T, t["metric.knots"], t["metric.levels"], strict=True)
        F = np.column_stack([F, *(np.interp(x, knots, levels) for x, knots, levels in columns)])
    A = t.get("metric.matrix")
    return F if A is None else F * A if A.ndim == 1 else F @ A


def squares(X, Z):
    return ((X[:, None] - Z) ** 2).sum(2)


def kernel(k, X, Z):
    """K(X, Z), shape (n, m)."""
    if k["name"] == "linear":
        return X @ Z.T
    if k["name"] == "polynomial":
        return (k["gamma"] * X @ Z.T + k["coef0"]) ** k["degree"]
    r = np.sqrt(squares(X, Z)) / k["lengthscale"]
    if k["name"] == "gaussian":
        return np.exp(-(r**2) / 2)
    if k["name"] == "laplacian":
        return np.exp(-r)
    a = np.sqrt(2 * k["nu"]) * r
    return {0.5: 1, 1.5: 1 + a, 2.5: 1 + a + a**2 / 3}[k["nu"]] * np.exp(-a)


def distances(k, X, C):
    """What sorts centroids, (n, Q)."""
    if k["name"] != "polynomial":
        return squares(X, C)
    own = (k["gamma"] * (C**2).sum(1) + k["coef0"]) ** k["degree"]
    return own - 2 * kernel(k, X, C)


def shares(about, D):
    """How much each cell has to say for each row, (n, Q), from distances D (n, Q)."""
    k = min(about["blend"]["n_nearest"], D.shape[1] - 1)
    width, rows = about["blend"]["width"], np.arange(len(D))[:, None]
    order = np.argsort(D, 1, kind="stable")
    out = np.zeros(D.shape)
    if k <= 1 or width <= 0:
        out[rows, order[:, :1]] = 1
        return out
    gaps = D[rows, order[:, : k + 1]] - D[rows, order[:, :1]]
    reach = np.clip(gaps[:, -1:], np.finfo(float).tiny, width)
    w = np.maximum(1 - gaps[:, :-1] / reach, 0) ** 2
    out[rows, order[:, :k]] = w / w.sum(1, keepdims=True)
    return out


def cells(t):
    """Centres and weights of every cell."""
    weights = np.split(t["weights"], np.cumsum(t["sizes"])[:-1])
    parts = {}
    for wide, name in ((False, "centers"), (True, "centers.wide")):
        own = t["sizes"][t["wide"] == wide]
        parts[wide] = iter(np.split(t[name], np.cumsum(own)[:-1]))
    return [(next(parts[bool(wide)]), w) for wide, w in zip(t["wide"], weights, strict=True)]


def values(t, about, Z):
    """The model at mapped rows Z (n, e), shape (n, t)."""
    S = shares(about, distances(about["kernel"], Z, t["centroids"]))
    out = np.tile(t["intercept"], (len(Z), 1))
    for share, (centers, weights) in zip(S.T, cells(t), strict=True):
        at = share > 0
        out[at] += share[at, None] * (kernel(about["kernel"], Z[at], centers) @ weights)
    if about["coarse_kernel"] is not None:
        out += kernel(about["coarse_kernel"], Z, t["coarse.centers"]) @ t["coarse.weights"]
    out = np.exp(out) if about.get("link") == "log" else out
    return np.clip(out, *(S @ end for end in t["limits"])) if "limits" in t else out


def unknown(k, x, centers, noise):
    """What the 32 nearest centres leave of K(x, x), of one mapped row x (e,)."""
    near = np.argsort(distances(k, x[None], centers)[0], kind="stable")[:32]
    A = kernel(k, centers[near], centers[near])
    A[np.diag_indices(len(A))] += noise + 1e-8 * A.diagonal().max()
    v = kernel(k, x[None], centers[near])[0]
    return max(0.0, kernel(k, x[None], x[None])[0, 0] - v @ np.linalg.solve(A, v))


def std(t, about, Z):
    """Standard deviation of a new target at mapped rows Z (n, e), shape (n, t)."""
    k, there = about["kernel"], cells(t)
    cell = distances(k, Z, t["centroids"]).argmin(1)
    ridge = t["more.ridge"][cell]
    left = [unknown(k, z, there[q][0], r) for z, q, r in zip(Z, cell, ridge, strict=True)]
    return t["more.noise"][cell] * np.sqrt(1 + np.array(left) / ridge)[:, None]


def scale(t, about, Z):
    """How wide errors are at mapped rows Z (n, e), shape (n, t)."""
    how = about["facts"]["uncertainty"]
    cell = distances(about["kernel"], Z, t["centroids"]).argmin(1)
    factor, power = t["more.factors"][cell], how.get("power", 0.75)
    if how["scale"] == "posterior":
        return factor * std(t, about, Z) ** power
    if how["scale"] == "learned":
        log = kernel(how["kernel"], Z, t["more.centers"]) @ t["more.weights"]
        return factor * np.exp(power * log)
    return factor


def at_level(t, level):
    """The quantile of residuals over their scale, (t,)."""
    return np.array([np.interp(level, LEVELS, column) for column in t["more.quantiles"].T])


def interval(t, about, Z, coverage):
    """Both ends for mapped rows Z (n, e), shape (n, t) each: the shortest of five or fewer."""
    least = max(0.001, 1 / (about["facts"]["uncertainty"]["n"] + 1)) - 1e-12
    out = 1 - coverage
    equal = about["facts"]["uncertainty"].get("equal_tails", False)
    shares = (0.5,) if equal else (0.1, 0.25, 0.5, 0.75, 0.9)
    pairs = [(share * out, 1 - (1 - share) * out) for share in shares]
    known = [(a, b) for a, b in pairs if min(a, 1 - b) >= least]
    low, high = min(known, key=lambda pair: (at_level(t, pair[1]) - at_level(t, pair[0])).sum())
    mean, wide = values(t, about, Z), scale(t, about, Z)
    return mean + wide * at_level(t, low), mean + wide * at_level(t, high)


def probabilities(known, F):
    """Probabilities (n, k) of scores F (n, t); of two classes there is one score."""
    if known["name"] == "isotonic":
        columns = zip(F.T, known["scores"], known["values"], strict=True)
        P = np.column_stack([np.interp(f, at, p) for f, at, p in columns])
        return np.hstack([1 - P, P]) if F.shape[1] == 1 else P / P.sum(1, keepdims=True)
    D = F * known["factor"] + known["offset"]
    D = np.hstack([np.zeros_like(D), D]) if F.shape[1] == 1 else D
    E = np.exp(D - D.max(1, keepdims=True))
    return E / E.sum(1, keepdims=True)
