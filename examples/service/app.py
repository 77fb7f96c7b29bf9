"""A model as a web service: rows in, predictions with intervals and novelty out.

    PARKRR_MODEL=trips.park uvicorn --factory --app-dir examples/service app:service

README.md beside this file describes requests and responses.
"""

import asyncio
import json
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import date, datetime, timezone
from datetime import time as time_of_day
from typing import Annotated

import numpy as np
import pyarrow as pa
import torch
from fastapi import FastAPI, Request, Response
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    create_model,
)
from starlette.requests import ClientDisconnect

from parkrr import LocalEngine, load
from parkrr.errors import ParKError

DRAINED = 8  # times the limit is read and dropped, so that a client receives the response
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds
MOST_COMPLAINTS = 5  # in one message
LEFT = 499  # the client disconnected; only the metrics use this status
STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class Settings:
    """Settings from the environment variables PARKRR_MODEL, PARKRR_COVERAGE and so on.

    Parameters
    ----------
    model
        The file that `save` wrote.
    coverage
        Coverage of the intervals.
    most_rows, most_bytes
        Limits of one request.
    threads, waiting
        Requests that are computed at a time, and requests that may wait.
    read_seconds, predict_seconds
        Time limits for receiving a body and for its predictions.
    """

    model: str
    coverage: float = 0.9
    most_rows: int = 1000
    most_bytes: int = 2**20
    threads: int = 2
    waiting: int = 128
    read_seconds: float = 10.0
    predict_seconds: float = 30.0

    @classmethod
    def from_environment(cls):
        """Read the environment; other settings keep their defaults."""
        given = {f.name: os.environ.get(f"PARKRR_{f.name.upper()}") for f in fields(cls)}
        if not given["model"]:
            raise SystemExit("set PARKRR_MODEL to the file of a model that save() wrote")
        return cls(**{f.name: f.type(given[f.name]) for f in fields(cls) if given[f.name]})


class Refused(Exception):
    """A request that is refused, with a status and a reason."""

    def __init__(self, status, message):
        super().__init__(status, message)
        self.status, self.message = status, message


class Scorer:
    """Turns the bytes of a request into those of a response; independent of HTTP."""

    def __init__(self, settings):
        torch.set_num_threads(1)  # one core a request
        self.model = load(settings.model).set_params(engine=LocalEngine(n_threads=1))
        self.coverage, self.most_rows = settings.coverage, settings.most_rows
        self.kinds = kinds_of(self.model)
        self.batch = batch_of(self.kinds, settings.most_rows)
        something = None if self.model.columns_.has_fills else 0.0
        self.columns(self.table([dict.fromkeys(self.kinds, something)]))  # fail early

    def __call__(self, body):
        """Return the number of rows and the response."""
        try:
            rows = self.batch.model_validate_json(body).rows
        except ValidationError as error:
            raise refusal(error, self.most_rows) from None
        try:
            columns = self.columns(self.table([row.model_dump(by_alias=True) for row in rows]))
        except ParKError as error:  # such as a number so large that the kernel overflows
            raise Refused(422, str(error)) from None
        predictions = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        return len(rows), json.dumps({"predictions": predictions}, allow_nan=False).encode()

    def table(self, rows):
        """Return rows as the model expects them: with names if it was fitted to names."""
        columns = {name: [row[name] for row in rows] for name in self.kinds}
        if not hasattr(self.model, "feature_names_in_"):
            return np.column_stack(list(columns.values())).astype(float)
        arrays = {name: pa.array(columns[name], kind.arrow) for name, kind in self.kinds.items()}
        return pa.table(arrays)

    def columns(self, table):
        """Return the outputs by name, as lists."""
        model, outputs = self.model, {}
        outputs["prediction"] = model.predict(table).tolist()
        if hasattr(model, "classes_"):
            labels = model.classes_.astype(str).tolist()
            shares = model.predict_proba(table).tolist()
            outputs["probability"] = [dict(zip(labels, row, strict=True)) for row in shares]
        else:
            lower, upper = model.predict_interval(table, self.coverage)
            outputs |= {"lower": lower.tolist(), "upper": upper.tolist()}
        return outputs | {"novelty": model.novelty(table).tolist()}


