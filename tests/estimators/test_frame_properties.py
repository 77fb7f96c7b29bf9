"""2,000 generated frames: the same values give the same numbers, or the same error, by one rule.

Values are drawn first, then the types that hold them, the frame around these, the order of columns,
and columns beside them. The oracle is the plainest frame of the same values.
"""

import warnings
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parkrr import Gaussian, ParKRegressor
from parkrr.data import as_table, learn_frame_encoder, learn_numbers
from parkrr.errors import ParameterError
from parkrr.estimators.input_rows import encode_frame, read_training_rows

N = 12


def cases(count):
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


START = datetime(2024, 1, 1)


def objects(values, missing=None):
    return pd.Series([missing if v is None else v for v in values], dtype=object)


def spelled(values, spell):
    return objects([None if v is None else spell(v) for v in values])


# How columns of each kind may be held; the first is the plainest.
NUMBERS = {
    "float64": lambda v: pd.Series([np.nan if x is None else x for x in v], dtype="float64"),
    "Float64": lambda v: pd.array(v, dtype="Float64"),
    "pyarrow": lambda v: pd.array(v, dtype="double[pyarrow]"),
    "None": objects,
    "NA": lambda v: objects(v, pd.NA),
    "text": lambda v: spelled(v, repr),
    "thousands": lambda v: spelled(v, lambda x: f"{x:,.1f}"),
    "category": lambda v: pd.Categorical([np.nan if x is None else x for x in v]),
}
BOOLEANS = {
    "boolean": lambda v: pd.array(v, dtype="boolean"),
    "pyarrow": lambda v: pd.array(v, dtype="bool[pyarrow]"),
    "None": objects,
    "NA": lambda v: objects(v, pd.NA),
    "yes": lambda v: spelled(v, lambda x: "Yes" if x else "no"),
    "true": lambda v: spelled(v, lambda x: "true" if x else "false"),
    "numbers": lambda v: pd.array([None if x is None else float(x) for x in v], dtype="Float64"),
}
DATES = {
    "datetime64": lambda v: pd.Series(v, dtype="datetime64[us]"),
    "pyarrow": lambda v: pd.array(v, dtype="timestamp[us][pyarrow]"),
    "None": objects,
    "text": lambda v: spelled(v, lambda x: x.isoformat(" ")),
    "zone": lambda v: spelled(v, lambda x: f"{(x + timedelta(hours=2)).isoformat()}+02:00"),
    "category": lambda v: pd.Categorical(pd.Series(v, dtype="datetime64[us]")),
}
TEXTS = {
    "objects": objects,
    "string": lambda v: pd.array(v, dtype="string"),
    "pyarrow": lambda v: pd.array(v, dtype="string[pyarrow]"),
    "category": pd.Categorical,
}
HOLDERS = {"number": NUMBERS, "boolean": BOOLEANS, "datetime": DATES, "category": TEXTS}
FAMILIES = {"number": "numbers", "boolean": "booleans", "datetime": "dates", "category": "text"}
# Which values each kind takes: all others are refused. Text is read value by value.
TAKES = {
    "number": {"number", "boolean"},
    "boolean": {"number", "boolean"},
    "datetime": {"datetime"},
}
VALUES = {
    "number": lambda rng: rng.choice(
        [-2.0, 0.0, 1.0, 3.5, *(rng.normal(size=N) * 1e4).round(1)], N
    ),
    "boolean": lambda rng: [True, False, *(rng.random(N - 2) < 0.5).tolist()],
    "datetime": lambda rng: [
        START + timedelta(seconds=int(s)) for s in rng.integers(10**8, size=N)
    ],
    "category": lambda rng: rng.choice(["red", "blue", "green", "02139"], N),
}
MISSING = ((), (2,), (3, 7, 8), tuple(range(2, N)))
FRAMES = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.from_arrow(as_table(frame)),
    "arrow": as_table,
}


def columns(most=2, kinds=tuple(VALUES)):
    """Columns by name: their kind, and values of which some may be missing but not all."""
    each = st.tuples(st.sampled_from(kinds), st.integers(0, 999), st.sampled_from(MISSING))
    return st.lists(each, min_size=1, max_size=most).map(fill)


def fill(drawn):
    return {
        f"c{k}": (kind, draw_values(kind, seed, gone)) for k, (kind, seed, gone) in enumerate(drawn)
    }


