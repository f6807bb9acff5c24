"""A spare that became the log's segment while the nursery's thread was at its file."""

from __future__ import annotations

import time
from pathlib import Path

from kraftfast.log.disk import Disk
from kraftfast.log.nursery import Nursery
from kraftfast.log.recovery import LogSettings
from kraftfast.log.segment import Segment
from kraftfast.log.spare import Spare
from tests.log.kit import PAGE, preparer_thread


def test_a_spare_that_became_a_segment_is_let_go_with_it(tmp_path: Path) -> None:
    """Zeros were being written ahead of it when the log rolled: the thread was left at its file
    when the segment went, and a loop that had closed it by then was told of a failed disk."""
    size = 64 << 20
    with preparer_thread() as preparer:
        disk = Disk()
        settings = LogSettings(segment_bytes=size, prepare_bytes=size, stride_bytes=size)
        nursery = Nursery(disk, str(tmp_path), preparer, settings)
        active = Segment(disk.create_segment(str(tmp_path / "file"), size + PAGE), 0, size)
        active.note_reserved(size, size)
        deadline = time.monotonic() + 10
        while nursery.spare is None or nursery.spare.stage != Spare.READY:
            nursery.tend(active, 0, 0)
            assert time.monotonic() < deadline
        assert nursery.tend(active, 0, 0)  # many zeros ahead
        spare = nursery.take_spare()
        segment = Segment(spare.file, 0, spare.capacity)
        nursery.release(segment)
        assert not preparer.busy() and preparer.take() is None
        segment.close()
        assert nursery.tend(active, 0, 0) and nursery.error is None
        nursery.close()
        active.close()
