"""Bytes that are no log: whatever comes, nothing of it is taken, and what was there stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.log.crash_disk import CrashDisk
from tests.log.kit import Home, append, batch, content, fill


# covers: KafkaRaftLogTest.testRandomRecords, KafkaRaftClientFetchTest.testRandomRecords
@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_never_extend_a_log(noise: bytes, behind_a_batch: bool) -> None:
    home = Home("/replica", CrashDisk())
    log = home.open()
    fill(log, 3, epoch=1)
    good = batch([b"good"], base_offset=3, epoch=1) if behind_a_batch else b""
    before = content(log)
    assert log.copy(good + noise, 1) == len(good)
    assert log.end_offset == 3 + behind_a_batch and content(log) == before + good
    append(log, batch([b"on"]), 1)
    home.close()
    assert home.open().end_offset == 4 + behind_a_batch
    home.close()
