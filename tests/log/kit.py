"""What the tests of the log share: replicas on a disk, batches, and a preparer without a thread."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kraftfast.errors import DiskFull
from kraftfast.link.ring_link import OwnDoorbell
from kraftfast.log.disk import Disk
from kraftfast.log.nursery import PreparerThread
from kraftfast.log.recovery import LogSettings, Recovered, open_log
from kraftfast.log.small_files import quorum_state
from kraftfast.log.small_files.directory import (
    LogOptions,
    MetaProperties,
    ReplicaDirectory,
    format_directory,
)
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.log.spare import do_now
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from kraftfast.types import ElectionState, OffsetAndEpoch

KIB = 1024
PAGE = 4096
TIMESTAMP = 1_700_000_000_000
META = MetaProperties("test-cluster", 1, bytes(range(16)))
SMALL: dict[str, Any] = {"segment_bytes": 64 * KIB, "stride_bytes": 32 * KIB, "prepare_bytes": 0}
"""Settings of logs whose segments roll after a few batches."""


class SteadyPreparer:
    """Prepares a range as soon as it is asked to, in the caller's thread; ``refuse``: errno."""

    def __init__(self) -> None:
        self.refuse = 0
        self.asked: list[tuple[str, int, int]] = []
        self._done = 0
        self._error: int | None = None
        self.closed = False

    def ask(self, file: Any, what: str, start: int, end: int) -> None:
        assert self._error is None, "one range at a time"
        self._done, self._error = start, self.refuse
        self.asked.append((what, start, end))
        if not self.refuse:
            try:
                do_now(file, what, start, end)
                self._done = end
            except DiskFull:
                self._error = errno.ENOSPC

    def busy(self) -> bool:
        return False

    def done(self) -> int:
        return self._done

    def flushes(self) -> int:
        return 0

    def take(self) -> int | None:
        error, self._error = self._error, None
        return error

    def halt(self) -> None:
        pass

    def cancel(self) -> None:
        self._error = None

    def close(self) -> None:
        self.closed = True


def batch(
    values: Sequence[bytes] = (b"value",),
    *,
    base_offset: int = 0,
    epoch: int = 0,
    timestamp: int = TIMESTAMP,
    control: bool = False,
) -> bytes:
    """A batch of records that Kafka's raft reader takes too."""
    records = [Record(base_offset + i, timestamp, None, value) for i, value in enumerate(values)]
    return encode_batch(records, leader_epoch=epoch, control=control)


def batch_of_size(size: int, *, base_offset: int = 0, epoch: int = 0, fill: bytes = b"v") -> bytes:
    """One record, as long as it takes for the whole batch to have ``size`` bytes (at least 69)."""
    for overhead in range(68, 80):
        if size < overhead:
            break
        built = batch([fill * (size - overhead)], base_offset=base_offset, epoch=epoch)
        if len(built) == size:
            return built
    raise ValueError(f"no batch of one record has {size} bytes")


