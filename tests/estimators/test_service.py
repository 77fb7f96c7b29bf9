"""The example service on a real server: responses, refusals, clients that misbehave."""

import importlib.util
import json
import re
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
import torch
import uvicorn

from parkrr import ParKClassifier, ParKRegressor
from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian, Polynomial

PLACE = Path(__file__).parents[2] / "examples/service/app.py"
SPEC = importlib.util.spec_from_file_location("service_app", PLACE)
APP = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(APP)

RNG = np.random.default_rng(0)
TRIPS = pd.DataFrame(
    {
        "km": RNG.uniform(0, 10, 300),
        "sky": ["sun", "rain", "snow"] * 100,
        "begin": pd.date_range("2024-01-01", periods=300, freq="h"),
        "_night": RNG.random(300) > 0.5,
    }
)
TRIPS.loc[::10, "km"] = np.nan
MINUTES = 3 * TRIPS["km"].fillna(5) + (TRIPS["sky"] == "snow") + RNG.normal(size=300)
TRIP = {"km": 2.0, "sky": "sun", "begin": "2024-01-02T10:00:00", "_night": False}
SETTINGS = {"metric": "standard", "blend": 1, "coarse": 0, "random_state": 0, "progress": False}
MOST_BYTES, MOST_ROWS = 20_000, 50
SECONDS = 10.0  # after which a test would rather fail


@contextmanager
def served(model, **settings):
    """A client of a server with the model of that file."""
    app = APP.service(APP.Settings(str(model), **settings))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    server, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    running = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    running.start()
    host, port = listening.getsockname()
    try:
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=SECONDS) as client:
            yield client
    finally:
        server.should_exit = True
        running.join()


@pytest.fixture(scope="module", autouse=True)
def threads_of_torch():
    """The service sets them for its process, which here is that of all tests."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model():
    return ParKRegressor(Gaussian(1.0), 1e-3, **SETTINGS).fit(TRIPS, MINUTES)


@pytest.fixture(scope="module")
def path(model, folder):
    model.save(folder / "trips.park")
    return folder / "trips.park"


@pytest.fixture(scope="module")
def client(path):
    with served(path, most_bytes=MOST_BYTES, most_rows=MOST_ROWS, read_seconds=0.5) as client:
        yield client


@pytest.fixture
def held(monkeypatch):
    """Requests wait until they are released; the first to begin sets an event."""
    begun, go, respond = threading.Event(), threading.Event(), APP.Scorer.__call__

    def slowly(self, parsed):
        begun.set()
        assert go.wait(SECONDS)
        return respond(self, parsed)

    monkeypatch.setattr(APP.Scorer, "__call__", slowly)
    yield begun, go
    go.set()


def post(client, *rows):
    return client.post("/predict", json={"rows": list(rows)})


def raw(client, *parts):
    """A connection on which these bytes have been sent."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port), SECONDS)
    for part in parts:
        connection.sendall(part)
    return connection


def head(length):
    return f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


def counted(client, status):
    """How many requests for predictions ended so."""
    line = re.search(rf'path="/predict",status="{status}"}} (\d+)', client.get("/metrics").text)
    return int(line[1]) if line else 0


def test_predictions_are_those_of_the_model(client, model):
    frame = TRIPS[1:9].assign(begin=TRIPS["begin"].astype(str))
    found = pd.DataFrame(
        post(client, *frame.to_dict("records")).raise_for_status().json()["predictions"]
    )
    lower, upper = model.predict_interval(TRIPS[1:9], 0.9)
    expected = {"prediction": model.predict(TRIPS[1:9]), "lower": lower, "upper": upper}
    expected["novelty"] = model.novelty(TRIPS[1:9])
    assert list(found.columns) == list(expected)
    np.testing.assert_allclose(found, pd.DataFrame(expected), rtol=1e-9, atol=1e-9)


def test_null_is_a_gap_and_a_time_zone_is_heeded(client, model):
    rows = [TRIP | {"km": None, "sky": None}, TRIP | {"begin": "2024-01-02T12:00:00+02:00"}]
    found = [response["prediction"] for response in post(client, *rows).json()["predictions"]]
    frame = pd.DataFrame([TRIP, TRIP])
    frame["begin"] = pd.to_datetime(frame["begin"])
    frame.loc[0, ["km", "sky"]] = None
    np.testing.assert_allclose(found, model.predict(frame), rtol=1e-9)


def test_a_boolean_is_a_number_beside_numbers(client):
    rows = [TRIP | {"_night": night} for night in (1.0, True, 0, False)]
    one, true, zero, false = post(client, *rows).raise_for_status().json()["predictions"]
    assert (one, zero) == (true, false)


