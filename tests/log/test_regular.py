"""Something else in place of a file: at once an error that says so, and nothing is changed."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from kraftfast.errors import ForeignDirectory
from kraftfast.log.disk import TMP_SUFFIX, Disk
from kraftfast.log.reading.extents import CLEANED, kafka_checkpoint
from tests.log.kit import Home, fill

HANG_S = 5


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Fail a test that waits for the other end of a FIFO."""

    def hangs(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def bind(path: Path) -> None:
    """Leave a socket at ``path``, whose length a socket's name may not have."""
    directory = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)


PUT = {
    "a FIFO": os.mkfifo,
    "a socket": bind,
    "a character device": lambda path: os.symlink("/dev/null", path),
    "a directory": os.mkdir,
}
OPENED = {
    "read_file": lambda disk, path: disk.read_file(path),
    "open_file": lambda disk, path: disk.open_file(path),
    "open_to_read": lambda disk, path: disk.open_to_read(path),
    "open_segment": lambda disk, path: disk.open_segment(path, False),
    "open_segment to write": lambda disk, path: disk.open_segment(path, True),
    "create_segment": lambda disk, path: disk.create_segment(path, 4096),
    "lock": lambda disk, path: disk.lock(path),
    "is_locked": lambda disk, path: disk.is_locked(path),
    "replace_file": lambda disk, path: disk.replace_file(path.removesuffix(TMP_SUFFIX), b"new"),
    "rewrite_file": lambda disk, path: disk.rewrite_file(path.removesuffix(TMP_SUFFIX), b"new"),
    "reserve_rewrite": lambda disk, path: disk.reserve_rewrite(path.removesuffix(TMP_SUFFIX)),
}


@pytest.mark.parametrize("what", PUT)
@pytest.mark.parametrize("how", OPENED)
def test_what_is_no_file_is_refused(how: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / ("file" + TMP_SUFFIX)
    PUT[what](path)
    kind, descriptors = stat.S_IFMT(path.lstat().st_mode), set(os.listdir("/proc/self/fd"))
    with pytest.raises(ForeignDirectory) as raised:
        OPENED[how](Disk(), str(path))
    assert str(raised.value) == f"{path} is {what}, and must be a regular file"
    assert stat.S_IFMT(path.lstat().st_mode) == kind and os.listdir(tmp_path) == [path.name]
    assert set(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "durable-end", "00000000000000000000.log"]
)
def test_a_replica_does_not_begin_with_a_fifo_among_its_files(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path)
    fill(home.open(), 3)
    home.close()
    path = Path(home.log_path, name)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ForeignDirectory, match=f"{name} is a FIFO"):
        home.open()


def test_what_kafka_stored_beside_a_log_may_be_anything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CLEANED)
    assert kafka_checkpoint(str(tmp_path / "topic-0"), CLEANED) is None
