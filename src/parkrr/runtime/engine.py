"""Run independent tasks here, on threads.

An engine knows nothing of what it runs: a function, tasks that carry everything they
need, and results with the number of their task. Torch releases the GIL inside an
operation, so threads are enough.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from parkrr.errors import ParameterError

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs tasks somewhere. Any object with these attributes and methods is an engine."""

    @property
    def cores(self) -> int:
        """Tasks that run at the same time."""

    @property
    def n_nodes(self) -> int:
        """Machines that run them."""

    @property
    def remote(self) -> bool:
        """Whether tasks run outside this process, with memory and devices of their own."""

    @property
    def local(self) -> "LocalEngine":
        """Threads of this process, for what is not worth sending anywhere."""

    def threads_per_task(self, n_tasks: int) -> int: ...

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]: ...

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]: ...


@dataclass(frozen=True)
class LocalEngine:
    """Threads of this process.

    Parameters
    ----------
    n_threads
        How many cores to use; None means as many as torch does.

    Examples
    --------
    >>> from parkrr.runtime.engine import LocalEngine
    >>> sorted(LocalEngine(n_threads=2).run(abs, [-3, 5]))
    [(0, 3), (1, 5)]
    """

    n_threads: int | None = None
    n_nodes = 1
    remote = False

    def __post_init__(self) -> None:
        if self.n_threads is not None and self.n_threads < 1:
            raise ParameterError(f"n_threads must be >= 1 or None, got {self.n_threads!r}")

    @property
    def cores(self) -> int:
        return self.n_threads or torch.get_num_threads()

    @property
    def local(self) -> "LocalEngine":
        """For what is not worth sending anywhere."""
        return self

    def threads_per_task(self, n_tasks: int) -> int:
        """Cores each of n_tasks may use when all run: more than one only for a few tasks."""
        return max(1, self.cores // max(1, n_tasks))

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """Yield (number, function(task)) as tasks finish; start them in the order given."""
        if not tasks:
            return
        if len(tasks) == 1:
            with torch_threads(self.cores):
                yield 0, function(tasks[0])
            return
        workers = min(self.cores, len(tasks))  # read before torch's count changes
        with torch_threads(self.threads_per_task(len(tasks))):
            yield from in_threads(function, tasks, workers)

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """function(task) of every task, in the order given."""
        return in_order(self.run(function, tasks))


def as_engine(engine: "Engine | str") -> Engine:
    """The engine of that name, or the engine itself."""
    if engine == "local":
        return LocalEngine()
    if engine == "ray":
        from parkrr.runtime.ray_engine import RayEngine  # noqa: PLC0415 - few fits need it

        return RayEngine()
    if isinstance(engine, str) or not (hasattr(engine, "run") and hasattr(engine, "remote")):
        raise ParameterError(
            f"engine must be 'local', 'ray', a LocalEngine, a RayEngine or another object with the "
            f"methods of parkrr.runtime.Engine, got {engine!r}"
        )
    return engine


def in_order(results: Iterator[tuple[int, Result]]) -> list[Result]:
    """Numbered results by their number."""
    found = dict(results)
    return [found[number] for number in range(len(found))]


def in_threads(
    function: Callable[[Task], Result], tasks: Sequence[Task], workers: int
) -> Iterator[tuple[int, Result]]:
    """Results of tasks on a pool of threads, as they come; a failure cancels the rest."""
    with ThreadPoolExecutor(workers) as pool:
        number_of = {pool.submit(function, task): k for k, task in enumerate(tasks)}
        try:
            for done in as_completed(number_of):
                yield number_of[done], done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class TorchThreads:
    """How many threads torch uses an operation: one number for the whole process.

    Several threads may ask at once and leave in any order; the last to ask is heard, and the
    last to leave puts back what was there before.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked: list[tuple[object, int]] = []
        self.before = 0

    @contextmanager
    def __call__(self, count: int) -> Iterator[None]:
        """Let torch use `count` threads an operation while the context lasts."""
        token = (object(), count)
        with self.lock:
            self.before = self.before if self.asked else torch.get_num_threads()
            self.asked.append(token)
            torch.set_num_threads(count)
        try:
            yield
        finally:
            with self.lock:
                self.asked.remove(token)
                torch.set_num_threads(self.asked[-1][1] if self.asked else self.before)

    def forget(self) -> None:
        """Begin again in a forked process, in which torch has one thread.

        Threads of OpenMP do not survive a fork, and the first operation that is to be shared among
        them would wait for ever, as in any program with torch; whoever held the lock is gone too.
        """
        self.lock, self.asked = threading.Lock(), []
        torch.set_num_threads(1)


torch_threads = TorchThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=torch_threads.forget)


def mapped_on_threads(
    work: Callable[[Task], Result], tasks: Sequence[Task], n_threads: int
) -> list[Result]:
    """work(task) of many short tasks, in order, torch with one thread each.

    One thread is this one: memory of threads that come and go is not given back, and novelty of
    10^7 rows, a pool for every run, grew to 5 GB.
    """
    with torch_threads(1):
        if n_threads == 1:
            return [work(task) for task in tasks]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(work, tasks))
