"""Who uses a folder: one run at a time holds its lease, renews it and gives it back.

On a disk of this machine the kernel locks the folder, and unlocks it when the process ends, however
that happens. Machines that share a folder, and object stores, have the file `_lease` alone. Its
owner writes it again every 10 seconds; one that has not changed for 60 is taken over. Clocks of
different machines are never compared.

Stores without a conditional write cannot exclude that two runs that start within the same half
second both hold the lease. The older one then finds out at its next renewal. Neither can harm the
other: files appear whole, under names that depend on the task, and count only with the digests of
their job.
"""

import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from parkrr.data import Folder
from parkrr.errors import CheckpointError

if sys.platform != "win32":
    import fcntl

LEASE = "_lease"
PERIOD = 10.0  # seconds between renewals
MISSED = 6  # renewals after which an owner counts as dead
SETTLE = 0.5  # seconds after which a lease that was written is read again
log = logging.getLogger("parkrr")


@dataclass
class Lease:
    """The lease of a folder; see :func:`lease_folder`."""

    folder: Folder
    period: float
    owner: dict[str, Any]
    lost_to: dict[str, Any] | None = None  # the owner that has taken it over

    def take(self, locked: bool) -> None:
        """Write it, unless its owner lives.

        If the folder is `locked`, no other process of this machine uses it.
        """
        there = self.read()
        if there is not None:
            owner = parse_owner(there)
            if not (locked and owner.get("boot") == self.owner["boot"] != ""):
                self.await_end(there, owner)
        self.write()
        if not locked:
            time.sleep(min(SETTLE, self.period))
            now = parse_owner(self.read())
            if now.get("id") != self.owner["id"]:
                raise self.refusal(now)

    def await_end(self, there: bytes, owner: dict[str, Any]) -> None:
        """Return when the owner is dead; refuse if it lives."""
        own = self.owner
        visible = all(owner.get(part) == own[part] != "" for part in ("boot", "namespace"))
        if visible and owner.get("pid") != own["pid"]:
            if began_at(owner.get("pid")) == owner.get("began"):
                raise self.refusal(owner)
            return
        place = self.folder.display_name(LEASE)
        log.info("waiting for up to %.0f s whether %s is renewed", MISSED * self.period, place)
        for _ in range(MISSED):
            time.sleep(self.period)
            now = self.read()
            if now is None:
                return
            if now != there:
                raise self.refusal(parse_owner(now))

    def renew(self, stopped: threading.Event) -> None:
        """Write it again and again, until it is given back or another run has taken it over."""
        while not stopped.wait(self.period):
            try:
                now = parse_owner(self.read())
                if now.get("id", self.owner["id"]) != self.owner["id"]:
                    self.lost_to = now
                    return
                self.owner["renewals"] += 1
                self.write()
            except OSError as error:  # a network that is back in a moment
                log.warning("the lease cannot be renewed: %s", error)

    def give_back(self) -> None:
        """Remove it, if it is still held."""
        try:
            if parse_owner(self.read()).get("id") == self.owner["id"]:
                self.folder.filesystem.delete_file(f"{self.folder.path}/{LEASE}")
        except OSError as error:  # the next run finds that it is not renewed
            log.warning("the lease cannot be given back: %s", error)

    def read(self) -> bytes | None:
        """What is written there."""
        try:
            return self.folder.read(LEASE)
        except FileNotFoundError:
            return None

    def write(self) -> None:
        """Write the owner. Small objects of a store appear whole without another name."""
        content = json.dumps(self.owner).encode()
        if self.folder.is_local:
            with self.folder.atomic_write(LEASE) as file:
                file.write(content)
            return
        with self.folder.filesystem.open_output_stream(f"{self.folder.path}/{LEASE}") as file:
            file.write(content)

    def refusal(self, owner: dict[str, Any]) -> CheckpointError:
        """That another run uses the folder, with the way out."""
        return CheckpointError(
            f"{self.folder.display_name('')!r} is in use by {name_owner(owner)}. Wait until that "
            f"run ends, or use another folder. If it was killed, its folder is free after "
            f"{MISSED * self.period:.0f} seconds; if it has ended and its process lives on, delete "
            f"{self.folder.display_name(LEASE)!r}."
        )


@contextmanager
def lease_folder(folder: Folder, period: float = PERIOD) -> Iterator[Lease]:
    """Hold the lease of a folder that exists, and remove unfinished files of earlier owners."""
    with lock_folder(folder, period) as locked:
        lease, stopped = Lease(folder, period, describe_owner()), threading.Event()
        lease.take(locked)
        folder.sweep()
        thread = threading.Thread(target=lease.renew, args=(stopped,), daemon=True)
        thread.start()
        try:
            yield lease
        except Exception as error:
            if lease.lost_to is not None:
                raise CheckpointError(
                    f"{folder.display_name('')!r} was taken over by {name_owner(lease.lost_to)}, "
                    f"because this run had not renewed {LEASE!r} for {MISSED * period:.0f} "
                    f"seconds; when that run has ended, the same call resumes"
                ) from error
            raise
        finally:
            stopped.set()
            thread.join()
            lease.give_back()


@contextmanager
def lock_folder(folder: Folder, period: float) -> Iterator[bool]:
    """Lock a folder of this machine; yields whether its file system can."""
    if sys.platform == "win32" or not folder.is_local:
        yield False
        return
    number, locked = os.open(folder.path, os.O_RDONLY), False
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            lease = Lease(folder, period, {})
            raise lease.refusal(parse_owner(lease.read())) from None
        except OSError:
            pass  # NFS locks no folders
        yield locked
    finally:
        if locked:  # closing would leave it to processes forked meanwhile
            fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


def describe_owner() -> dict[str, Any]:
    """This process, as others may recognize it."""
    return {
        "id": os.urandom(16).hex(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot": read_boot(),
        "namespace": read_namespace(),
        "began": began_at(os.getpid()),
        "since": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "renewals": 0,
    }


def parse_owner(content: bytes | None) -> dict[str, Any]:
    """The owner that was written, without anything if it is gone or cannot be read."""
    try:
        owner = json.loads(content or b"{}")
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def name_owner(owner: dict[str, Any]) -> str:
    """The owner in a message."""
    if not owner:
        return "another run"
    return f"process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}"


def read_boot() -> str:
    """Which machine this is since it was started, whatever its name; empty if it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def read_namespace() -> str:
    """Which processes have the numbers that are seen here: a container has its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def began_at(pid: Any) -> str | None:
    """When a process began, in ticks of its machine; None if it has ended."""
    try:
        fields = Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()
    except (OSError, TypeError, ValueError):
        return None
    return None if fields[0] in "ZX" else fields[19]  # a zombie has ended
