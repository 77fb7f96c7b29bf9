"""Engines, which run independent tasks, and threads of this process.

An engine gets a function and tasks that carry everything they need, and yields results with the
number of their task. Torch releases the GIL inside an operation, so threads are enough.
"""

import ctypes
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, reduce
from itertools import islice
from typing import Any, Protocol, TypeVar, cast

import torch

from parkrr.errors import ParameterError
from parkrr.runtime.progress import progress

Task = TypeVar("Task")
Result = TypeVar("Result")
Submit = Callable[[Callable[[Any], Any], Any], Future[Any]]
ENGINE = ("cores", "n_nodes", "remote", "local", "threads_per_task", "run", "map")
# Parameters of mallopt in glibc: how much free memory at the end of a heap goes back to the system,
# and from which size on an array has pages of its own. Programs that free arrays of 32 MB come to
# these values by themselves.
TRIM_THRESHOLD, MMAP_THRESHOLD = (-1, 2**26), (-3, 2**25)


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

    def threads_per_task(self, n_tasks: int) -> int:
        """Cores that each of n_tasks may use when all of them run."""

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """Yield (number, function(task)) as tasks finish; start them in the order given."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """function(task) of every task, in the order given."""


@dataclass(frozen=True)
class LocalEngine:
    """Threads of this process.

    Parameters
    ----------
    n_threads : int, default None
        How many cores to use, at least 1; None means as many as torch does. The fitted model
        does not depend on it.

    Examples
    --------
    >>> from parkrr import LocalEngine
    >>> sorted(LocalEngine(n_threads=2).run(abs, [-3, 5]))
    [(0, 3), (1, 5)]
    """

    n_threads: int | None = None
    name = "local"  # in a model file
    n_nodes = 1
    remote = False

    def __post_init__(self) -> None:
        if self.n_threads is not None and self.n_threads < 1:
            raise ParameterError(f"n_threads must be >= 1 or None, got {self.n_threads!r}")

    @property
    def cores(self) -> int:
        return self.n_threads or torch_threads.available

    @property
    def local(self) -> "LocalEngine":
        return self

    def threads_per_task(self, n_tasks: int) -> int:
        return max(1, self.cores // max(1, n_tasks))

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        if not tasks:
            return
        with torch_threads(1):
            if min(self.cores, len(tasks)) == 1:
                yield from ((number, function(task)) for number, task in enumerate(tasks))
                return
            with thread_pools.borrow(self.cores) as submit:
                number_of = {submit(function, task): k for k, task in enumerate(tasks)}
                for future in as_completed(number_of):
                    yield number_of[future], future.result()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        return in_order(self.run(function, tasks))


def as_engine(engine: Engine | str) -> Engine:
    """The engine of that name, or the engine itself."""
    if engine == "local":
        return LocalEngine()
    if engine == "ray":
        from parkrr.runtime.ray_engine import RayEngine  # noqa: PLC0415 - few fits need it

        return RayEngine()
    # Not hasattr, which would start a cluster to count its nodes.
    missing = [name for name in ENGINE if name not in dir(engine)]
    if isinstance(engine, str) or missing:
        lacks = "" if isinstance(engine, str) else f" without {', '.join(missing)}"
        raise ParameterError(
            f"engine must be 'local', 'ray', a LocalEngine, a RayEngine or another object with the "
            f"methods of parkrr.runtime.Engine, got {engine!r}{lacks}"
        )
    return engine


def in_order(results: Iterable[tuple[int, Result]]) -> list[Result]:
    """Numbered results by their number."""
    by_number = dict(results)
    return [by_number[number] for number in range(len(by_number))]


def run_tasks(
    engine: Engine,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    label: str,
    unit: str,
    size_of: Callable[[Task], int],
    shown: bool,
    work_of: Callable[[Task], float] | None = None,
    alone: Callable[[Task], bool] = lambda task: False,
    done: Sequence[Result | None] | None = None,
) -> list[Result]:
    """function(task) of every task that is not done, with progress; all results in order.

    Parameters
    ----------
    label, unit, shown
        Of the progress: what is done, what is counted, and whether it is shown.
    size_of
        How many units a task is.
    work_of
        How long a task takes, in any unit; the longest start first, so that none is left to run
        by itself at the end. None takes the size.
    alone
        Which tasks get all cores to themselves, before the others.
    done
        The results of tasks that were finished before, None for the others.
    """
    results: list[Result | None] = [None] * len(tasks) if done is None else list(done)
    todo = [k for k, result in enumerate(results) if result is None]
    todo.sort(key=lambda k: -(work_of or size_of)(tasks[k]))
    groups = [*([k] for k in todo if alone(tasks[k])), [k for k in todo if not alone(tasks[k])]]
    total = sum(size_of(tasks[k]) for k in todo)
    with progress(label, total, unit, shown) if shown else nullcontext(lambda _: None) as tick:
        for group in groups:
            for number, result in engine.run(function, [tasks[k] for k in group]):
                results[group[number]] = result
                tick(size_of(tasks[group[number]]))
    return cast(list[Result], results)


@cache
def reuse_freed_memory() -> None:
    """Let the C library keep freed memory for the next array of the same size, where it can.

    Otherwise every temporary of a few megabytes comes as fresh pages. A batch of metric descent,
    which has a dozen of them, took 36 ms on one thread, of which the system took 23, and takes 19.
    On two threads, which wait for each other when pages come, of a machine that others use too,
    four of them took 1,800 ms and take 85.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if adjust is not None:
        adjust(*TRIM_THRESHOLD)
        adjust(*MMAP_THRESHOLD)