class Home:
    """One replica's directory on a disk, opened and left in many ways."""

    def __init__(self, path: str | Path, disk: Disk | None = None, **options: Any) -> None:
        self.path, self.disk = str(path), disk or Disk()
        self.directory: ReplicaDirectory | None = None
        self.recovered: Recovered | None = None
        self.topic = "__cluster_metadata-0"
        if not self.disk.exists(os.path.join(self.path, "meta.properties")):
            format_directory(self.disk, self.path, META, LogOptions(**options))
            if type(self.disk) is Disk:
                self.persist()

    @classmethod
    def copied(cls, log_path: Path, target: Path) -> Home:
        """A copy of a directory that Kafka left, to be opened as ours."""
        shutil.copytree(log_path.parent, target)
        for path in [target, *target.rglob("*")]:
            path.chmod(0o700)
        if not (target / "meta.properties").exists():  # Kafka's raft load server has none
            (target / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
        return cls.on(Disk(), str(target), log_path.name)

    @classmethod
    def on(cls, disk: Disk, path: str, topic: str) -> Home:
        """A directory that is there already, ours or not."""
        home = cls.__new__(cls)
        home.path, home.disk, home.topic = path, disk, topic
        home.directory = home.recovered = None
        return home

    def persist(self, epoch: int = 1000) -> None:
        """Write quorum-state, as a replica does before it has a record of an epoch (D5)."""
        data = quorum_state.seal(quorum_state.encode(ElectionState(epoch), 1, ()))
        self.disk.make_directory(self.log_path)
        self.disk.replace_file(os.path.join(self.log_path, quorum_state.NAME), data)

    def open(self, preparer: Any = None, **settings: Any) -> Any:
        """Recover and open; returns the log."""
        self.directory = ReplicaDirectory(self.disk, self.path)
        try:
            self.recovered = open_log(
                self.disk,
                self.directory,
                LogSettings(**{**SMALL, **settings}),
                preparer or SteadyPreparer(),
            )
        except BaseException:
            self.directory.close()
            raise
        return self.recovered.log

    @property
    def log(self) -> Any:
        assert self.recovered is not None
        return self.recovered.log

    @property
    def log_path(self) -> str:
        return os.path.join(self.path, self.topic)

    def close(self) -> None:
        """As an orderly stop."""
        self.log.close()
        self._let_go()

    def kill(self) -> None:
        """As SIGKILL: what was stored stays in the page cache, nothing else happens."""
        self.log.abandon()
        self._let_go()

    def _let_go(self) -> None:
        assert self.directory is not None
        self.directory.close()
        self.directory = self.recovered = None

    def segment_paths(self) -> list[str]:
        names = self.disk.list_directory(self.log_path)
        return [os.path.join(self.log_path, name) for name in names if name.endswith(".log")]


def tend_until(log: Any, ready: Any, seconds: float = 10.0) -> None:
    """Let the nursery work until ``ready()``."""
    deadline = time.monotonic() + seconds
    while not ready():
        log.tend(int(time.monotonic() * 1000))
        assert time.monotonic() < deadline, "the nursery does not get there"
        time.sleep(0.0005)


def append(log: Any, data: bytes, epoch: int = 1) -> int:
    """Append one batch, waiting for room; returns its base offset."""
    offset: int = log.end_offset
    tend_until(log, lambda: log.append(data, epoch))
    return offset


def fill(log: Any, count: int, size: int = 1000, epoch: int = 1) -> list[bytes]:
    """Append ``count`` batches of one record; returns them as stored."""
    stored = []
    for _ in range(count):
        offset = log.end_offset
        made = batch_of_size(size, base_offset=offset, epoch=epoch, fill=bytes([97 + offset % 26]))
        append(log, made, epoch)
        stored.append(made)
    return stored


def snapshot(home: Home, offset: int, epoch: int = 1, values: Sequence[bytes] = (b"state",)) -> Any:
    """A snapshot of what is below ``offset``, finished; returns its id."""
    snapshot_id = OffsetAndEpoch(offset, epoch)
    with SnapshotWriter(
        home.disk, home.log_path, snapshot_id, last_contained_log_timestamp=TIMESTAMP
    ) as writer:
        writer.extend(values)
        writer.freeze()
    return snapshot_id


def content(log: Any) -> bytes:
    """All batches of a log, one behind the other, from its first segment on."""
    parts = []
    for segment in log.segments:
        if segment.position:
            parts.append(bytes(segment.file.view(0, segment.position)))
    return b"".join(parts)


@contextmanager
def preparer_thread() -> Iterator[PreparerThread]:
    """The real C thread, with a doorbell that nobody listens to."""
    bell = OwnDoorbell()
    thread = PreparerThread(bell.bell.address, bell.bell.fd)
    try:
        yield thread
    finally:
        thread.close()
        bell.close()
