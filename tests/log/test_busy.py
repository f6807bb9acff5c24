"""What waits while a log takes much: work that is not for its appends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraftfast.log import trimming
from kraftfast.log.small_files import epoch_checkpoint
from kraftfast.log.snapshots.log_start import delete_before
from tests.log.crash_disk import CrashDisk
from tests.log.kit import KIB, Home, SteadyPreparer, batch_of_size, snapshot

MIB = 1024 * KIB
ROUND_MS = 100
BATCH = batch_of_size(64 * KIB - 200)
ROOM: dict[str, Any] = {"segment_bytes": MIB, "stride_bytes": MIB, "prepare_bytes": 0}


def a_busy_round(log: Any, now_ms: int) -> int:
    """Append 2 MiB in a tenth of a second; the time after it."""
    for _ in range(32):
        while not log.append(BATCH, log.last_epoch or 1):
            log.tend(now_ms)
    log.flush()
    for ms in range(now_ms, now_ms + ROUND_MS, 10):
        log.tend(ms)
    return now_ms + ROUND_MS


def untrimmed(log: Any) -> int:
    return sum(segment.has_page for segment in log.segments[:-1])


def test_trims_wait_until_the_log_takes_less(tmp_path: Path) -> None:
    """Each of their steps waits for the disk; so many wait at most."""
    home = Home(tmp_path / "replica")
    log = home.open(SteadyPreparer(), **ROOM)
    now_ms = 1000
    for _ in range(4):  # its pace is known then
        now_ms = a_busy_round(log, now_ms)
    begun = len(log.segments) - untrimmed(log)
    while len(log.segments) <= trimming.UNTRIMMED_MAX:
        now_ms = a_busy_round(log, now_ms)
        assert len(log.segments) - untrimmed(log) == begun
    for _ in range(10):
        now_ms = a_busy_round(log, now_ms)
    assert trimming.UNTRIMMED_MAX - 2 <= untrimmed(log) < len(log.segments) - 20
    for ms in range(now_ms, now_ms + 10_000, 10):
        log.tend(ms)
    assert not untrimmed(log)
    home.close()


def test_retention_writes_no_epochs_while_none_is_over(tmp_path: Path) -> None:
    """A start passes over what lies before the log; a close leaves what Kafka would."""
    disk = CrashDisk()
    home = Home("/replica", disk)
    log = home.open(SteadyPreparer(), **ROOM)
    now_ms = a_busy_round(log, a_busy_round(log, 1000))
    path = f"{home.log_path}/{epoch_checkpoint.NAME}"
    before = disk.read_file(path)
    assert epoch_checkpoint.decode(before) == [(1, 0)]
    delete_before(log, snapshot(home, log.segments[2].base_offset).offset)
    assert disk.read_file(path) == before
    start = log.segments[0].base_offset
    assert start > 0 and log.epochs == [(1, start)]
    home.kill()
    log = home.open(SteadyPreparer(), **ROOM)
    assert log.epochs == [(1, start)] and log.end_offset > start
    while not log.append(BATCH, 2):
        log.tend(now_ms)
    while len(log.segments) < 4:
        now_ms = a_busy_round(log, now_ms)
    home.close()
    assert epoch_checkpoint.decode(disk.read_file(path))[0] == (1, start)
