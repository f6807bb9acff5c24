"""Trim rolled segments to Kafka's files with indexes, cut them, or remove them.

A trim is put off while a process maps the segment, while the disk is full, and while the log takes
much: appends never depend on it, but their flushes wait while it waits for the disk, and retention
uses the file again as it is. A segment that stays prepared is trimmed at the next start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kraftfast.errors import DiskFull
from kraftfast.log.disk import TMP_SUFFIX
from kraftfast.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment, segment_name
from kraftfast.log.small_files import epoch_checkpoint, marks

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.log.log import Log

RETIRE_MS = 5
"""The pause between the steps of a trim, each of which waits for the disk."""
REST_MS = 20 * RETIRE_MS
"""The pause until rolled segments are looked at again."""
UNTRIMMED_MAX = 16
"""So many rolled segments stay prepared while the log takes much."""
RETRY_MS = 500
"""The pause after which a trim or an epoch checkpoint that found no space is retried."""


class Trims:
    """Carries out the trims of one log, a step at a time."""

    # steps: of the trim under way, or None. due_ms: no step before.

    def __init__(self) -> None:
        self.steps: Iterator[str] | None = None
        self.due_ms = 0

    def tend(self, log: Log, now_ms: int) -> None:
        """Do the next step if it is due."""
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + RETIRE_MS
        if self.steps is None:
            if log.nursery.is_busy and untrimmed(log) <= UNTRIMMED_MAX:
                self.due_ms = now_ms + REST_MS
                return
            self.steps = retire_steps(log)
        try:
            if next(self.steps, None) is None:
                self.steps = None
                self.due_ms = now_ms + REST_MS
        except DiskFull as error:
            self.steps = None
            self.due_ms = now_ms + (RETIRE_MS if log.nursery.make_way_for(error) else RETRY_MS)

    def stop(self) -> None:
        """Abandon the trim under way: its segment stays prepared."""
        self.steps = None


def retire(log: Log) -> int:
    """Trim every rolled segment that is on disk and that no follower maps; return how many."""
    trimmed = 0
    try:
        for step in retire_steps(log):
            trimmed += step == "trimmed"
    except DiskFull:
        pass
    return trimmed


def untrimmed(log: Log) -> int:
    """Return how many rolled segments are prepared."""
    return sum(segment.has_page for segment in log.segments[:-1])


def retire_steps(log: Log) -> Iterator[str]:
    """Yield after each step of :func:`retire`. Raises DiskFull, FlushFailed."""
    for segment in log.segments[:-1]:
        if segment.has_page and segment.flushed_position >= segment.position:
            yield from trim_steps(log, segment)


def trim_steps(log: Log, segment: Segment) -> Iterator[str]:
    """Yield after each step of one trim; yield nothing if it is put off.

    Raises DiskFull, and then the segment stays prepared.
    """
    if not segment.may_trim() or not segment.file.exclude():
        return
    try:
        log.nursery.release(segment)
        stem = os.path.join(log.path, segment_name(segment.base_offset))
        log.replace(stem + INDEX_SUFFIX, segment.index_bytes())
        yield "indexed"
        log.replace(stem + TIME_INDEX_SUFFIX, segment.time_index_bytes(True))
        yield "indexed"
        segment.trim()
        log.sync_file(segment.file)
    finally:
        if segment.file.fd >= 0:
            segment.file.readmit()
    yield "trimmed"


def trim_all(log: Log, wait_s: float) -> None:
    """Trim every segment, at a close; wait up to ``wait_s`` seconds for processes that map one.

    Raises DiskFull, FlushFailed.
    """
    deadline = time.monotonic() + wait_s
    for segment in log.segments:
        while segment.has_page and segment.may_trim():
            if list(trim_steps(log, segment)) or time.monotonic() >= deadline:
                break
            time.sleep(0.002)


def close(log: Log, wait_s: float) -> None:
    """Flush, leave every segment as Kafka would, and give the files back: ``Log.close``."""
    try:
        if log.failed is None:
            log.trims.stop()
            log.flush()
            assert log.flushed_end_offset == log.end_offset, "D18: named before it is on disk"
            marks.write(log.disk, log.path, marks.DURABLE_END, (log.end_offset, log.last_epoch))
            trim_all(log, wait_s)
            if log.segments[0].base_offset:  # the first epoch starts with it, since retention
                log.rewrite(log.checkpoint_path, epoch_checkpoint.encode(log.epochs))
            unlink_reserves(log.disk, log.path)
            log.sync_names()
    except DiskFull:
        pass  # all is flushed: the next start trims, or finds the marks of a crash
    finally:
        log.abandon()


def abandon(log: Log) -> None:
    """Let go of the files as they are: ``Log.abandon``."""
    log.trims.stop()
    log.nursery.close()
    for segment in log.segments:
        segment.close()
    if log.directory_fd is not None:
        log.disk.close_directory(log.directory_fd)
        log.directory_fd = None


def cut_trimmed(log: Log, segment: Segment, position: int) -> None:
    """Cut a trimmed segment to its first ``position`` bytes, durably; appends go on elsewhere.

    A process may be copying from it and has no generation word to compare: so what was cut must
    become zeros, and never other batches, as long as one maps it (D20).
    """
    if position == 0:
        remove(log, segment)
        log.segments.pop()
    elif position < segment.position:
        segment.cut(position)
        if segment.may_trim() and segment.file.exclude():
            segment.trim()
            segment.file.readmit()
        else:  # its end would pass for a page of ours, or a process maps it and must find its end
            segment.blank()
        log.sync_file(segment.file)
        segment.note_flushed(segment.position)
        unlink_indexes(log, segment)
        stem = os.path.join(log.path, segment_name(segment.base_offset))
        with suppress(DiskFull):  # D25: it is cut; a start makes them
            log.replace(stem + INDEX_SUFFIX, segment.index_bytes())
            log.replace(stem + TIME_INDEX_SUFFIX, segment.time_index_bytes(True))


def remove(log: Log, segment: Segment, recycle: bool = False, page: bool = False) -> None:
    """Delete a segment's files; durable at once, so that a crash leaves a prefix of the log.

    ``recycle``: the nursery has the file if it takes one and no process maps this. ``page``: with
    its last page, whose words must be true of the log that goes on: they say what was flushed.
    """
    log.nursery.release(segment)
    segment.bump_generation()
    unlink_indexes(log, segment)
    if not page:
        segment.drop_page()
    if not (recycle and _recycled(log, segment)):
        log.disk.unlink(segment.file.path)
        segment.close()
    log.sync_names()


def _recycled(log: Log, segment: Segment) -> bool:
    """Return whether the nursery has the file. The new name may need space, of which the file has
    some to give.
    """
    file = segment.file
    if file.has_other_names():  # of a backup, perhaps, whose content would change
        return False
    if not log.nursery.takes(file) or not file.exclude():
        return False
    try:
        log.nursery.recycle(segment)
    except DiskFull:
        return False
    return True


def unlink_indexes(log: Log, segment: Segment) -> None:
    """Delete the indexes of a segment, without making it durable."""
    stem = os.path.join(log.path, segment_name(segment.base_offset))
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        log.disk.unlink(stem + suffix)


def unlink_reserves(disk: Disk, path: str) -> None:
    """Delete the files that held space for small files, at a close (``Disk.rewrite_file``)."""
    for name in disk.list_directory(path):
        if name.endswith(TMP_SUFFIX):
            disk.unlink(os.path.join(path, name))
