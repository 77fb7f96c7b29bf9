"""The example service under load: fifty connections that behave well, or of which some do not.

The server is a process of its own, asked over loopback by plain sockets. With --load well-behaved
each of fifty connections sends a request of 1, 10 or 100 rows every two seconds, and then asks an
endpoint that returns a constant: what that takes is the server without a model, the client and the
machine. With --load mixed most connections send valid requests one after the other without a pause;
others send what is malformed or too large, send a byte at a time, or leave in the middle. Memory
and CPU time of the server are recorded: unlike seconds, CPU time hardly depends on other programs.
"""

import argparse
import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

from parkrr import ParKRegressor
from parkrr.kernels import Gaussian
from recording import record

FOLDER = Path(__file__).parent.parent / "examples" / "service"
# uvicorn --fd takes any socket for a Unix one and leaves Nagle's algorithm on: a response whose
# headers and body are two packets then waits 40 ms for the client's delayed acknowledgement.
SERVE = """
import socket, sys, uvicorn
listening = socket.socket(fileno=int(sys.argv[1]))
sys.path.insert(0, sys.argv[2])
config = uvicorn.Config("app:service", factory=True, log_level="warning")
uvicorn.Server(config).run(sockets=[listening])
"""
WELL_BEHAVED = {"well behaved": 50}
PAUSE = 1.0  # seconds before each request of such a connection, on average
MOST_REQUESTS = 10_000  # of one connection
BARE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
CONNECTIONS = {"valid": 38, "malformed": 4, "too large": 2, "slow": 4, "leaving": 2}
MOST_BYTES, READ_SECONDS, FITTED = 100_000, 5.0, 5_000
SIZES = (1, 10, 100)  # rows of a valid request
MALFORMED = (
    b"{rows",
    b"[" * 50_000,
    b'{"rows": [{"km": "far", "sky": "sun", "begin": "2024-01-01"}]}',
    b'{"rows": [{"km": 1e999, "sky": 5, "begin": "soon"}]}',
    b'{"rows": [{"km": 1}]}',
    b'{"rows": []}',
    b"\xff\x00",
)


def fitted_model(path):
    """A model of 5,000 trips with categories and dates, in two cells."""
    rng = np.random.default_rng(0)
    trips = pd.DataFrame(
        {
            "km": rng.uniform(0, 10, FITTED),
            "sky": rng.choice(["sun", "rain", "snow"], FITTED),
            "begin": pd.date_range("2024-01-01", periods=FITTED, freq="h"),
        }
    )
    minutes = 3 * trips["km"] + 5 * (trips["sky"] == "snow") + rng.normal(size=FITTED)
    settings = {"metric": "standard", "n_cells": 2, "blend": 1, "coarse": 0, "random_state": 0}
    ParKRegressor(Gaussian(2.0), 1e-4, **settings).fit(trips, minutes).save(path)


def body(n_rows, rng):
    rows = [
        {"km": rng.uniform(0, 10), "sky": "snow", "begin": f"2024-03-{1 + k % 28:02}T10:00:00"}
        for k in range(n_rows)
    ]
    return json.dumps({"rows": rows}).encode()


def request(content):
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


class Client:
    """One connection, opened again when the server has closed it."""

    def __init__(self, port):
        self.port, self.streams = port, None

    async def open(self):
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, parts, pause=0.0):
        _, writer = self.streams
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    async def response(self):
        """The status of a response, whose body is read and dropped."""
        reader, _ = self.streams
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        await reader.readexactly(length)
        if "connection: close" in head:
            self.close()
        return int(head.split()[1])

    def close(self):
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None


