"""Small batches are put together beside the log and written; large ones are stored in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftfast.log.disk import Disk
from kraftfast.sim.paged_file import append_batch
from tests.log.crash_disk import CrashDisk
from tests.log.kit import Home, append, batch_of_size, fill


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_what_is_small_is_put_together_beside_the_log(who: str) -> None:
    home = Home("/replica", CrashDisk())
    log = home.open()
    fill(log, 5)
    log.flush()
    bad = bytearray(batch_of_size(500, base_offset=5, epoch=1))
    bad[-5] ^= 1
    home.disk.fail_syncs_from = home.disk.syncs  # nothing has to be scrubbed
    assert not (log.copy(bad, 1) if who == "follower" else append_batch(log, bad, 1))
    assert log.damaged() and log.active.dirty_end == log.active.position == 5_000
    assert not bytes(log.active.file.view(5_000, log.active.prepared)).strip(b"\0")


def test_what_is_small_is_written_and_what_is_large_is_stored(tmp_path: Path) -> None:
    def system_calls() -> int:
        text = Path("/proc/self/io").read_text()
        return int(text.split("syscw: ")[1].split()[0])

    home = Home(str(tmp_path), Disk())
    log = home.open()
    expected, calls = b"", []
    for size, flush in ((100, True), (4_096, False), (100, False), (3_996, True), (4_097, True)):
        before = system_calls()
        append(log, batch_of_size(size), 1)
        calls.append(system_calls() - before)
        expected += batch_of_size(size, base_offset=len(calls) - 1, epoch=1)
        if flush:
            log.flush()
    # 4,096 bytes that wait for the disk are all that is written; the epoch's file is, too.
    assert calls[0] >= 1 and calls[1:] == [1, 0, 0, 0]
    assert Path(log.active.file.path).read_bytes()[: len(expected)] == expected
    assert bytes(log.active.file.view(0, len(expected))) == expected
    log.close()