class TorchThreads:
    """How many threads torch uses per operation: one number for the whole process.

    A fit has one thread per operation and divides its work into tasks by rows, never by cores.
    Cholesky factors, eigenvectors, sums and products over many rows have other last bits on one
    thread than on two, so that a model would depend on the machine.

    Several threads may set it at once and leave in any order: the last that entered counts, and
    the last that leaves restores the number from before.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entered: list[tuple[object, int]] = []
        self.before = 0
        self.thread = threading.local()

    @property
    def available(self) -> int:
        """Threads that torch uses where nothing has set them here."""
        with self.lock:
            return self.before if self.entered else torch.get_num_threads()

    @contextmanager
    def __call__(self, count: int) -> Iterator[None]:
        """Let torch use `count` threads per operation while the context lasts."""
        entry = (object(), count)
        reuse_freed_memory()
        with self.lock:
            self.before = self.before if self.entered else torch.get_num_threads()
            self.entered.append(entry)
            torch.set_num_threads(count)
        self.flush_denormals(1)
        try:
            yield
        finally:
            self.flush_denormals(-1)
            with self.lock:
                self.entered.remove(entry)
                torch.set_num_threads(self.entered[-1][1] if self.entered else self.before)

    def flush_denormals(self, entered: int) -> None:
        """Numbers below the smallest normal one are zero in this thread until all have left.

        They come with kernel values of distant rows, and a processor takes many times as long for
        them: the factor of 3,000 rows took 11.5 s, and takes 0.5.
        """
        depth = getattr(self.thread, "depth", 0)
        if depth == 0:
            self.thread.flushed_before = math.prod((sys.float_info.min, 0.5)) == 0.0
        self.thread.depth = depth + entered
        torch.set_flush_denormal(self.thread.depth > 0 or self.thread.flushed_before)

    def reset(self) -> None:
        """Begin again in a forked process, in which torch has one thread.

        Threads of OpenMP do not survive a fork, and the first operation that is to be shared among
        them would wait for ever, as in any program with torch. Nor does whoever held the lock.
        """
        self.lock, self.entered = threading.Lock(), []
        torch.set_num_threads(1)


torch_threads = TorchThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=torch_threads.reset)


class ThreadPools:
    """Threads in which torch has one thread per operation, kept for the next tasks.

    A step of a metric descent on four batches of 400 rows took 16 ms on two new threads, as long as
    on one, and takes 10 on two that are there; on batches of 800 rows 62 and 35. New threads also
    cost memory: novelty of 10^7 rows, with new ones for every run, grew to 5 GB.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again in a forked process, in which these threads do not run."""
        self.lock = threading.Lock()
        self.idle: dict[int, ThreadPoolExecutor] = {}  # by number of threads

    @contextmanager
    def borrow(self, n_threads: int) -> Iterator[Submit]:
        """Submit tasks to threads of one's own; at the end, tasks that wait are cancelled.

        Whoever comes while these threads are in use, as a task that has tasks itself, gets others.
        """
        with self.lock:
            pool = self.idle.pop(n_threads, None)
        pool = pool or ThreadPoolExecutor(n_threads, initializer=self.start_thread)
        unfinished: set[Future[Any]] = set()  # without results, which may be large

        def submit(function: Callable[[Task], Any], task: Task) -> Future[Any]:
            future = pool.submit(function, task)
            unfinished.add(future)
            future.add_done_callback(unfinished.discard)
            return future

        try:
            yield submit
        finally:
            left = list(unfinished)
            for future in left:
                future.cancel()
            wait(left)
            with self.lock:
                kept = self.idle.setdefault(n_threads, pool)
            if kept is not pool:
                pool.shutdown(wait=False)

    @staticmethod
    def start_thread() -> None:
        """Set what a thread has of its own.

        For products MKL takes the number of threads of the thread it is called from, which in a new
        one is all cores. What becomes of denormal numbers is set in each thread, too.
        """
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)


thread_pools = ThreadPools()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=thread_pools.reset)


def map_on_threads(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_threads: int
) -> list[Result]:
    """function(task) of many short tasks, in order, each with one thread of torch."""
    with torch_threads(1):
        if n_threads == 1:
            return [function(task) for task in tasks]
        with thread_pools.borrow(n_threads) as submit:
            return [future.result() for future in [submit(function, task) for task in tasks]]


def sum_on_threads(
    function: Callable[[Task], torch.Tensor], tasks: Sequence[Task], n_threads: int
) -> torch.Tensor:
    """The sum of function(task), added in order whatever finishes first, each with one thread.

    At most one result a thread waits to be added.
    """
    with torch_threads(1):
        if n_threads == 1 or len(tasks) == 1:
            return reduce(torch.Tensor.add_, map(function, tasks))
        with thread_pools.borrow(n_threads) as submit:
            waiting = iter(tasks)
            running = deque(submit(function, task) for task in islice(waiting, n_threads))
            total: torch.Tensor = running.popleft().result()
            while running:
                running.extend(submit(function, task) for task in islice(waiting, 1))
                total.add_(running.popleft().result())
            return total
