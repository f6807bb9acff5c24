"""The ``.index`` and ``.timeindex`` beside a trimmed segment, for Kafka and for readers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from kraftfast.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment, segment_name


def write_indexes(disk: Any, path: str, segment: Segment) -> None:
    """Those of a segment that is about to be trimmed."""
    stem = os.path.join(path, segment_name(segment.base_offset))
    disk.replace_file(stem + INDEX_SUFFIX, segment.index_bytes())
    disk.replace_file(stem + TIME_INDEX_SUFFIX, segment.time_index_bytes(True))


def mend_indexes(disk: Any, path: str, segments: Sequence[Segment]) -> None:
    """Those of trimmed segments that are missing, or as long as Kafka makes them in advance."""
    for segment in segments:
        if segment.has_page:
            continue
        stem = os.path.join(path, segment_name(segment.base_offset))
        sizes = len(segment.index_bytes()), len(segment.time_index_bytes(True))
        names = stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX
        if any(
            not disk.exists(name) or disk.file_bytes(name) != size
            for name, size in zip(names, sizes)
        ):
            write_indexes(disk, path, segment)