def test_a_classifier_returns_probabilities(folder):
    X = RNG.normal(size=(200, 2))
    model = ParKClassifier(Gaussian(1.0), 1e-2, **SETTINGS).fit(X, np.where(X[:, 0] > 0, "a", "b"))
    model.save(folder / "labels.park")
    with served(folder / "labels.park") as client:
        [response] = post(client, {"x0": 3.0, "x1": 0.0}).raise_for_status().json()["predictions"]
    assert response["prediction"] == model.predict([[3.0, 0.0]])[0]
    assert response["probability"]["a"] == pytest.approx(model.predict_proba([[3.0, 0.0]])[0, 0])


WRONG = {
    "no JSON": (b"{rows", 400, "Invalid JSON"),
    "nothing": (b"", 400, "Invalid JSON"),
    "bytes": (b"\xff\xfe\x00", 400, "Invalid JSON"),
    "a deep list": (b"[" * 9000, 400, "Invalid JSON"),
    "a long number": (b'{"rows": [{"km": ' + b"9" * 9000 + b"}]}", 400, "Invalid JSON"),
    "half a character": (b'{"rows": [{"sky": "\\ud800"}]}', 400, "Invalid JSON"),
    "a list": (b"[1]", 400, "should be an object"),
    "other keys": (b'{"row": []}', 422, "rows: Field required"),
    "no rows": (b'{"rows": []}', 422, "rows: List should have at least 1 item"),
    "rows that are none": (b'{"rows": [1]}', 422, "rows.0: Input should be an object"),
    "missing columns": (b'{"rows": [{"km": 1}]}', 422, "rows.0.sky: Field required"),
}


@pytest.mark.parametrize(("body", "status", "why"), WRONG.values(), ids=WRONG)
def test_a_body_that_is_none_is_refused_with_the_reason(body, status, why, client):
    response = client.post("/predict", content=body)
    assert response.status_code == status
    assert why in response.json()["detail"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"km": "2"}, "rows.1.km: Input should be a valid number"),
        ({"km": [2]}, "rows.1.km: Input should be a valid number"),
        ({"sky": 2}, "rows.1.sky: Input should be a valid string"),
        ({"begin": "soon"}, "rows.1.begin: Input should be a valid datetime"),
        ({"begin": "0001-01-01T00:00:00+14:00"}, "rows.1.begin: Value error, must be between"),
        ({"price": 2}, "rows.1.price: Extra inputs are not permitted"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_value_is_named_by_row_and_column(change, why, client):
    response = post(client, TRIP, TRIP | change)
    assert response.status_code == 422
    assert why in response.json()["detail"]


def test_numbers_that_are_none_are_refused(client):
    body = json.dumps({"rows": [TRIP | {"km": float("nan")}]}).encode()
    response = client.post("/predict", content=body)
    assert response.status_code == 422
    assert "rows.0.km: Input should be a finite number" in response.json()["detail"]


@pytest.mark.parametrize("km", [1e308, -1e308, 1e-320])
def test_wild_numbers_are_predicted(km, client):
    assert post(client, TRIP | {"km": km}).status_code == 200


def test_too_many_rows_are_refused(client):
    response = post(client, *[TRIP] * (MOST_ROWS + 1))
    assert response.status_code == 413
    assert "rows must be at most 50" in response.json()["detail"]


def test_a_body_that_is_too_large_is_refused(client):
    response = client.post("/predict", content=b" " * (MOST_BYTES + 1))
    assert response.status_code == 413
    assert "at most 20,000 bytes" in response.json()["detail"]


def test_a_body_that_does_not_say_how_large_it_is_is_refused_when_it_is(client):
    response = client.post("/predict", content=(b" " * 1000 for _ in range(30)))
    assert response.status_code == 413


def test_a_body_of_a_gigabyte_is_refused_before_it_is_sent(client):
    with raw(client, head(2**30)) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_client_that_sends_too_slowly_is_told_so(client):
    with raw(client, head(100), b'{"rows') as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_slow_clients_do_not_hold_up_others(path):
    with served(path, threads=1, read_seconds=SECONDS) as client:
        slow = [raw(client, head(100), b"{") for _ in range(40)]
        assert post(client, TRIP).elapsed.total_seconds() < SECONDS / 4
        for connection in slow:
            connection.close()


def test_a_client_that_leaves_is_counted_and_forgotten(client):
    before = counted(client, APP.LEFT)
    raw(client, head(100), b"{").close()
    # The server hears of it when it next looks.
    assert any(counted(client, APP.LEFT) > before for _ in range(1000))
    assert post(client, TRIP).status_code == 200


def test_a_request_whose_client_left_never_begins(path, held):
    begun, go = held
    with served(path, threads=1) as client, ThreadPoolExecutor(1) as others:
        first = others.submit(post, client, TRIP)
        assert begun.wait(SECONDS)
        begun.clear()
        content = json.dumps({"rows": [TRIP]}).encode()
        raw(client, head(len(content)), content).close()
        assert any(counted(client, APP.LEFT) for _ in range(1000))
        go.set()
        assert first.result().status_code == 200
    assert not begun.is_set()


def test_what_has_no_place_to_wait_is_sent_away(path, held):
    begun, go = held
    with served(path, threads=1, waiting=0) as client, ThreadPoolExecutor(1) as others:
        first = others.submit(post, client, TRIP)
        assert begun.wait(SECONDS)
        second = post(client, TRIP)
        go.set()
        assert first.result().status_code == 200
    assert (second.status_code, second.headers["retry-after"]) == (503, "1")


def test_a_prediction_that_takes_too_long_is_given_up(path, held):
    with served(path, predict_seconds=0.1) as client:
        response = post(client, TRIP)
        assert client.get("/health").status_code == 200
    assert response.status_code == 503
    assert "not finished within 0.1 s" in response.json()["detail"]


def test_metrics_count_requests_rows_and_seconds(path):
    with served(path) as client:
        post(client, TRIP, TRIP)
        post(client, TRIP)
        client.post("/predict", content=b"?")
        client.get("/nowhere")
        lines = client.get("/metrics").text.splitlines()
    assert 'parkrr_requests_total{path="/predict",status="200"} 2' in lines
    assert 'parkrr_requests_total{path="/predict",status="400"} 1' in lines
    assert 'parkrr_requests_total{path="other",status="404"} 1' in lines
    assert "parkrr_rows_total 3" in lines
    assert 'parkrr_predict_seconds_bucket{le="+Inf"} 3' in lines
    assert "parkrr_predict_seconds_count 3" in lines


def waiting_for(scorer, *bodies):
    """Requests that wait, and what computes them."""
    workers = APP.Workers(scorer, APP.Settings("", batch_rows=MOST_ROWS))
    jobs = [APP.Job(scorer.parse_rows, body, Future()) for body in bodies]
    workers.waiting.extend(jobs)
    return workers, [job.done for job in jobs]


def body_of(*rows):
    return json.dumps({"rows": list(rows)}).encode()


def test_requests_that_wait_are_predicted_at_once_and_get_their_own_rows(path):
    scorer = APP.Scorer(APP.Settings(str(path)))
    trips = [TRIP, TRIP | {"km": 7.0}, TRIP | {"sky": "snow"}]
    bodies = [body_of(trips[0]), b"{rows", body_of(*trips[1:])]
    workers, done = waiting_for(scorer, *bodies)
    workers.compute_waiting()
    assert workers.batches == 1
    assert done[1].exception().status == 400
    together = [row for k in (0, 2) for row in json.loads(done[k].result()[1])["predictions"]]
    alone = json.loads(scorer([scorer.parse_rows(body_of(*trips))])[0])["predictions"]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, rel=1e-9)