@dataclass(frozen=True)
class Kind:
    """The type of a column: in JSON, as text for people, and in Arrow."""

    type: object
    text: str
    arrow: pa.DataType


def as_datetime(value):
    """Return a date, or a date and time, as a UTC datetime without a time zone."""
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    except OverflowError:
        raise ValueError("must be between the years 1 and 9999 in UTC") from None


def as_time(value):
    """Return a time of day, which must have no time zone."""
    if value.tzinfo is not None:
        raise ValueError("must have no time zone")
    return value


Number = Annotated[FiniteFloat | bool, AfterValidator(float)]
Date = Annotated[datetime | date, AfterValidator(as_datetime)]
Time = Annotated[time_of_day, AfterValidator(as_time)]
NUMBER = Kind(Number | None, "number or null", pa.float64())
NUMBER_ALWAYS = Kind(Number, "number", pa.float64())
CATEGORY = Kind(str | None, "text or null", pa.string())
DATETIME = Kind(Date | None, "date or time or null", pa.timestamp("us"))
TIME = Kind(Time | None, "time of day or null", pa.time64("us"))


def kinds_of(model):
    """Return the columns that a model expects, by name."""
    columns = [
        column for column in model.columns_.columns if column.width
    ]  # none of an ignored one
    if not model.columns_.has_fills:  # of an old file, which tells no medians
        return {column.name: NUMBER_ALWAYS for column in columns}
    return {column.name: kind_of(column) for column in columns}


def kind_of(column):
    """Return the kind of one column of the fit."""
    kind = type(column).__name__
    if kind == "Category":
        return CATEGORY
    if kind == "DateTime":
        return DATETIME if column.elapsed else TIME
    return NUMBER


def batch_of(kinds, most_rows):
    """Return the schema of a body; fields have aliases because a column may have any name."""
    named = {
        f"column{k}": (kind.type, Field(alias=name)) for k, (name, kind) in enumerate(kinds.items())
    }
    row = create_model("Row", __config__=STRICT, **named)
    rows = (list[row], Field(min_length=1, max_length=most_rows))
    return create_model("Batch", __config__=STRICT, rows=rows)


def refusal(error, most_rows):
    """Return an exception that describes what is wrong with a body."""
    reasons = {}
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        if one["type"] == "too_long":
            return Refused(413, f"rows must be at most {most_rows:,}; send several requests")
        place = ".".join(map(str, one["loc"][:3]))  # the fourth part names what a value might be
        reasons.setdefault(place, one["msg"])
    complaints = [f"{place}: {why}" if place else why for place, why in reasons.items()]
    more = len(complaints) - MOST_COMPLAINTS
    listed = "; ".join(complaints[:MOST_COMPLAINTS]) + (f"; and {more} more" if more > 0 else "")
    return Refused(400 if "" in reasons else 422, listed)


class Workers:
    """A bounded pool of threads with a bounded queue."""

    def __init__(self, settings):
        self.pool = ThreadPoolExecutor(settings.threads)
        self.places = threading.BoundedSemaphore(settings.threads + settings.waiting)
        self.seconds = settings.predict_seconds

    async def run(self, work, body, request):
        """Run work(body) on a thread, unless time is up or the client disconnects first.

        Work that has started runs to its end. Without a check for disconnected clients, two
        clients that sent 100 rows and hung up kept all threads busy, and 38 others waited for up
        to 4 s.
        """
        if not self.places.acquire(blocking=False):
            raise Refused(503, "too many requests are waiting; try again in a second")
        future = self.pool.submit(work, body)
        future.add_done_callback(lambda _: self.places.release())
        result, leaving = asyncio.wrap_future(future), asyncio.ensure_future(request.receive())
        first = asyncio.FIRST_COMPLETED
        done, late = await asyncio.wait({result, leaving}, timeout=self.seconds, return_when=first)
        for one in late:
            one.cancel()
        if result in done:
            return result.result()
        if leaving in done:
            raise Refused(LEFT, "the client left")
        raise Refused(503, f"not finished within {self.seconds:g} s; send fewer rows")


