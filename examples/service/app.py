"""A model as a web service: rows in, predictions with intervals and novelty out.

    PARKRR_MODEL=trips.park uvicorn --factory --app-dir examples/service app:service

README.md beside this file describes requests and responses. Requests that wait are computed
together: in a batch of 100 a row took 0.3 ms, alone 8 ms.
"""

import asyncio
import json
import os
import threading
import time
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import date, datetime, timezone
from datetime import time as time_of_day
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import torch
from fastapi import FastAPI, Request, Response
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    create_model,
)
from starlette.requests import ClientDisconnect

import parkrr
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
    batch_rows
        Requests that wait are computed together until they have so many rows.
    threads, waiting
        Batches that are computed at a time, and requests that may wait.
    read_seconds, predict_seconds
        Time limits for receiving a body and for its predictions.
    """

    model: str
    coverage: float = 0.9
    most_rows: int = 1000
    most_bytes: int = 2**20
    batch_rows: int = 256
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


class Parsed:
    """The rows of one request, the outputs it wants, and how its response is written."""

    def __init__(self, rows, outputs, write):
        self.rows, self.outputs, self.write = rows, outputs, write


class Scorer:
    """Turns the bytes of requests into those of responses; independent of HTTP."""

    def __init__(self, settings):
        torch.set_num_threads(1)  # one core a batch
        self.model = load(settings.model).set_params(engine=LocalEngine(n_threads=1))
        self.name = Path(settings.model).stem
        self.coverage, self.most_rows = settings.coverage, settings.most_rows
        self.kinds = kinds_of(self.model)
        second = "probability" if hasattr(self.model, "classes_") else "interval"
        self.outputs = ("prediction", second, "novelty")
        self.batch = batch_of(self.kinds, self.outputs, settings.most_rows)
        # Fail early, and know the types of all outputs.
        self.example = self.predict([dict.fromkeys(self.kinds)], self.outputs)

    def parse_rows(self, body):
        """Read {"rows": [...], "outputs": [...]}."""
        try:
            parsed = self.batch.model_validate_json(body)
        except ValidationError as error:
            raise refusal(error, self.most_rows) from None
        rows = [row.model_dump(by_alias=True) for row in parsed.rows]
        return Parsed(rows, parsed.outputs, self.write_rows)

    def parse_tensors(self, body):
        """Read a request of the v2 inference protocol."""
        try:
            request = InferenceRequest.model_validate_json(body)
        except ValidationError as error:
            raise refusal(error, self.most_rows) from None
        parsed = self.parse_rows(json.dumps({"rows": rows_of(request, self.kinds)}).encode())
        wanted = [output.name for output in request.outputs]
        unknown = [name for name in wanted if name not in self.example]
        if unknown:
            raise Refused(422, f"outputs must be among {list(self.example)}, got {unknown}")

        def write(columns):
            chosen = {name: columns[name] for name in wanted or columns}
            return self.write_tensors(chosen, request.id)

        return Parsed(parsed.rows, parsed.outputs, write)

    def __call__(self, parsed):
        """Compute the responses to some requests, all of whose rows are predicted at once.

        Returns bytes for each request, or why it is refused.
        """
        rows = [row for one in parsed for row in one.rows]
        wanted = {name for one in parsed for name in one.outputs}
        try:
            columns = self.predict(rows, [name for name in self.outputs if name in wanted])
        except ParKError as error:  # such as a number so large that the kernel overflows
            if len(parsed) == 1:
                return [Refused(422, str(error))]
            return [response for one in parsed for response in self([one])]
        responses, start = [], 0
        for one in parsed:
            stop = start + len(one.rows)
            own = {k: v[start:stop] for k, v in columns.items() if output_of(k) in one.outputs}
            responses.append(one.write(own))
            start = stop
        return responses

    def predict(self, rows, outputs):
        """Return outputs by name; the frame is read once for all of them."""
        columns = {name: [row[name] for row in rows] for name in self.kinds}
        if hasattr(self.model, "feature_names_in_"):
            kinds = self.kinds.items()
            table = pa.table({name: pa.array(columns[name], kind.arrow) for name, kind in kinds})
        else:
            table = np.column_stack(list(columns.values())).astype(float)
        return self.model.predict_outputs(table, outputs, self.coverage)

    def write_rows(self, columns):
        """Write an object for each row."""
        lists = {name: values.tolist() for name, values in columns.items()}
        if "probability" in lists:
            labels = self.model.classes_.astype(str).tolist()
            lists["probability"] = [
                dict(zip(labels, row, strict=True)) for row in lists["probability"]
            ]
        rows = zip(*lists.values(), strict=True)
        predictions = [dict(zip(lists, row, strict=True)) for row in rows]
        return json.dumps({"predictions": predictions}, allow_nan=False).encode()

    def write_tensors(self, columns, id):
        """Write a response of the v2 inference protocol."""
        outputs = [
            {
                "name": name,
                "datatype": datatype_of(values),
                "shape": list(values.shape),
                "data": values.ravel().tolist(),
            }
            for name, values in columns.items()
        ]
        response = {"model_name": self.name, "outputs": outputs} | ({"id": id} if id else {})
        return json.dumps(response, allow_nan=False).encode()

    def describe(self):
        """Return the metadata of the model in the v2 inference protocol."""
        outputs = [
            {"name": name, "datatype": datatype_of(values), "shape": [-1, *values.shape[1:]]}
            for name, values in self.example.items()
        ]
        inputs = [
            {"name": name, "datatype": kind.datatype, "shape": [-1]}
            for name, kind in self.kinds.items()
        ]
        return {"name": self.name, "platform": "parkrr", "inputs": inputs, "outputs": outputs}


def output_of(column):
    """Return the output that a column belongs to."""
    return "interval" if column in ("lower", "upper") else column


def datatype_of(values):
    """Return the name of a type in the v2 inference protocol."""
    return {"f": "FP64", "i": "INT64", "u": "UINT64", "b": "BOOL"}.get(values.dtype.kind, "BYTES")


class InferenceTensor(BaseModel):
    """One input of the v2 inference protocol: a column of rows, or rows of numbers."""

    name: str
    shape: list[int] = Field(min_length=1, max_length=2)
    datatype: Literal["FP64", "FP32", "INT64", "INT32", "BOOL", "BYTES"]
    data: list[Any]
    parameters: dict[str, Any] = {}


class InferenceOutput(BaseModel):
    """An output that a request of the v2 inference protocol wants."""

    name: str
    parameters: dict[str, Any] = {}


class InferenceRequest(BaseModel):
    """A request of the v2 inference protocol."""

    id: str | None = None
    parameters: dict[str, Any] = {}
    inputs: list[InferenceTensor] = Field(min_length=1)
    outputs: list[InferenceOutput] = []


def rows_of(request, kinds):
    """Return the inputs of a request as rows.

    There is an input for each column, of shape [n] or [n, 1], or one input of numbers, of shape
    [n, number of columns], in the order of the fit.
    """
    columns, names = {}, list(kinds)
    for tensor in request.inputs:
        data = tensor.data
        if data and isinstance(data[0], list):
            data = [value for row in data for value in (row if isinstance(row, list) else [row])]
        n, width = tensor.shape[0], tensor.shape[1] if len(tensor.shape) == 2 else 1
        if n < 1 or width < 1 or n * width != len(data):
            raise Refused(
                422, f"{tensor.name}: shape {tensor.shape} must hold the {len(data):,} values"
            )
        if tensor.datatype == "BYTES" and not all(isinstance(v, str | None) for v in data):
            raise Refused(422, f"{tensor.name}: data of BYTES must be strings")
        whole = len(request.inputs) == 1 and width == len(names) and tensor.name not in names
        if width != 1 and not whole:
            raise Refused(422, f"{tensor.name}: shape must be [n] or [n, 1], got {tensor.shape}")
        own = {name: data[k::width] for k, name in enumerate(names)}
        columns |= own if whole else {tensor.name: data}
    lengths = {name: len(data) for name, data in columns.items()}
    if len(set(lengths.values())) > 1:
        raise Refused(422, f"all inputs must have as many rows, got {lengths}")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


@dataclass(frozen=True)
class Kind:
    """The type of a column: in JSON, as text for people, in Arrow, and in the v2 protocol."""

    type: object
    text: str
    arrow: pa.DataType
    datatype: str


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
NUMBER = Kind(Number | None, "number or null", pa.float64(), "FP64")
CATEGORY = Kind(str | None, "text or null", pa.string(), "BYTES")
DATETIME = Kind(Date | None, "date or time or null", pa.timestamp("us"), "BYTES")
TIME = Kind(Time | None, "time of day or null", pa.time64("us"), "BYTES")


def kinds_of(model):
    """Return the columns that a model expects, by name."""
    columns = [
        column for column in model.columns_.columns if column.width
    ]  # none of an ignored one
    return {column.name: kind_of(column) for column in columns}


def kind_of(column):
    """Return the kind of one column of the fit."""
    kind = type(column).__name__
    if kind in ("Category", "FreeText"):
        return CATEGORY
    if kind == "DateTime":
        return DATETIME if column.elapsed else TIME
    return NUMBER


def batch_of(kinds, outputs, most_rows):
    """Return the schema of a body; fields have aliases because a column may have any name."""
    named = {
        f"column{k}": (kind.type, Field(alias=name)) for k, (name, kind) in enumerate(kinds.items())
    }
    row = create_model("Row", __config__=STRICT, **named)
    rows = (list[row], Field(min_length=1, max_length=most_rows))
    wanted = (list[Literal[outputs]], Field(default=list(outputs), min_length=1))
    return create_model("Batch", __config__=STRICT, rows=rows, outputs=wanted)


def schema_of(batch):
    """Return the schema of a body for OpenAPI, in one piece."""
    schema = batch.model_json_schema()
    schema["properties"]["rows"]["items"] = schema.pop("$defs")["Row"]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


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


@dataclass(frozen=True)
class Job:
    """A request that waits: its body, how it is parsed, and where its response goes."""

    parse: Any
    body: bytes
    done: Future


class Workers:
    """A bounded pool of threads that compute all requests that wait, up to some rows, together."""

    def __init__(self, scorer, settings):
        self.scorer, self.batch_rows = scorer, settings.batch_rows
        self.pool = ThreadPoolExecutor(settings.threads)
        self.places = threading.BoundedSemaphore(settings.threads + settings.waiting)
        self.seconds, self.waiting, self.batches = settings.predict_seconds, deque(), 0

    async def run(self, parse, body, request):
        """Return the number of rows and the response, unless the client disconnects first.

        What has started runs to its end. Without a check for disconnected clients, two
        clients that sent 100 rows and hung up kept all threads busy, and 38 others waited for up
        to 4 s.
        """
        if not self.places.acquire(blocking=False):
            raise Refused(503, "too many requests are waiting; try again in a second")
        job = Job(parse, body, Future())
        job.done.add_done_callback(lambda _: self.places.release())
        self.waiting.append(job)
        self.pool.submit(self.compute_waiting)
        result, leaving = asyncio.wrap_future(job.done), asyncio.ensure_future(request.receive())
        first = asyncio.FIRST_COMPLETED
        done, late = await asyncio.wait({result, leaving}, timeout=self.seconds, return_when=first)
        for one in late:
            one.cancel()
        if result in done:
            return result.result()
        job.done.cancel()  # now: cancelling `result` passes it on in the next turn of the loop
        if leaving in done:
            raise Refused(LEFT, "the client left")
        raise Refused(503, f"not finished within {self.seconds:g} s; send fewer rows")

    def compute_waiting(self):
        """Compute what waits; nothing, if the batch of an earlier request had this one in it."""
        jobs, parsed, n_rows = [], [], 0
        while self.waiting and n_rows < self.batch_rows:
            try:
                job = self.waiting.popleft()
            except IndexError:  # another thread was faster
                break
            if not job.done.set_running_or_notify_cancel():
                continue
            try:
                parsed.append(job.parse(job.body))
            except Exception as error:
                job.done.set_exception(error)
                continue
            jobs.append(job)
            n_rows += len(parsed[-1].rows)
        if not jobs:
            return
        self.batches += 1
        try:
            responses = self.scorer(parsed)
        except Exception as error:
            responses = [error] * len(jobs)
        for job, one, response in zip(jobs, parsed, responses, strict=True):
            if isinstance(response, Exception):
                job.done.set_exception(response)
            else:
                job.done.set_result((len(one.rows), response))


class Metrics:
    """Counters in the text format of Prometheus. Used by the event loop only."""

    def __init__(self):
        self.requests = Counter()
        self.buckets = Counter()
        self.rows, self.seconds = 0, 0.0

    def count(self, path, status, seconds):
        self.requests[path, status] += 1
        if path.endswith(("/predict", "/infer")):
            self.seconds += seconds
            self.buckets[next((b for b in BUCKETS if seconds <= b), float("inf"))] += 1

    def text(self, batches):
        lines = ["# TYPE parkrr_batches_total counter", f"parkrr_batches_total {batches}"]
        lines.append("# TYPE parkrr_requests_total counter")
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


TENSORS = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "example": {
                    "inputs": [{"name": "km", "shape": [1], "datatype": "FP64", "data": [2.5]}]
                }
            }
        },
    }
}


def service(settings=None):
    """Return the application, with settings from the environment unless given."""
    settings = settings or Settings.from_environment()
    scorer, metrics = Scorer(settings), Metrics()
    workers, model = Workers(scorer, settings), f"/v2/models/{scorer.name}"

    @asynccontextmanager
    async def lifespan(app):
        yield
        workers.pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(title="parkrr", lifespan=lifespan, redoc_url=None)
    paths = ("/predict", "/health", "/metrics", f"{model}/infer")
    app.add_middleware(Counted, metrics=metrics, paths=paths)

    @app.exception_handler(Refused)
    async def refused(request, error):
        # The rest of the body is useless, and so is its connection.
        headers = {"connection": "close"} if error.status in (408, 413) else {}
        headers |= {"retry-after": "1"} if error.status == 503 else {}
        name = "error" if request.url.path.startswith("/v2/") else "detail"
        said = json.dumps({name: error.message}).encode()
        return Response(said, error.status, headers, "application/json")

    async def respond(request, parse):
        body = await received(request, settings)
        n_rows, said = await workers.run(parse, body, request)
        metrics.rows += n_rows
        return Response(said, media_type="application/json")

    @app.post("/predict", openapi_extra=schema_of(scorer.batch))
    async def predict(request: Request):
        """Predict rows, with intervals or probabilities and novelty."""
        return await respond(request, scorer.parse_rows)

    @app.get("/health")
    async def health():
        """Return the columns that the model needs."""
        columns = {name: kind.text for name, kind in scorer.kinds.items()}
        return {"status": "ok", "model": type(scorer.model).__name__, "columns": columns}

    @app.get("/metrics")
    async def shown():
        """Return counters in the text format of Prometheus."""
        text = metrics.text(workers.batches)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    # The v2 inference protocol, which KServe, Triton and others share.

    def known(name):
        if name != scorer.name:
            raise Refused(404, f"there is no model {name!r}, but {scorer.name!r}")

    @app.get("/v2")
    async def server():
        """Return the name of the server."""
        return {"name": "parkrr", "version": parkrr.__version__, "extensions": []}

    @app.get("/v2/health/live")
    async def live():
        """Return that the server runs."""
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready():
        """Return that the model is loaded: the server does not start before it is."""
        return {"ready": True}

    @app.get("/v2/models/{name}")
    async def described(name: str):
        """Return the inputs and outputs of the model."""
        known(name)
        return scorer.describe()

    @app.get("/v2/models/{name}/ready")
    async def model_ready(name: str):
        """Return that the model is loaded."""
        known(name)
        return {"name": name, "ready": True}

    @app.post("/v2/models/{name}/infer", openapi_extra=TENSORS)
    async def infer(request: Request, name: str):
        """Predict rows that are given as a tensor for each column."""
        known(name)
        return await respond(request, scorer.parse_tensors)

    return app