def draw_values(kind, seed, gone=()):
    values = np.array(VALUES[kind](np.random.default_rng(seed)), dtype=object)
    return [None if k in gone else v for k, v in enumerate(values.tolist())]


def plainest(values):
    return pd.DataFrame(
        {name: next(iter(HOLDERS[kind].values()))(v) for name, (kind, v) in values.items()}
    )


def held(draw, values):
    """The values in types that are drawn."""
    types = {name: draw(st.sampled_from(sorted(HOLDERS[k]))) for name, (k, _) in values.items()}
    return pd.DataFrame({name: HOLDERS[kind][types[name]](v) for name, (kind, v) in values.items()})


@st.composite
def disguises(draw):
    """Values, and a frame that holds them somehow, in some order, with columns beside them."""
    values = draw(columns())
    frame = held(draw, values)
    frame = frame[draw(st.permutations(list(frame.columns)))]
    if draw(st.booleans()):
        frame.insert(0, "more", draw(st.sampled_from(["text", 1.0, np.inf, None])))
    return values, draw(st.sampled_from(sorted(FRAMES))), frame


def learn(frame):
    """The encoder of a frame with targets 0, 1, 2 and so on, and its rows as numbers."""
    given = read_training_rows(frame, {})
    if given.table is None:
        return learn_numbers(given.numbers, given.names, given.types), given.numbers
    table = given.table
    fold = np.zeros(N, dtype=np.int8)
    encoder = learn_frame_encoder(table, np.arange(N * 1.0)[:, None], fold, None, {}).new_rows
    return encoder, encoder.encode(table)


@cases(700)
@given(disguises())
def test_new_rows_are_the_same_numbers_in_whatever_types_order_and_frame(case):
    values, frame, rows = case
    encoder, expected = learn(plainest(values))
    np.testing.assert_array_equal(encode_frame(encoder, True, FRAMES[frame](rows)), expected)


@cases(700)
@given(st.data())
def test_a_fit_learns_the_same_from_whatever_types_and_frame(data):
    values = data.draw(columns())
    frame = FRAMES[data.draw(st.sampled_from(sorted(FRAMES)))](held(data.draw, values))
    encoder, found = learn(frame)
    plain, expected = learn(plainest(values))
    assert (encoder.names, encoder.width) == (plain.names, plain.width)
    np.testing.assert_array_equal(found, expected)


@cases(500)
@given(columns(kinds=("number", "boolean", "datetime")), st.data())
def test_a_column_of_another_kind_is_taken_or_refused_by_one_rule(values, data):
    encoder, _ = learn(plainest(values))
    name = data.draw(st.sampled_from(sorted(values)))
    kind, _ = values[name]
    other = data.draw(st.sampled_from(sorted(set(VALUES) - {kind})))
    [holder, *_] = HOLDERS[other].values()
    rows = plainest(values).assign(**{name: holder(draw_values(other, 0))})
    if other in TAKES[kind]:
        assert np.isfinite(encode_frame(encoder, True, rows)).all()
        return
    rule = rf"column '{name}' must hold {FAMILIES[kind]} \(.* in fit\), but holds {FAMILIES[other]}"
    with pytest.raises(ParameterError, match=rule):
        encode_frame(encoder, True, rows)


@cases(100)
@given(columns(), st.data())
def test_an_estimator_predicts_the_same_or_refuses_infinity(values, data):
    model = ParKRegressor(Gaussian(), 1e-3, metric="standard", n_cells=1, blend=1, coarse=0)
    frame, plain, y = held(data.draw, values), plainest(values), np.arange(N * 1.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "columns of X tell nothing")
        model.set_params(random_state=0, keep_statistics=False).fit(frame, y)
    expected = model.predict(plain)
    assert np.isfinite(expected).all()
    reversed_columns = frame[frame.columns[::-1]]
    np.testing.assert_allclose(model.predict(reversed_columns), expected, rtol=1e-5, atol=1e-5)
    for name, (kind, _) in values.items():
        if kind == "number":
            wrong = plain.assign(**{name: np.where(np.arange(N) == 4, np.inf, 1.0)})
            with pytest.raises(ParameterError, match=f"column '{name}' of X .* infinity in 1 rows"):
                model.predict(wrong)
