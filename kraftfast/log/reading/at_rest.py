"""A log that this process does not run: looked at as a start would, or left as Kafka's files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraftfast.errors import NotFormatted, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.index_files import mend_indexes, write_indexes
from kraftfast.log.reading.held_segment import OWNER_BUSY_S_MAX
from kraftfast.log.reading.reader import SEGMENT_FILE
from kraftfast.log.recovery import Recovery, open_segments, remove_strays
from kraftfast.log.small_files import marks
from kraftfast.log.small_files.directory import (
    META,
    NURSERY,
    LogDirectory,
    LooseLog,
    ReplicaDirectory,
)
from kraftfast.log.trimming import unlink_reserves
from kraftfast.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.log.segment import Segment

REPLICAS_NAMED_MAX = 3


def replicas_in(path: str) -> str:
    """Return what to say of a directory that holds replicas, not a log; '' if it holds none."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return ""
    found = [os.path.join(path, each) for each in names]
    replicas = [each for each in found if os.path.exists(os.path.join(each, META))]
    if not replicas:
        return ""
    return f"; its replicas do: name one of {', '.join(replicas[:REPLICAS_NAMED_MAX])}"


def find_log(disk: Disk, path: str) -> LogDirectory:
    """Find the log in a replica's directory, or in a topic's inside it or anywhere; lock nothing.

    Raises NotFormatted where there is none, ForeignDirectory.
    """
    path = os.path.abspath(path)
    if disk.exists(os.path.join(path, META)):
        return ReplicaDirectory(disk, path, lock=False)
    if not any(SEGMENT_FILE.fullmatch(name) for name in disk.list_directory(path)):
        raise NotFormatted(f"{path} holds no log: neither {META} nor segments{replicas_in(path)}")
    parent = os.path.dirname(path)
    if disk.exists(os.path.join(parent, META)):
        replica = ReplicaDirectory(disk, parent, lock=False)
        if os.path.realpath(replica.log_path) == os.path.realpath(path):
            return replica
    return LooseLog(parent, path)


@contextmanager
def looked_at(
    disk: Disk, directory: LogDirectory, floor: OffsetAndEpoch | None = None
) -> Iterator[Recovery]:
    """Yield what a start would make of a log: the recovery that has looked, and changed nothing.

    ``floor``: in place of the committed floor that is stored.

    Its segments are open, read-only and held, until the end of the ``with`` block; those from
    ``keep`` on would go. A replica may run meanwhile. Raises as ``recovery.open_log``.
    """
    segments: list[Segment] = []
    try:
        _open_held(disk, directory, segments)
        recovery = Recovery(disk, directory, segments, floor=floor)
        recovery.look()
        if isinstance(directory, ReplicaDirectory):
            recovery.check_log_start()
        yield recovery
    finally:
        _close(segments)


def _open_held(disk: Disk, directory: LogDirectory, segments: list[Segment]) -> None:
    """Open all segments while their owner, if there is one, leaves their lengths alone."""
    deadline = time.monotonic() + OWNER_BUSY_S_MAX
    while True:
        names = disk.list_directory(directory.log_path)
        try:
            open_segments(disk, directory, segments, writable=False)
            files = [segment.file for segment in segments]
            if all(file.share() and disk.file_bytes(file.path) == file.size for file in files):
                for file in files:
                    file.copy_page()  # as its owner left it
                return
        except StorageError:
            if disk.list_directory(directory.log_path) == names:
                raise  # else its owner has removed a segment meanwhile
        _close(segments)
        if time.monotonic() >= deadline:
            raise StorageError(f"{directory.log_path}: a segment stays locked by its owner")
        time.sleep(0.002)


def _close(segments: list[Segment]) -> None:
    for segment in segments:
        segment.close()
    segments.clear()


def trim_log(disk: Disk, directory: ReplicaDirectory) -> list[str]:
    """Recover a log that no replica uses, and leave its files as a clean close does.

    ``directory`` holds its lock. Returns the paths of the segments that were trimmed; one that
    a process maps stays as it is. Raises as ``recovery.open_log``.
    """
    path, kept = directory.log_path, directory.keeps_memory()
    segments: list[Segment] = []
    trimmed = []
    remove_strays(disk, path)
    try:
        open_segments(disk, directory, segments)
        recovery = Recovery(disk, directory, segments)
        recovery.look()
        recovery.mend()
        if segments:
            epoch = max(recovery.last_epoch(), recovery.start.epoch)
            end = segments[-1].end_offset, epoch
            marks.write(disk, path, marks.DURABLE_END, end)  # everything is on disk by now
        for segment in segments:
            if segment.has_page and segment.may_trim() and segment.file.exclude():
                write_indexes(disk, path, segment)
                segment.trim()
                segment.file.sync()
                trimmed.append(segment.file.path)
        mend_indexes(disk, path, segments)
        unlink_reserves(disk, path)
        disk.sync_directory(path)
    finally:
        _close(segments)
    if directory.adopted:
        directory.mark_ours()
    if kept and recovery.phantom_tail is None:
        directory.clear_boot_id()  # all of it is on disk, whatever the durability
    nursery_path = os.path.join(directory.path, NURSERY)
    for name in disk.list_directory(nursery_path):
        disk.unlink(os.path.join(nursery_path, name))
    return trimmed