def test_a_batch_ends_at_its_most_rows(path):
    scorer = APP.Scorer(APP.Settings(str(path)))
    workers, done = waiting_for(scorer, *[body_of(*[TRIP] * MOST_ROWS)] * 2)
    workers.compute_waiting()
    assert [one.done() for one in done] == [True, False]


def test_a_request_that_overflows_does_not_spoil_those_beside_it(folder):
    X = RNG.normal(size=(200, 2))
    model = ParKRegressor(Polynomial(degree=9), 1e-2, extrapolation="free", **SETTINGS)
    model.fit(X, X[:, 0])
    model.save(folder / "powers.park")
    scorer = APP.Scorer(APP.Settings(str(folder / "powers.park")))
    bodies = [body_of({"x0": x0, "x1": 0.0}) for x0 in (0.5, 1e300)]
    workers, [small, large] = waiting_for(scorer, *bodies)
    workers.compute_waiting()
    assert small.result()[0] == 1
    assert large.exception().status == 422


def test_a_request_may_want_some_outputs_only(client):
    wanted = client.post("/predict", json={"rows": [TRIP], "outputs": ["prediction"]})
    assert list(wanted.raise_for_status().json()["predictions"][0]) == ["prediction"]
    unknown = client.post("/predict", json={"rows": [TRIP], "outputs": ["colour"]})
    assert unknown.status_code == 422


def test_the_schema_of_requests_is_in_the_documentation(client):
    body = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]
    row = body["content"]["application/json"]["schema"]["properties"]["rows"]["items"]
    assert list(row["properties"]) == ["km", "sky", "begin", "_night"]
    assert "swagger" in client.get("/docs").text


# The v2 inference protocol.


