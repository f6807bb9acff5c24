"""Make a recovered log ready for appends: its last segment, the indexes of the others, trims.

A full disk does not keep a log with a prepared segment from opening: indexes and trims are put off,
and appends wait for the nursery.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.errors import DiskFull
from kraftfast.log.index_files import mend_indexes
from kraftfast.log.log import Log
from kraftfast.log.segment import LOG_SUFFIX, Segment, segment_name
from kraftfast.log.used_again import begin_life, tell_apart

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.log.nursery import Nursery
    from kraftfast.log.recovery import LogSettings, Recovery
    from kraftfast.log.small_files.directory import ReplicaDirectory


def activate(
    disk: Disk,
    directory: ReplicaDirectory,
    nursery: Nursery,
    segments: list[Segment],
    recovery: Recovery,
    settings: LogSettings,
) -> Log:
    """Make the last segment ready for appends, or start a fresh one.

    Raises DiskFull if there is no prepared segment and no space for one.
    """
    path = directory.log_path
    if not segments or not may_go_on(segments[-1], settings):
        end_offset = segments[-1].end_offset if segments else recovery.start.offset
        if segments and not segments[-1].position:
            segments.pop().close()  # the fresh one takes its name
        segments.append(fresh_segment(disk, path, nursery, end_offset))
    segment = segments[-1]
    if not segment.has_page:
        segment.extend(settings.capacity)
        make_page(disk, segment)
        if directory.in_memory:  # D10: only a page with a key shows that others were lost
            begin_life(segment, disk, False)
        segment.file.readmit()
    recovery.cut_bytes += clear_tail(segment)
    if directory.in_memory and not segment.key:  # D10: a version before left it without one
        begin_life(segment, disk, True)
    if tell_apart(segment, disk):  # older batches stand behind, so it had blocks up to its end
        segment.note_reserved(segment.capacity)
    with suppress(DiskFull):
        mend_indexes(disk, path, segments[:-1])
    log = Log(
        disk, path, nursery, segments, recovery.epochs, settings, recovery.durable_end,
        recovery.start, recovery.producers,
    )  # fmt: skip
    try:
        nursery.prepare_now(segment, settings.prepare_bytes)
    except DiskFull as error:
        nursery.note_error(error, 0)
    log.flush()
    log.retire()
    return log


def may_go_on(segment: Segment, settings: LogSettings) -> bool:
    """Return whether records may be appended to the last segment; one without a page is locked.

    D20: a process that maps a trimmed segment compares no generation: appends go to another file.
    """
    if segment.has_page:
        return True
    if segment.position >= settings.segment_bytes:
        return False
    return bool(segment.file.exclude())


def fresh_segment(disk: Disk, path: str, nursery: Nursery, base_offset: int) -> Segment:
    """Return an empty segment that begins at ``base_offset``, its name durable."""
    spare = nursery.spare_now()
    spare.file.rename(disk, os.path.join(path, segment_name(base_offset) + LOG_SUFFIX))
    spare.file.readmit()
    disk.sync_directory(path)
    segment = Segment(spare.file, base_offset, spare.capacity)
    segment.note_spare(spare)
    return segment


def make_page(disk: Disk, segment: Segment) -> None:
    """Make the last page of an extended segment; on disk before its magic says it is there."""
    segment.file.zero(segment.capacity, segment.capacity + limits.PAGE_BYTES)
    segment.draft_page(segment.end_offset, max(segment.last_epoch, 0), disk.new_generation())
    segment.file.sync()
    segment.seal_page()
    segment.file.sync()
    segment.note_reserved(segment.position)


def clear_tail(segment: Segment) -> int:
    """Store zeros behind the last batch, on disk before appends go on there (D8); how many bytes.

    In a file that is used again nothing behind is believed: zeros are stored where the next header
    would be, so that readers find an end.
    """
    prepared = max(segment.stored_prepared(), segment.position)
    end = segment.file.data_end()
    if segment.key:
        end = min(end, segment.position + limits.PAGE_BYTES)
    segment.note_dirt(min(end, prepared))
    segment.bump_generation()
    segment.file.sync()  # the lowered watermark first
    cleared: int = segment.clear_dirt()
    if cleared:
        segment.file.sync()
    return 0 if segment.key else cleared
