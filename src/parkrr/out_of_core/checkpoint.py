"""Results of tasks as files, so that nothing finished is done again.

A result is an array and some facts. The array is published under a name that depends on the task
alone, then its marker, which holds the facts and a digest. Whatever fails in between leaves a task
without a marker, and such tasks are run again.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parkrr.data import Folder, open_folder
from parkrr.errors import CheckpointError
from parkrr.park import FitSettings
from parkrr.runtime import run_tasks

Array = NDArray[np.floating[Any]]
JOB = "_job.json"  # readers of folders of Parquet files skip names that begin so

Made = TypeVar("Made")


@dataclass(frozen=True)
class Checkpoint:
    """A folder of results.

    Parameters
    ----------
    folder
        A path or a URL. Every worker must see it, and one job at a time use it.
    tag
        What results build on; those with another tag do not count.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from parkrr.out_of_core.checkpoint import Checkpoint
    >>> checkpoint = Checkpoint(tempfile.mkdtemp())
    >>> checkpoint.publish("sums-0", np.ones(3), {"rows": 2})
    >>> checkpoint.facts("sums-0"), checkpoint.read("sums-0", 1, 3)
    ({'rows': 2}, array([1., 1.]))
    """

    folder: str
    tag: str = ""

    @cached_property
    def place(self) -> Folder:
        """The folder, on a disk or in an object store."""
        return open_folder(self.folder)

    def build_on(self, name: str) -> "Checkpoint":
        """The same folder, where only results that build on that file count."""
        return replace(self, tag=digest_of(self.place, name))

    def check(self, job: dict[str, Any]) -> None:
        """Make the folder, or check that it belongs to the same job; remove unfinished files."""
        self.place.make()
        self.place.sweep()
        if JOB not in self.place.names():
            return
        try:
            there = json.loads(self.place.read(JOB))
        except ValueError:
            raise CheckpointError(
                f"{self.place.display_name(JOB)!r} is damaged, so it cannot be told which fit "
                f"the folder belongs to; delete it to start again"
            ) from None
        for part, new in json.loads(json.dumps(job)).items():
            self.compare(part, there.get(part), new)

    def compare(self, part: str, old: Any, new: Any) -> None:
        """Refuse a job that differs, naming what does."""
        if old == new:
            return
        detail = f"{part} was {old!r} and is {new!r}"
        if isinstance(old, dict) and isinstance(new, dict):
            names = [k for k in {**old, **new} if old.get(k) != new.get(k)]
            changes = (f"{k} was {old.get(k)!r} and is {new.get(k)!r}" for k in names[:3])
            detail = f"{part}: {'; '.join(changes)}"
        raise CheckpointError(
            f"{self.place.display_name('')!r} belongs to another job: {detail}. Use another "
            f"folder, or delete this one to start again."
        )

    def begin(self, job: dict[str, Any]) -> None:
        """Write which job the folder belongs to, unless it is there."""
        if JOB not in self.place.names():
            with self.place.atomic_write(JOB) as file:
                file.write(json.dumps(job, indent=1).encode())

    def publish(self, name: str, array: Array, facts: dict[str, Any]) -> None:
        """Keep a result: the array first, then the marker that makes it count."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        with self.place.atomic_write(f"{name}.numbers") as file:
            file.write(content)
        digest = hashlib.sha256(content).hexdigest()
        marker = {"digest": digest, "tag": self.tag, "facts": facts}
        with self.place.atomic_write(f"{name}.json") as file:
            file.write(json.dumps(marker).encode())

    def facts(self, name: str) -> Any:
        """The facts of a finished task, or None if it is not finished or its files are damaged."""
        try:
            content = self.place.read(f"{name}.json")
        except FileNotFoundError:
            return None
        try:
            marker = json.loads(content)
            if marker["tag"] != self.tag:
                return None
            if digest_of(self.place, f"{name}.numbers") == marker["digest"]:
                return marker["facts"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        path = self.place.display_name(f"{name}.json")
        warnings.warn(f"{path!r} or what it marks is damaged; that task is run again", stacklevel=2)
        return None

    def run(
        self,
        settings: FitSettings,
        label: str,
        work: Callable[[Any], Any],
        tasks: Sequence[Any],
        unit: str = "rows",
    ) -> list[Any]:
        """Run the tasks that are not finished, the largest first; the facts of all, in order.

        A task has a name and a size; `work` publishes its result by name and returns the facts.
        """
        there = self.place.names()  # listed once
        return run_tasks(
            settings.engine,
            work,
            tasks,
            label=label,
            unit=unit,
            size_of=lambda task: task.size,
            shown=settings.shown,
            done=[self.facts(t.name) if f"{t.name}.json" in there else None for t in tasks],
        )

    def read(self, name: str, start: int, stop: int, dtype: Any = np.float64) -> Array:
        """The numbers at these positions of a result of that dtype."""
        numbers = np.empty(stop - start, dtype)
        with self.place.file(f"{name}.numbers") as file:
            file.seek(numbers.itemsize * start)
            file.readinto(numbers)
        return numbers

    def make_once(
        self, name: str, make: Callable[[], Made], write: Callable[[Path, Made], None]
    ) -> None:
        """Make a file and mark it, unless it is there and marked; `write` publishes at once."""
        if {name, f"{name}.done"} <= self.place.names():
            return
        made = make()
        self.place.put(name, lambda path: write(path, made))
        with self.place.atomic_write(f"{name}.done"):
            pass


def digest_of(folder: Folder, name: str) -> str:
    """Of a file as it is there."""
    digest = hashlib.sha256()
    with folder.file(name) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()