TENSORS = [
    {"name": "km", "shape": [2], "datatype": "FP32", "data": [2.0, None]},
    {"name": "sky", "shape": [2, 1], "datatype": "BYTES", "data": [["sun"], ["snow"]]},
    {"name": "begin", "shape": [2], "datatype": "BYTES", "data": [TRIP["begin"]] * 2},
    {"name": "_night", "shape": [2], "datatype": "BOOL", "data": [False, True]},
]


def infer(client, inputs, **more):
    return client.post("/v2/models/trips/infer", json={"inputs": inputs, **more})


def test_a_server_and_its_model_are_live_and_ready(client):
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/trips/ready").json() == {"name": "trips", "ready": True}
    missing = client.get("/v2/models/other/ready")
    assert missing.status_code == 404
    assert "there is no model 'other'" in missing.json()["error"]


def test_the_metadata_of_a_model_name_its_inputs_and_outputs(client):
    metadata = client.get("/v2/models/trips").json()
    kinds = {one["name"]: one["datatype"] for one in metadata["inputs"]}
    assert kinds == {"km": "FP64", "sky": "BYTES", "begin": "BYTES", "_night": "FP64"}
    assert [one["name"] for one in metadata["outputs"]] == [
        "prediction",
        "lower",
        "upper",
        "novelty",
    ]


def test_tensors_are_predicted_as_rows_are(client):
    response = infer(client, TENSORS, id="7").raise_for_status().json()
    rows = [TRIP, TRIP | {"km": None, "sky": "snow", "_night": True}]
    expected = post(client, *rows).json()["predictions"]
    assert (response["model_name"], response["id"]) == ("trips", "7")
    for output in response["outputs"]:
        assert (output["datatype"], output["shape"]) == ("FP64", [2])
        assert output["data"] == pytest.approx([row[output["name"]] for row in expected])


def test_the_outputs_that_are_wanted_are_returned(client):
    response = infer(client, TENSORS, outputs=[{"name": "upper"}]).raise_for_status()
    assert [output["name"] for output in response.json()["outputs"]] == ["upper"]


def test_a_model_of_an_array_takes_one_tensor_and_returns_labels(folder):
    X = RNG.normal(size=(200, 2))
    model = ParKClassifier(Gaussian(1.0), 1e-2, **SETTINGS).fit(X, np.where(X[:, 0] > 0, "a", "b"))
    model.save(folder / "trips.park.labels.park")
    tensor = {"name": "X", "shape": [3, 2], "datatype": "FP64", "data": X[:3].ravel().tolist()}
    with served(folder / "trips.park.labels.park") as client:
        path = "/v2/models/trips.park.labels/infer"
        response = client.post(path, json={"inputs": [tensor]}).raise_for_status().json()
    label, probability, _ = response["outputs"]
    assert (label["datatype"], label["data"]) == ("BYTES", model.predict(X[:3]).tolist())
    assert probability["shape"] == [3, 2]
    assert probability["data"] == pytest.approx(model.predict_proba(X[:3]).ravel())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shape": [3]}, "km: shape [3] must hold the 2 values"),
        ({"shape": [1, 2]}, "km: shape must be [n] or [n, 1]"),
        ({"shape": [1], "data": [1.0]}, "all inputs must have as many rows"),
        ({"datatype": "BYTES"}, "km: data of BYTES must be strings"),
        ({"datatype": "FP8"}, "inputs.0.datatype: Input should be"),
        ({"name": "miles"}, "rows.0.km: Field required"),
        ({"data": ["far", 1.0]}, "rows.0.km: Input should be a valid number"),
    ],
    ids=str,
)
def test_a_tensor_that_is_wrong_is_refused_with_the_reason(change, why, client):
    response = infer(client, [TENSORS[0] | change, *TENSORS[1:]])
    assert response.status_code == 422
    assert why in response.json()["error"]


def test_health_lists_the_columns_that_are_wanted(client):
    found = client.get("/health").json()
    assert found["model"] == "ParKRegressor"
    assert list(found["columns"]) == ["km", "sky", "begin", "_night"]


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("PARKRR_MODEL", "trips.park")
    monkeypatch.setenv("PARKRR_MOST_ROWS", "7")
    assert APP.Settings.from_environment() == APP.Settings("trips.park", most_rows=7)


def test_without_a_model_it_does_not_start(monkeypatch):
    monkeypatch.delenv("PARKRR_MODEL", raising=False)
    with pytest.raises(SystemExit, match="set PARKRR_MODEL"):
        APP.service()


def test_a_coverage_that_the_model_cannot_promise_stops_the_start(path):
    with pytest.raises(ParameterError, match="coverage must be above 0 and at most"):
        APP.service(APP.Settings(str(path), coverage=0.9999))
