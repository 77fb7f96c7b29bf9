"""Tasks on a Ray cluster.

They are Ray Core tasks, few at a time, repeated when a worker or a node dies, with more memory when
that ran out.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from parkrr.errors import ParameterError
from parkrr.runtime.engine import LocalEngine, Result, Task, in_order, torch_threads

AHEAD = 4  # tasks submitted for each one that can run: 100,000 at once stall the scheduler
DEATHS = 20  # of workers or nodes that a task survives
FIRST_MEMORY = 2**29  # asked for after a task ran out of memory, then twice that
FREEING_SECONDS = 1.0  # until a system has taken back the memory of a worker that was killed
STORE_BYTES = 2**28  # of a cluster we start: data does not travel through it


class Attempt(NamedTuple):
    """How often a task has died, and the memory it is promised."""

    deaths: int
    memory: int


@dataclass(frozen=True)
class RayEngine:
    """Workers of a Ray cluster.

    Parameters
    ----------
    address : str, default None
        Of a running cluster; None takes the one this process is connected to, or that of
        RAY_ADDRESS, or starts one on this machine.
    num_cpus, num_gpus : float, default 1 and 0
        What each task takes.
    memory : float, default 0
        Bytes that Ray reserves for each task; 0 reserves none.

    Examples
    --------
    >>> from parkrr import RayEngine
    >>> RayEngine(num_cpus=2)
    RayEngine(address=None, num_cpus=2, num_gpus=0, memory=0)
    """

    address: str | None = None
    num_cpus: float = 1
    num_gpus: float = 0
    memory: float = 0
    local: LocalEngine = field(default_factory=LocalEngine, repr=False, compare=False)
    name = "ray"  # in a model file
    remote = True

    @property
    def cores(self) -> int:
        """Tasks that can run at once."""
        ray = self.connect()
        there = ray.cluster_resources()
        return max(1, int(there.get("CPU", 1) / max(self.num_cpus, 1e-3)))

    def threads_per_task(self, n_tasks: int) -> int:
        return max(1, int(self.num_cpus))

    def connect(self) -> Any:
        """The ray module, with a cluster behind it."""
        try:
            import ray  # noqa: PLC0415 - optional, and slow to import
        except ImportError as error:
            raise ParameterError(
                "engine='ray' needs Ray, which is not installed; pip install 'parkrr[ray]'"
            ) from error
        if not ray.is_initialized():  # never a second session in a user's process
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
            try:
                ray.init(address=self.address or "auto", log_to_driver=False)
            except ConnectionError:
                if self.address is not None or os.environ.get("RAY_ADDRESS"):
                    raise  # a cluster was asked for: a fit here would be a surprise
                ray.init(address="local", object_store_memory=STORE_BYTES, **quiet)
        return ray

    @property
    def n_nodes(self) -> int:
        """Nodes that are alive."""
        return sum(node["Alive"] for node in self.connect().nodes())

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """Yield (number, function(task)) as tasks finish; start them in the order given.

        Ray is told not to repeat tasks, for it would do so with the memory that was too little.
        """
        ray = self.connect()
        shared, remote = ray.put(function), ray.remote(max_retries=0)(call)
        tries = [Attempt(0, int(self.memory)) for _ in tasks]
        waiting, running = list(reversed(range(len(tasks)))), dict[Any, int]()
        try:
            while waiting or running:
                while waiting and len(running) < AHEAD * self.cores:
                    k = waiting.pop()
                    running[self.submit(remote, shared, tasks[k], tries[k].memory)] = k
                [done], _ = ray.wait(list(running), num_returns=1)
                k = running.pop(done)
                try:
                    result = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayError as error:
                    tries[k] = self.again(tries[k], error)
                    waiting.append(k)
                    # A node still short of memory kills the next worker too: all of DEATHS went
                    # in a few seconds on a node that checks every 50 ms.
                    if isinstance(error, ray.exceptions.OutOfMemoryError):
                        time.sleep(FREEING_SECONDS)
                else:
                    yield k, result
        finally:
            for task in running:
                ray.cancel(task)

    def again(self, before: "Attempt", error: Exception) -> "Attempt":
        """Once more after a worker or node died, with twice the memory if that ran out."""
        if before.deaths >= DEATHS:
            raise error
        if not isinstance(error, self.connect().exceptions.OutOfMemoryError):
            return Attempt(before.deaths + 1, before.memory)
        largest = max(node["Resources"].get("memory", 0) for node in self.connect().nodes())
        if before.memory >= largest:
            raise error
        wanted = max(FIRST_MEMORY, 2 * before.memory)
        return Attempt(before.deaths + 1, int(min(wanted, largest)))

    def submit(self, remote: Any, shared: Any, task: Any, memory: int) -> Any:
        """One task on its way, with that memory promised to it."""
        wants: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if memory:
            wants["memory"] = memory
        spread = remote.options(scheduling_strategy="SPREAD", **wants)
        return spread.remote(shared, task)

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """function(task) of every task, in the order given."""
        return in_order(self.run(function, tasks))


def call(function: Callable[[Task], Result], task: Task) -> Result:
    """A task, in a worker."""
    with torch_threads(1):
        torch.set_grad_enabled(False)
        return function(task)
