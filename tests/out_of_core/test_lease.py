"""One run at a time in a folder: who is refused, who waits, and what a kill leaves behind."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from parkrr.data.storage import open_folder
from parkrr.errors import CheckpointError
from parkrr.out_of_core.lease import LEASE, MISSED, describe_owner, lease_folder

PERIOD = 0.05  # seconds, so that an owner of another machine counts as dead after 0.3


@pytest.fixture(params=["disk", "bucket"])
def url(request, tmp_path):
    """Of a folder on a disk, and of one in a bucket."""
    if request.param == "disk":
        return str(tmp_path)
    return request.getfixturevalue("s3")(f"lease-{tmp_path.name}")


@pytest.fixture
def folder(url):
    return open_folder(url)


def write(folder, **owner):
    """A lease of a process that is not this one."""
    with folder.filesystem.open_output_stream(f"{folder.path}/{LEASE}") as file:
        file.write(json.dumps({**describe_owner(), "id": "another", **owner}).encode())


ELSEWHERE = {"host": "elsewhere", "boot": "another", "pid": 4321}


HOLD = """
import sys
from parkrr.data.storage import open_folder
from parkrr.out_of_core.lease import lease_folder
with lease_folder(open_folder(sys.argv[1]), 0.05):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(url):
    """Another process that holds the lease until it is killed."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, url], **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_lease_is_gone_when_it_was_given_back(folder):
    with lease_folder(folder, PERIOD):
        assert LEASE in folder.names()
    assert LEASE not in folder.names()


def test_a_second_run_is_refused_until_the_first_is_killed(folder, holder):
    with folder.filesystem.open_output_stream(f"{folder.path}/.unfinished-x.1.a") as file:
        file.write(b"half")
    who = rf"in use by process {holder.pid} on {socket.gethostname()} since .* use another folder"
    with pytest.raises(CheckpointError, match=who) as refused, lease_folder(folder, PERIOD):
        pass
    assert folder.display_name("") in str(refused.value)
    assert ".unfinished-x.1.a" in folder.names()  # the first may still be writing it
    holder.kill()
    holder.wait()
    assert LEASE in folder.names()
    with lease_folder(folder, period=3600):  # waiting for a renewal would take an hour
        assert json.loads(folder.read(LEASE))["pid"] == os.getpid()
        assert ".unfinished-x.1.a" not in folder.names()


def test_a_second_run_in_the_same_process_is_refused(folder):
    with (
        lease_folder(folder, PERIOD),
        pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"),
        lease_folder(folder, 2 * PERIOD),
    ):
        pass


def test_an_owner_elsewhere_that_renews_its_lease_is_alive(folder):
    write(folder, **ELSEWHERE)
    renewed = threading.Timer(PERIOD, write, [folder], {**ELSEWHERE, "renewals": 1})
    renewed.start()
    with (
        pytest.raises(CheckpointError, match="process 4321 on elsewhere"),
        lease_folder(folder, 2 * PERIOD),
    ):
        pass
    renewed.join()


@pytest.mark.parametrize("content", [json.dumps(ELSEWHERE).encode(), b"\xff{", b"[]", b""])
def test_a_lease_that_nobody_renews_is_taken_over(folder, content):
    with folder.filesystem.open_output_stream(f"{folder.path}/{LEASE}") as file:
        file.write(content)
    with lease_folder(folder, PERIOD):
        assert json.loads(folder.read(LEASE))["pid"] == os.getpid()


def test_a_process_number_that_is_used_again_does_not_count_as_its_owner(folder):
    write(folder, pid=os.getppid(), began="1")
    with lease_folder(folder, period=3600 if folder.is_local else PERIOD):
        assert json.loads(folder.read(LEASE))["pid"] == os.getpid()


def fail_when_taken_over(folder):
    with lease_folder(folder, PERIOD) as lease:
        wait_until_lost(folder, lease)
        raise ZeroDivisionError


def wait_until_lost(folder, lease):
    """Another owner renews its lease, too: a renewal may have been on its way."""
    waited = threading.Event()
    for _ in range(1000):
        if lease.lost_to is not None:
            return
        write(folder, **ELSEWHERE)
        waited.wait(PERIOD / 5)


def test_a_run_whose_folder_was_taken_over_says_so_and_leaves_the_lease(folder):
    with pytest.raises(CheckpointError, match=r"taken over by process 4321 on elsewhere.*resumes"):
        fail_when_taken_over(folder)
    assert json.loads(folder.read(LEASE))["id"] == "another"


def test_a_lease_that_somebody_deleted_is_written_again(folder):
    with lease_folder(folder, PERIOD):
        folder.filesystem.delete_file(f"{folder.path}/{LEASE}")
        waited = threading.Event()
        assert any(LEASE in folder.names() or waited.wait(PERIOD) for _ in range(20 * MISSED))