class Load:
    """What all connections see."""

    def __init__(self, port, seconds):
        self.port, self.until = port, time.perf_counter() + seconds
        self.statuses = defaultdict(Counter)
        self.latencies = defaultdict(list)  # by rows of a request
        self.memory = []

    def left(self):
        return max(0.0, self.until - time.perf_counter())

    def goes_on(self):
        return self.left() > 0

    async def ask(self, client, kind, *parts, pause=0.0):
        """Send and count the response, which may come first; or that the connection broke."""
        sending = None
        try:
            await client.open()
            sending = asyncio.ensure_future(client.send(parts, pause))
            self.statuses[kind][await client.response()] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            self.statuses[kind][type(error).__name__] += 1
            client.close()
        finally:
            await stopped(sending)

    async def valid(self, client, number):
        rng = np.random.default_rng(number)
        contents = {n_rows: request(body(n_rows, rng)) for n_rows in SIZES}
        for n_rows in itertools.islice(itertools.cycle(SIZES), MOST_REQUESTS):
            if not self.goes_on():
                break
            await self.time(client, "valid", n_rows, contents[n_rows])

    async def well_behaved(self, client, number):
        rng = np.random.default_rng(number)
        contents = {n_rows: request(body(n_rows, rng)) for n_rows in SIZES}
        for n_rows in itertools.islice(itertools.cycle(SIZES), MOST_REQUESTS):
            await asyncio.sleep(min(self.left(), rng.uniform(0, 2 * PAUSE)))
            if not self.goes_on():
                break
            await self.time(client, "valid", n_rows, contents[n_rows])
            await asyncio.sleep(min(self.left(), rng.uniform(0, 2 * PAUSE)))
            await self.time(client, "bare", "bare", BARE)

    async def time(self, client, kind, name, content):
        start = time.perf_counter()
        await self.ask(client, kind, content)
        self.latencies[name].append(time.perf_counter() - start)

    async def malformed(self, client, number):
        for content in itertools.islice(itertools.cycle(MALFORMED), number, None):
            if not self.goes_on():
                break
            await self.ask(client, "malformed", request(content))
            await asyncio.sleep(0.01)

    async def too_large(self, client, number):
        content = b" " * MOST_BYTES * (2 + 20 * (number % 2))
        while self.goes_on():
            await self.ask(client, "too large", request(content))
            await asyncio.sleep(0.05)

    async def slow(self, client, number):
        """A byte at a time: half of them are done in time, half are not."""
        content = request(body(1, np.random.default_rng(number)))
        kind, share = (("slow", 0.5), ("too slow", 4.0))[number % 2]
        pause = share * READ_SECONDS / len(content)
        while self.goes_on():
            parts = (content[k : k + 1] for k in range(len(content)))
            asking = self.ask(client, kind, *parts, pause=pause)
            _, late = await asyncio.wait({asyncio.create_task(asking)}, timeout=self.left())
            for one in late:
                one.cancel()

    async def leaving(self, client, number):
        content = request(body(100, np.random.default_rng(number)))
        while self.goes_on():
            await client.open()
            await client.send([content[: len(content) // (1 + number % 2)]])
            client.close()  # before all is sent, or before the response
            self.statuses["leaving"]["left"] += 1
            await asyncio.sleep(0.02)

    async def watch(self, pid):
        while self.goes_on():
            self.memory.append(resident_megabytes(pid))
            await asyncio.sleep(1.0)

    async def run(self, pid, connections):
        work = [self.watch(pid)]
        for kind, count in connections.items():
            behave = getattr(self, kind.replace(" ", "_"))
            work += [self.connected(behave, number) for number in range(count)]
        await asyncio.gather(*work)

    async def connected(self, behave, number):
        client = Client(self.port)
        await behave(client, number)
        client.close()


async def stopped(task):
    """End what is still being sent, whether or not that went wrong."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def resident_megabytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid):
    """CPU time of a process so far, of its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loaded(connections, seconds):
    """Run server and load; what was seen, and what the server counted."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as place:
        path = Path(folder, "trips.park")
        fitted_model(path)
        own = {"PARKRR_MODEL": str(path), "PARKRR_MOST_BYTES": str(MOST_BYTES)}
        own["PARKRR_READ_SECONDS"] = str(READ_SECONDS)
        command = [sys.executable, "-c", SERVE, str(place.fileno()), str(FOLDER)]
        server = subprocess.Popen(command, env={**os.environ, **own}, pass_fds=[place.fileno()])
        try:
            return asyncio.run(measured(server.pid, place.getsockname()[1], connections, seconds))
        finally:
            server.terminate()
            server.wait()


async def measured(pid, port, connections, seconds):
    await counts(port)  # responds once the server is up
    load, start, before = Load(port, seconds), time.perf_counter(), cpu_seconds(pid)
    await load.run(pid, connections)
    facts = summary(load, connections, time.perf_counter() - start)
    facts["server_cpu_seconds"] = cpu_seconds(pid) - before
    return facts | {"load_average": os.getloadavg()[0], "metrics": await counts(port)}


async def counts(port):
    """The metrics of the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return [line for line in text.splitlines() if line.startswith("parkrr_")]


def thirds(memory):
    """Mean megabytes in the first and in the last third of the time."""
    third = max(1, len(memory) // 3)
    return float(np.mean(memory[:third])), float(np.mean(memory[-third:]))


def summary(load, connections, took):
    first, last = thirds(load.memory)
    responded = sum(load.statuses["valid"].values())
    ms = {
        name: np.percentile(seconds, [50, 95, 99, 100]) * 1e3
        for name, seconds in load.latencies.items()
    }
    return {
        "seconds": took,
        "connections": connections,
        "requests_a_second": sum(sum(c.values()) for c in load.statuses.values()) / took,
        "valid_a_second": responded / took,
        "rows_a_second": sum(n * len(load.latencies[n]) for n in SIZES) / took,
        "milliseconds_50_95_99_100": {
            str(name): [round(float(x), 1) for x in values] for name, values in ms.items()
        },
        "statuses": {kind: {str(s): n for s, n in c.items()} for kind, c in load.statuses.items()},
        "memory_first_third_mb": first,
        "memory_last_third_mb": last,
        "memory_mb": [round(m, 1) for m in load.memory],
    }


LOADS = {"well-behaved": (WELL_BEHAVED, "service"), "mixed": (CONNECTIONS, "service_mixed")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", choices=LOADS, default="well-behaved")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    connections, name = LOADS[given.load]
    facts = loaded(connections, given.seconds)
    rows = []
    for what, times in facts["milliseconds_50_95_99_100"].items():
        label = "a constant, ms" if what == "bare" else f"{what} rows, ms"
        rows.append([label, *(f"{x:,.1f}" for x in times)])
    notes = [
        f"- {sum(connections.values())} connections for {facts['seconds']:.0f} s: {connections}.",
        f"- {facts['requests_a_second']:,.0f} requests a second, {facts['valid_a_second']:,.0f} "
        f"of them for predictions, with {facts['rows_a_second']:,.0f} rows a second.",
        *(f"- {kind}: {statuses}" for kind, statuses in sorted(facts["statuses"].items())),
        f"- CPU time of the server: {facts['server_cpu_seconds']:.1f} s, "
        f"{1e3 * facts['server_cpu_seconds'] / sum(facts['statuses']['valid'].values()):.1f} ms "
        f"for each request for predictions with all beside it.",
        f"- Memory of the server: {facts['memory_first_third_mb']:.1f} MB in the first third, "
        f"{facts['memory_last_third_mb']:.1f} MB in the last.",
        f"- Client and server share the cores with other programs; the load average of the last "
        f"minute was {facts['load_average']:.1f}.",
    ]
    header = ["requests of", "50 %", "95 %", "99 %", "most"]
    record(name, facts, f"The example service under a {given.load} load", header, rows, notes)


if __name__ == "__main__":
    main()