class Metrics:
    """Counters in the text format of Prometheus. Used by the event loop only."""

    def __init__(self):
        self.requests = Counter()
        self.buckets = Counter()
        self.rows, self.seconds = 0, 0.0

    def count(self, path, status, seconds):
        self.requests[path, status] += 1
        if path == "/predict":
            self.seconds += seconds
            self.buckets[next((b for b in BUCKETS if seconds <= b), float("inf"))] += 1

    def text(self):
        lines = ["# TYPE parkrr_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'parkrr_requests_total{{path="{path}",status="{status}"}} {count}')
        lines += ["# TYPE parkrr_rows_total counter", f"parkrr_rows_total {self.rows}"]
        lines.append("# TYPE parkrr_predict_seconds histogram")
        edges = [*BUCKETS, float("inf")]
        for edge, total in zip(edges, np.cumsum([self.buckets[e] for e in edges]), strict=True):
            name = "+Inf" if edge == float("inf") else edge
            lines.append(f'parkrr_predict_seconds_bucket{{le="{name}"}} {total}')
        lines.append(f"parkrr_predict_seconds_sum {self.seconds:.6f}")
        lines.append(f"parkrr_predict_seconds_count {total}")
        return "\n".join(lines) + "\n"


class Counted:
    """Counts every response, and clients that disconnect before one."""

    def __init__(self, app, metrics, paths):
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, seen = time.perf_counter(), {"status": 500}

        async def watched(message):
            seen["status"] = message.get("status", seen["status"])
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.count(path, seen["status"], time.perf_counter() - start)


async def read_body(request, most_bytes):
    """Return the body, if it is not too large."""
    said = int(request.headers.get("content-length", 0))
    parts, total = [], 0
    if said <= DRAINED * most_bytes:
        async for chunk in request.stream():
            total += len(chunk)
            if total <= most_bytes:
                parts.append(chunk)
            elif total > DRAINED * most_bytes:
                break
    if max(said, total) > most_bytes:
        raise Refused(413, f"the body must be at most {most_bytes:,} bytes; send fewer rows")
    return b"".join(parts)


async def received(request, settings):
    """Return the body, if it arrives complete and in time."""
    try:
        reading = read_body(request, settings.most_bytes)
        return await asyncio.wait_for(reading, settings.read_seconds)
    except asyncio.TimeoutError:
        raise Refused(408, f"the body took more than {settings.read_seconds:g} s") from None
    except ClientDisconnect:
        raise Refused(LEFT, "the client left") from None


def service(settings=None):
    """Return the application, with settings from the environment unless given."""
    settings = settings or Settings.from_environment()
    scorer, workers, metrics = Scorer(settings), Workers(settings), Metrics()

    @asynccontextmanager
    async def lifespan(app):
        yield
        workers.pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(title="parkrr", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Counted, metrics=metrics, paths=("/predict", "/health", "/metrics"))

    @app.exception_handler(Refused)
    async def refused(request, error):
        # The rest of the body is useless, and so is its connection.
        headers = {"connection": "close"} if error.status in (408, 413) else {}
        headers |= {"retry-after": "1"} if error.status == 503 else {}
        said = json.dumps({"detail": error.message}).encode()
        return Response(said, error.status, headers, "application/json")

    @app.post("/predict")
    async def predict(request: Request):
        body = await received(request, settings)
        n_rows, said = await workers.run(scorer, body, request)
        metrics.rows += n_rows
        return Response(said, media_type="application/json")

    @app.get("/health")
    async def health():
        columns = {name: kind.text for name, kind in scorer.kinds.items()}
        return {"status": "ok", "model": type(scorer.model).__name__, "columns": columns}

    @app.get("/metrics")
    async def shown():
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app
