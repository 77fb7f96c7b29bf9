"""A folder on this machine or in an object store, and files that appear there at once."""

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

    Parameters
    ----------
    path
        In that filesystem.
    filesystem
        Of pyarrow: a disk, S3, Google's storage, HDFS.

    Examples
    --------
    >>> import tempfile
    >>> from parkrr.data.storage import open_folder
    >>> folder = open_folder(tempfile.mkdtemp())
    >>> with folder.publishing("sums") as file:
    ...     written = file.write(b"whole")
    >>> folder.names(), folder.read("sums")
    ({'sums'}, b'whole')
    """

    path: str
    filesystem: Any

    @property
    def here(self) -> bool:
        """Whether it is a folder of this machine, or one it has mounted."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def called(self, name: str) -> str:
        """A file as messages name it: without the keys and options that its URL may have."""
        kind = "" if self.here else f"{self.filesystem.type_name}://"
        return f"{kind}{self.path}/{name}"

    def make(self) -> None:
        """Make the folder, unless it is there."""
        with naming_writes(self.called("")):
            self.filesystem.create_dir(self.path, recursive=True)

    def sweep(self) -> None:
        """Remove what was cut off."""
        for name in self.names():
            if name.startswith(TEMPORARY):
                self.filesystem.delete_file(f"{self.path}/{name}")

    def names(self) -> set[str]:
        """Of all files; one request, however many there are asked for."""
        there = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return {info.base_name for info in there}

    def file(self, name: str) -> Any:
        """A file to read, from any place in it; FileNotFoundError if there is none."""
        return self.filesystem.open_input_file(f"{self.path}/{name}")

    def read(self, name: str) -> bytes:
        """All of a file."""
        with self.file(name) as file:
            content: bytes = file.read()
        return content

    @contextmanager
    def publishing(self, name: str) -> Iterator[Any]:
        """A file to write, which is there under its name, at once, if all goes well.

        An object store would show what an exception left of a file, so it too has another name
        until the file is whole; a move is then a copy inside of the store.
        """
        temporary = f"{self.path}/{temporary_name(name)}"
        with naming_writes(self.called(name)):
            try:
                with self.filesystem.open_output_stream(temporary) as file:
                    yield file
                self.filesystem.move(temporary, f"{self.path}/{name}")
            except BaseException:
                if self.filesystem.get_file_info(temporary).type != fs.FileType.NotFound:
                    self.filesystem.delete_file(temporary)
                raise

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        """Publish what `write` makes at a path of this machine, at once."""
        if self.here:
            write(Path(self.path, name))
            return
        with tempfile.TemporaryDirectory(prefix="parkrr-") as own:
            write(Path(own, name))
            with Path(own, name).open("rb") as made, self.publishing(name) as file:
                shutil.copyfileobj(made, file, 2**20)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """A path of this machine with that file, for readers that need one."""
        if self.here:
            yield Path(self.path, name)
            return
        with tempfile.TemporaryDirectory(prefix="parkrr-") as own:
            with self.file(name) as there, Path(own, name).open("wb") as copy:
                shutil.copyfileobj(there, copy, 2**20)
            yield Path(own, name)


def open_folder(url: str | Path) -> Folder:
    """The folder at a path, or at a URL such as s3://bucket/fit-1 with pyarrow's options."""
    if not is_url(url):
        return Folder(str(Path(url).absolute()), fs.LocalFileSystem())
    try:
        filesystem, path = fs.FileSystem.from_uri(str(url))
    except (ArrowException, OSError) as error:
        raise ParameterError(
            f"a folder must be a path, or a URL that pyarrow knows such as 's3://bucket/fit-1', "
            f"got {str(url)!r}: {error}"
        ) from error
    return Folder(path.rstrip("/"), filesystem)


def placed(path: str | Path) -> tuple[Folder, str]:
    """The folder of a file at a path or URL, and its name there."""
    whole = open_folder(path)
    folder, _, name = whole.path.rpartition("/")
    return Folder(folder, whole.filesystem), name


def is_url(path: str | Path) -> bool:
    """Whether it names a place beyond the paths of this machine."""
    return "://" in str(path)


def temporary_name(name: str) -> str:
    """Of a file until it is whole; nobody else's."""
    return f"{TEMPORARY}{name}.{os.getpid()}.{os.urandom(4).hex()}"


@contextmanager
def naming_writes(path: str) -> Iterator[None]:
    """What goes wrong inside names the file that was to be written."""
    try:
        yield
    except ParKError:  # a file that could not be read names itself
        raise
    except OSError as error:
        raise StorageError(path, str(error)) from error


@contextmanager
def publishing(path: Path) -> Iterator[Path]:
    """A temporary path that takes the place of `path` if all goes well, at once."""
    temporary = path.with_name(temporary_name(path.name))
    with naming_writes(str(path)):
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
