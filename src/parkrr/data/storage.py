"""A folder on this machine or in an object store, and files written atomically."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import ArrowException, fs

from parkrr.errors import ParameterError, ParKError, StorageError

TEMPORARY = ".unfinished-"


@dataclass(frozen=True)
class Folder:
    """A folder of files that are written once.

    Examples
    --------
    >>> import tempfile
    >>> from parkrr.data.storage import open_folder
    >>> folder = open_folder(tempfile.mkdtemp())
    >>> with folder.atomic_write("rows") as file:
    ...     written = file.write(b"whole")
    >>> folder.names(), folder.read("rows")
    ({'rows'}, b'whole')
    """

    path: str  # in that filesystem
    filesystem: Any  # of pyarrow: a disk, S3, Google's storage, HDFS

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine, or one it has mounted."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def display_name(self, name: str) -> str:
        """A file as messages name it: without the keys and options that its URL may have."""
        kind = "" if self.is_local else f"{self.filesystem.type_name}://"
        return f"{kind}{self.path}/{name}"

    def make(self) -> None:
        """Create the folder, unless it exists."""
        with naming_writes(self.display_name("")):
            self.filesystem.create_dir(self.path, recursive=True)

    def sweep(self) -> None:
        """Remove unfinished files of processes that were killed."""
        for name in self.names():
            if name.startswith(TEMPORARY):
                self.remove(name)

    def remove(self, name: str) -> None:
        """Delete a file."""
        self.filesystem.delete_file(f"{self.path}/{name}")

    def rename(self, name: str, other: str) -> None:
        """Give a file another name; a file of that name is replaced."""
        with naming_writes(self.display_name(other)):
            self.filesystem.move(f"{self.path}/{name}", f"{self.path}/{other}")

    def names(self) -> set[str]:
        """Of all files, in one request."""
        infos = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return {info.base_name for info in infos}

    def file(self, name: str) -> Any:
        """A file to read, from any position; FileNotFoundError if there is none."""
        return self.filesystem.open_input_file(f"{self.path}/{name}")

    def read(self, name: str) -> bytes:
        """All of a file."""
        with self.file(name) as file:
            content: bytes = file.read()
        return content

    @contextmanager
    def atomic_write(self, name: str) -> Iterator[Any]:
        """A file to write, which appears under its name only when it is whole.

        An object store would show what an exception left of a file, so it too has another name
        until the file is whole; a move is then a copy inside the store.
        """
        temporary = f"{self.path}/{temporary_name(name)}"
        with naming_writes(self.display_name(name)):
            try:
                with self.filesystem.open_output_stream(temporary) as file:
                    yield file
                self.filesystem.move(temporary, f"{self.path}/{name}")
            except BaseException:
                if self.filesystem.get_file_info(temporary).type != fs.FileType.NotFound:
                    self.filesystem.delete_file(temporary)
                raise

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        """Store what `write` writes to a path of this machine."""
        if self.is_local:
            write(Path(self.path, name))
            return
        with tempfile.TemporaryDirectory(prefix="parkrr-") as own:
            write(Path(own, name))
            with Path(own, name).open("rb") as copy, self.atomic_write(name) as file:
                shutil.copyfileobj(copy, file, 2**20)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """A path of this machine with that file, for readers that need one."""
        if self.is_local:
            yield Path(self.path, name)
            return
        with tempfile.TemporaryDirectory(prefix="parkrr-") as own:
            with self.file(name) as file, Path(own, name).open("wb") as copy:
                shutil.copyfileobj(file, copy, 2**20)
            yield Path(own, name)


class DigestingFile:
    """A file to write, and the digest of what was written; what pyarrow needs of one."""

    closed = False

    def __init__(self, file: Any) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, content: Any) -> int:
        self.digest.update(content)
        return int(self.file.write(content))

    def tell(self) -> int:
        return int(self.file.tell())

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        """Whoever opened the file closes it."""


def open_folder(url: str | Path) -> Folder:
    """The folder at a path, or at a URL such as s3://bucket/fit-1 with pyarrow's options."""
    if not isinstance(url, str | os.PathLike):
        raise ParameterError(
            f"a path must be a str or a Path, got {type(url).__name__}; name a file or a folder"
        )
    if not is_url(url):
        return Folder(str(Path(url).absolute()), fs.LocalFileSystem())
    try:
        filesystem, path = fs.FileSystem.from_uri(str(url))
    except (ArrowException, OSError) as error:
        raise ParameterError(
            f"a folder must be a path, or a URL that pyarrow can open such as "
            f"'s3://bucket/fit-1', got {str(url)!r}: {error}"
        ) from error
    return Folder(path.rstrip("/"), filesystem)


def locate_file(path: str | Path) -> tuple[Folder, str]:
    """The folder of a file at a path or URL, and its name there."""
    whole = open_folder(path)
    folder, _, name = whole.path.rpartition("/")
    return Folder(folder, whole.filesystem), name


def is_url(path: str | Path) -> bool:
    """Whether it is a URL and not a path of this machine."""
    return "://" in str(path)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path, which replaces `path` when all went well."""
    temporary = path.with_name(temporary_name(path.name))
    with naming_writes(str(path)):
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def temporary_name(name: str) -> str:
    """A name for a file until it is whole, which no other process uses."""
    return f"{TEMPORARY}{name}.{os.getpid()}.{os.urandom(4).hex()}"


@contextmanager
def naming_writes(path: str) -> Iterator[None]:
    """Name the file that was to be written in errors."""
    try:
        yield
    except ParKError:  # an error of a file that is read names that file
        raise
    except OSError as error:
        raise StorageError(path, explain_write(path, error)) from error


def explain_write(path: str, error: OSError) -> str:
    """Why a file could not be written, and the way out."""
    folder = Path(path).parent
    if not is_url(path) and not folder.exists():
        return f"there is no folder {str(folder)!r}; create it or choose another one"
    if not is_url(path) and Path(path).is_dir():
        return "it is a folder; name a file in it"
    if isinstance(error, PermissionError):
        return f"permission denied; choose a folder that you may write into ({error})"
    return (
        f"{error}; free space or choose another folder. With a checkpoint, rerunning the same "
        f"call resumes."
    )
