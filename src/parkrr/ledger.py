"""Results of tasks as files, so that nothing finished is done again.

A task's result is an array and some facts. The array is published under a name that depends on
the task alone, then its marker, which holds the facts and a digest: whatever dies in
between leaves a task without a marker, and such tasks are run again.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parkrr.errors import CheckpointError, ParameterError, ParKError, StorageError

Array = NDArray[np.floating[Any]]
Found = TypeVar("Found")
TEMPORARY = ".unfinished-"
JOB = "_job.json"  # readers of folders of Parquet files skip names that begin so


@dataclass(frozen=True)
class Ledger:
    """A folder of results.

    Parameters
    ----------
    folder
        Where they lie; every worker must see it, and one job at a time use it.
    tag
        What results build on; those with another tag do not count.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from parkrr.ledger import Ledger
    >>> ledger = Ledger(tempfile.mkdtemp())
    >>> ledger.publish("sums-0", np.ones(3), {"rows": 2})
    >>> ledger.facts("sums-0"), ledger.read("sums-0", 1, 3)
    ({'rows': 2}, array([1., 1.]))
    """

    folder: str
    tag: str = ""

    def tagged(self, name: str) -> "Ledger":
        """The same folder, where only results that build on that file count."""
        return replace(self, tag=digest_of(Path(self.folder, name)))

    def check(self, job: dict[str, Any]) -> None:
        """Make the folder, or check that it belongs to the same job; sweep what was cut off."""
        if "://" in self.folder:
            raise ParameterError(
                f"results must go to a folder of this machine or one it has mounted, got "
                f"{self.folder!r}"
            )
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        for left in Path(self.folder).glob(f"{TEMPORARY}*"):
            left.unlink(missing_ok=True)
        path = Path(self.folder, JOB)
        if not path.exists():
            return
        try:
            there = json.loads(path.read_text())
        except ValueError:
            raise CheckpointError(
                f"{str(path)!r} is damaged, so it cannot be told which fit {self.folder!r} "
                f"belongs to; delete the folder to start again"
            ) from None
        for part, wanted in json.loads(json.dumps(job)).items():
            self.compare(part, there.get(part), wanted)

    def begin(self, job: dict[str, Any]) -> None:
        """Say whose folder it is, unless it says so."""
        path = Path(self.folder, JOB)
        if not path.exists():
            with publishing(path) as temporary:
                temporary.write_text(json.dumps(job, indent=1))

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
            f"{self.folder!r} belongs to another job: {detail}. Use another folder, or delete this "
            f"one to start again."
        )

    def publish(self, name: str, array: Array, facts: dict[str, Any]) -> None:
        """Keep a result: the array first, then the marker that makes it count."""
        data = np.ascontiguousarray(array)
        with publishing(self.path(name, "numbers")) as temporary:
            data.tofile(temporary)
        digest = hashlib.sha256(data.reshape(-1)).hexdigest()  # type: ignore[arg-type]
        marker = {"digest": digest, "tag": self.tag, "facts": facts}
        with publishing(self.path(name, "json")) as temporary:
            temporary.write_text(json.dumps(marker))

    def facts(self, name: str) -> Any:
        """What is known of a finished task, or None if it is not finished or not sound."""
        path = self.path(name, "json")
        if not path.exists():
            return None
        try:
            marker = json.loads(path.read_text())
            if marker["tag"] != self.tag:
                return None
            sound = digest_of(self.path(name, "numbers")) == marker["digest"]
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if sound:
            return marker["facts"]
        warnings.warn(
            f"{str(path)!r} or what it marks is damaged; that task is run again", stacklevel=2
        )
        return None

    def read(self, name: str, start: int, stop: int, dtype: Any = np.float64) -> Array:
        """The numbers at these positions of a result of that dtype."""
        kind = np.dtype(dtype)
        at = {"count": stop - start, "offset": kind.itemsize * start}
        return np.fromfile(self.path(name, "numbers"), kind, **at)

    def path(self, name: str, kind: str) -> Path:
        return Path(self.folder, f"{name}.{kind}")

    def kept(
        self, name: str, make: Callable[[], Found], write: Callable[[Path, Found], None]
    ) -> None:
        """Make a file and mark it, unless it is there and marked; `write` publishes at once."""
        path, marker = Path(self.folder, name), self.path(name, "done")
        if marker.exists() and path.exists():
            return
        write(path, make())
        with publishing(marker) as temporary:
            temporary.touch()


def digest_of(path: Path) -> str:
    """Of a file as it lies on disk."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def publishing(path: Path) -> Iterator[Path]:
    """A temporary path that takes the place of `path` if all goes well, at once."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        yield temporary
        os.replace(temporary, path)
    except ParKError:  # a file that could not be read names itself
        raise
    except OSError as error:
        raise StorageError(str(path), str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)
