"""Results of tasks as files, so that nothing finished is done again.

A result is an array and some facts. The array is published under a name that depends on the task
alone, then its marker: the facts, the digest of the array, what the result builds on, and a digest
of all of these. Whatever fails in between leaves a task without a marker, and such tasks are run
again; so are those whose files have changed. Results of another job build on something else, so
they never count, whatever has happened to the file that names the job the folder belongs to.
"""

import hashlib
import json
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parkrr.data import Folder, open_folder
from parkrr.errors import CheckpointError, ResultError
from parkrr.out_of_core.lease import lease_folder
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
        A path or a URL. Every worker must see it.
    tag
        What results build on; those with another tag do not count.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from parkrr.out_of_core.checkpoint import Checkpoint, checksums
    >>> checkpoint, sums = Checkpoint(tempfile.mkdtemp()), np.ones(3)
    >>> checkpoint.publish("sums-0", sums, {"checks": checksums(sums, [3])})
    >>> checkpoint.read("sums-0", 0, [3], checkpoint.facts("sums-0")["checks"])
    array([1., 1., 1.])
    """

    folder: str
    tag: str = ""

    @cached_property
    def place(self) -> Folder:
        """The folder, on a disk or in an object store."""
        return open_folder(self.folder)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Make the folder and keep other runs out of it.

        The workers of a cluster write for the process that holds it.
        """
        self.place.make()
        with lease_folder(self.place):
            yield

    @contextmanager
    def open_for(self, job: dict[str, Any]) -> Iterator["Checkpoint"]:
        """Hold the folder for a job: results count if they build on it."""
        with self.hold():
            self.check(job)
            yield replace(self, tag=digest_of_facts(job))

    def check(self, job: dict[str, Any]) -> None:
        """Check that the folder belongs to that job, or to none."""
        if JOB not in self.place.names():
            return
        try:
            there = json.loads(self.place.read(JOB))
            digest = there.pop("digest", None)
            old = digest is None and there.get("version") != job["version"]
            if not old and digest != digest_of_facts(there):
                raise ValueError
        except (ValueError, AttributeError, TypeError):
            raise CheckpointError(
                f"{self.place.display_name(JOB)!r} is damaged, so it cannot be told which job "
                f"the folder belongs to. Use another folder, or delete that file: results of "
                f"this job are then used again, and those of others replaced."
            ) from None
        for part, new in as_json(job).items():
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
                whole = {**job, "digest": digest_of_facts(job)}
                file.write(json.dumps(whole, indent=1).encode())

    def publish(self, name: str, array: Array, facts: dict[str, Any]) -> None:
        """Keep a result: the array first, then the marker that makes it count."""
        content = as_bytes(array)
        with self.place.atomic_write(f"{name}.numbers") as file:
            file.write(content)
        self.mark(f"{name}.json", hashlib.sha256(content).hexdigest(), facts)

    def mark(self, marker: str, digest: str, facts: dict[str, Any]) -> None:
        """Write a marker for a file of that digest."""
        body = {"marker": marker, "digest": digest, "tag": self.tag, "facts": facts}
        with self.place.atomic_write(marker) as file:
            file.write(json.dumps({**body, "seal": digest_of_facts(body)}).encode())

    def facts(self, name: str) -> Any:
        """The facts of a finished task, or None if it is not finished or its files are damaged."""
        marker = self.read_marker(f"{name}.json", f"{name}.numbers")
        return None if marker is None else marker["facts"]

    def read_marker(self, marker: str, name: str) -> dict[str, Any] | None:
        """What marks a file, or None if nothing does, it builds on something else or is damaged."""
        try:
            content = self.place.read(marker)
        except FileNotFoundError:
            return None
        try:
            body = json.loads(content)
            if body.pop("seal") == digest_of_facts(body) and body["marker"] == marker:
                if body["tag"] != self.tag:
                    return None
                if digest_of(self.place, name) == body["digest"]:
                    return dict(body)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        path = self.place.display_name(marker)
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

    def read(
        self,
        name: str,
        start: int,
        lengths: Sequence[int],
        checks: Sequence[int],
        dtype: Any = np.float64,
    ) -> Array:
        """Pieces of these lengths of a result of that dtype, from a position on.

        Each is compared with its checksum, for files may change after their markers were read.
        """
        numbers, path = np.empty(sum(lengths), dtype), self.place.display_name(f"{name}.numbers")
        try:
            with self.place.file(f"{name}.numbers") as file:
                file.seek(numbers.itemsize * start)
                n_bytes = file.readinto(numbers)
        except FileNotFoundError as error:
            raise ResultError(f"{path!r} is gone; the same call makes it again") from error
        if n_bytes != numbers.nbytes or checksums(numbers, lengths) != list(checks):
            raise ResultError(f"{path!r} is damaged; the same call makes it again")
        return numbers

    @contextmanager
    def make_once(
        self, name: str, make: Callable[[], Made], write: Callable[[Path, Made], None]
    ) -> "Iterator[tuple[Checkpoint, Path]]":
        """Make a file and mark it, unless it is there and undamaged; `write` publishes at once.

        Yields the same folder, where only results that build on that file count, and the path of a
        copy: what is mapped from it cannot change while the context lasts.
        """
        marker_name = f"{name}.json"
        there = {name, marker_name} <= self.place.names()
        marker = self.read_marker(marker_name, name) if there else None
        if marker is None:
            made = make()
            self.place.put(name, lambda path: write(path, made))
            digest = digest_of(self.place, name)
            self.mark(marker_name, digest, {})
        else:
            digest = marker["digest"]
        with tempfile.TemporaryDirectory(prefix="parkrr-") as own:
            with self.place.file(name) as file, Path(own, name).open("wb") as copy:
                shutil.copyfileobj(file, copy, 2**20)
            if digest_of(open_folder(own), name) != digest:
                path = self.place.display_name(name)
                raise ResultError(f"{path!r} is damaged; the same call makes it again")
            yield replace(self, tag=digest_of_facts([self.tag, digest])), Path(own, name)


def checksums(array: Array, lengths: Sequence[int]) -> list[int]:
    """CRC-32 of consecutive pieces of an array of these lengths.

    Not SHA-256, for a slice of the table has one for each cell: 4 million numbers at 10^9 rows.
    """
    ends = np.cumsum([0, *lengths]).tolist()
    flat = array.reshape(-1)
    return [zlib.crc32(as_bytes(flat[a:b])) for a, b in pairwise(ends)]


def as_bytes(array: Array) -> memoryview:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def digest_of(folder: Folder, name: str) -> str:
    """Of a file as it is there."""
    digest = hashlib.sha256()
    with folder.file(name) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of_facts(facts: Any) -> str:
    """Of plain data, the same before it is written as JSON and after it was read."""
    return hashlib.sha256(json.dumps(as_json(facts), sort_keys=True).encode()).hexdigest()


def as_json(facts: Any) -> Any:
    """Plain data as it is when it is read again: tuples are lists then."""
    return json.loads(json.dumps(facts))
