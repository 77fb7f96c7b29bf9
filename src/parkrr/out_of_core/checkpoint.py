"""Results of tasks as files, so that nothing finished is done again.

A task's result is an array and some facts. The array is published under a name that depends on
the task alone, then its marker, which holds the facts and a digest: whatever dies in
between leaves a task without a marker, and such tasks are run again.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parkrr.data import Folder, open_folder
from parkrr.errors import CheckpointError

Array = NDArray[np.floating[Any]]
Found = TypeVar("Found")
JOB = "_job.json"  # readers of folders of Parquet files skip names that begin so


@dataclass(frozen=True)
class Checkpoint:
    """A folder of results.

    Parameters
    ----------
    folder
        Where they lie, a path or a URL; every worker must see it, and one job at a time use it.
    tag
        What results build on; those with another tag do not count.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from parkrr.out_of_core.checkpoint import Checkpoint
    >>> ledger = Checkpoint(tempfile.mkdtemp())
    >>> ledger.publish("sums-0", np.ones(3), {"rows": 2})
    >>> ledger.facts("sums-0"), ledger.read("sums-0", 1, 3)
    ({'rows': 2}, array([1., 1.]))
    """

    folder: str
    tag: str = ""

    @cached_property
    def place(self) -> Folder:
        """The folder, on a disk or in an object store."""
        return open_folder(self.folder)

    def tagged(self, name: str) -> "Checkpoint":
        """The same folder, where only results that build on that file count."""
        return replace(self, tag=digest_of(self.place, name))

    def check(self, job: dict[str, Any]) -> None:
        """Make the folder, or check that it belongs to the same job; sweep what was cut off."""
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
        for part, wanted in json.loads(json.dumps(job)).items():
            self.compare(part, there.get(part), wanted)

    def begin(self, job: dict[str, Any]) -> None:
        """Say whose folder it is, unless it says so."""
        if JOB not in self.place.names():
            with self.place.atomic_write(JOB) as file:
                file.write(json.dumps(job, indent=1).encode())

    def compare(self, part: str, there: Any, wanted: Any) -> None:
        """Refuse a job that differs, naming what does."""
        if there == wanted:
            return
        detail = f"{part} was {there!r} and is {wanted!r}"
        if isinstance(there, dict) and isinstance(wanted, dict):
            names = [k for k in {**there, **wanted} if there.get(k) != wanted.get(k)]
            changes = (f"{k} was {there.get(k)!r} and is {wanted.get(k)!r}" for k in names[:3])
            detail = f"{part}: {'; '.join(changes)}"
        raise CheckpointError(
            f"{self.place.display_name('')!r} belongs to another job: {detail}. Use another "
            f"folder, or delete this one to start again."
        )

    def publish(self, name: str, array: Array, facts: dict[str, Any]) -> None:
        """Keep a result: the array first, then the marker that makes it count."""
        data = np.ascontiguousarray(array)
        content = data.reshape(-1).view(np.uint8).data
        with self.place.atomic_write(f"{name}.numbers") as file:
            file.write(content)
        digest = hashlib.sha256(content).hexdigest()
        marker = {"digest": digest, "tag": self.tag, "facts": facts}
        with self.place.atomic_write(f"{name}.json") as file:
            file.write(json.dumps(marker).encode())

    def known(self, names: Iterable[str]) -> dict[str, Any]:
        """What is known of tasks, None of those not finished or not sound; lists files once."""
        there = self.place.names()
        return {name: self.facts(name) if f"{name}.json" in there else None for name in names}

    def facts(self, name: str) -> Any:
        """What is known of a finished task, or None if it is not finished or not sound."""
        try:
            content = self.place.read(f"{name}.json")
        except FileNotFoundError:
            return None
        try:
            marker = json.loads(content)
            if marker["tag"] != self.tag:
                return None
            sound = digest_of(self.place, f"{name}.numbers") == marker["digest"]
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if sound:
            return marker["facts"]
        path = self.place.display_name(f"{name}.json")
        warnings.warn(f"{path!r} or what it marks is damaged; that task is run again", stacklevel=2)
        return None

    def read(self, name: str, start: int, stop: int, dtype: Any = np.float64) -> Array:
        """The numbers at these positions of a result of that dtype."""
        found = np.empty(stop - start, dtype)
        with self.place.file(f"{name}.numbers") as file:
            file.seek(found.itemsize * start)
            file.readinto(found)
        return found

    def kept(
        self, name: str, make: Callable[[], Found], write: Callable[[Path, Found], None]
    ) -> None:
        """Make a file and mark it, unless it is there and marked; `write` publishes at once."""
        if {name, f"{name}.done"} <= self.place.names():
            return
        made = make()
        self.place.put(name, lambda path: write(path, made))
        with self.place.atomic_write(f"{name}.done"):
            pass


def digest_of(folder: Folder, name: str) -> str:
    """Of a file as it lies there."""
    digest = hashlib.sha256()
    with folder.file(name) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()
