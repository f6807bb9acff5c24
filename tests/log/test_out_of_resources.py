"""A host without descriptors or memory refuses a call: typed as what passes, and nothing half done.

What ends of a replica that is: tests/node/test_supervisor.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftfast.errors import DiskFull, FlushFailed, OutOfResources, StorageError
from kraftfast.log.disk import Disk, storage_error
from kraftfast.log.segment_file import SegmentFile


@contextlib.contextmanager
def no_descriptors() -> Iterator[list[int]]:
    """Take every descriptor of this process; whoever closes one of these has one."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 9, most))  # some are there to close
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield held
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        for fd in held:
            os.close(fd)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """One that holds a directory, as that of a replica does."""
    made = Disk()
    made.hold(str(tmp_path))
    yield made
    made.let_go(str(tmp_path))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EMFILE, OutOfResources),
        (errno.ENFILE, OutOfResources),
        (errno.ENOMEM, OutOfResources),
        (errno.EAGAIN, OutOfResources),
        (errno.ENOSPC, DiskFull),
        (errno.EIO, StorageError),
        (errno.EACCES, StorageError),
        (errno.EROFS, StorageError),
    ],
)
def test_what_passes_has_a_type_of_its_own(code: int, kind: type[StorageError]) -> None:
    found = storage_error("cannot open", "/log", OSError(code, os.strerror(code)))
    assert type(found) is kind and f"cannot open /log: {os.strerror(code)}" in str(found)
    assert found.exit_code == kind.exit_code


def test_a_sync_that_fails_does_not_pass() -> None:
    """D9: whatever the error; /dev/null takes zeros, and cannot be synced."""
    file = SegmentFile("/dev/null", os.open(os.devnull, os.O_RDWR), 0, True)
    with pytest.raises(FlushFailed, match="cannot prepare /dev/null"):
        file.zero(0, 4096)
    file.close()


def test_votes_are_stored_with_the_last_descriptor(tmp_path: Path, disk: Disk) -> None:
    """Found by a review: without descriptors an election ended every replica that voted."""
    path = str(tmp_path / "quorum-state")
    disk.rewrite_file(path, b"epoch 1")
    with no_descriptors() as held:
        for epoch in (b"epoch 2", b"epoch 3"):
            disk.rewrite_file(path, epoch)
            assert Path(path + ".tmp").exists()  # the space of the next one
            os.close(held.pop())
            assert disk.read_file(path) == epoch
            held.append(os.open(os.devnull, os.O_RDONLY))
        disk.replace_file(path, b"epoch 4")
        with pytest.raises(OutOfResources, match=r"raise the limit of open files \(ulimit -n\)"):
            disk.create_file(str(tmp_path / "snapshot"))
    assert disk.read_file(path) == b"epoch 4"
    assert sorted(os.listdir(tmp_path)) == ["quorum-state"]


def test_without_even_that_nothing_is_changed(tmp_path: Path, disk: Disk) -> None:
    path = str(tmp_path / "quorum-state")
    disk.rewrite_file(path, b"epoch 1")
    with no_descriptors() as held:
        assert disk._spend()
        held.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OutOfResources):
            disk.rewrite_file(path, b"epoch 2")
    assert disk.read_file(path) == b"epoch 1"
    disk.rewrite_file(path, b"epoch 2")
    with no_descriptors():
        disk.rewrite_file(path, b"epoch 3")  # it has one in reserve again
    assert disk.read_file(path) == b"epoch 3"


def test_a_disk_that_holds_nothing_has_no_descriptor(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    disk = Disk()
    disk.hold(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == len(before) + 2
    disk.let_go(str(tmp_path))
    disk.replace_file(str(tmp_path / "file"), b"x")
    assert os.listdir("/proc/self/fd") == before
