"""The ``.index`` and ``.timeindex`` beside a trimmed segment, for Kafka and for readers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftfast.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment, segment_name

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk


def write_indexes(disk: Disk, path: str, segment: Segment) -> None:
    """Write the indexes of a segment that is about to be trimmed."""
    stem = os.path.join(path, segment_name(segment.base_offset))
    disk.replace_file(stem + INDEX_SUFFIX, segment.index_bytes())
    disk.replace_file(stem + TIME_INDEX_SUFFIX, segment.time_index_bytes(True))


def mend_indexes(disk: Disk, path: str, segments: Sequence[Segment]) -> None:
    """Write those of trimmed segments that are missing or differ from what the batches say.

    Kafka makes them longer in advance, and a crash may leave one of the right size and other
    content: the bytes are compared. Raises DiskFull.
    """
    for segment in segments:
        if segment.has_page:
            continue
        stem = os.path.join(path, segment_name(segment.base_offset))
        for suffix, data in (
            (INDEX_SUFFIX, segment.index_bytes()),
            (TIME_INDEX_SUFFIX, segment.time_index_bytes(True)),
        ):
            if not _holds(disk, stem + suffix, data):
                disk.replace_file(stem + suffix, data)


def _holds(disk: Disk, name: str, data: bytes) -> bool:
    """Return whether a file has exactly these bytes."""
    if not disk.exists(name) or disk.file_bytes(name) != len(data):
        return False
    return bool(disk.read_file(name, len(data)) == data)
