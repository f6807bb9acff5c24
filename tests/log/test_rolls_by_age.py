"""Segments roll by the times of their records, but not for each of them."""

from __future__ import annotations

from pathlib import Path

from tests.log.kit import KIB, Home, append, batch, batch_of_size

WEEK_MS = 7 * 24 * 3600 * 1000


def test_a_segment_that_grew_old_rolls_far_from_its_end(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(segment_bytes=1 << 20, stride_bytes=16 * KIB, segment_ms=1000)
    assert log.append(batch(timestamp=5000), 1)
    assert log.append(batch(timestamp=6000), 1)
    log.tend(999)
    assert log.append(batch(timestamp=6001), 1)
    assert not log.nursery.spare_wanted, "its records are older than it can be"
    log.tend(1000)
    assert log.append(batch(timestamp=6001), 1), "old, but no spare yet: it goes on"
    assert len(log.segments) == 1
    for _ in range(8):
        log.tend(1000)
    assert log.append(batch(timestamp=6002), 1)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    for timestamp in (-(2**63), -5, 0, 2**63 - 1):
        append(log, batch(timestamp=timestamp))
    home.close()


def test_times_that_lie_far_apart_do_not_make_a_segment_of_each_record(tmp_path: Path) -> None:
    """All replicas roll alike: they ran out of descriptors together, and stayed so (L1)."""
    home = Home(tmp_path)
    log = home.open(segment_bytes=8 << 20, stride_bytes=1 << 20)
    for number in range(40):
        log.tend(number)
        append(log, batch(timestamp=number * (WEEK_MS + 1)))
    assert len(log.segments) == 1 and not log.nursery.spare_wanted
    append(log, batch_of_size(1 << 20))
    assert log.append(batch(timestamp=41 * (WEEK_MS + 1)), 1)
    assert log.nursery.spare_wanted, "a large one rolls by the age of its records"
    home.close()
