"""Check that the producer state of a log equals what a scan of the whole log gives (D22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.log.producers import Producers
from kraftfast.log.snapshot_footer import producers_state
from kraftfast.log.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.process import Process


def check_producers(process: Process) -> None:
    """Compare; called after a restart, a cut, an installed snapshot, and a moved log start."""
    log, log_path = process.log, process.directory.log_path
    start = log.log_start_offset
    ids = [each for each in snapshot_ids(process.disk, log_path) if each != BOOTSTRAP]
    stands_on = [each for each in ids if each.offset == start]
    state = producers_state(process.disk, log_path, stands_on[-1]) if stands_on else b""
    found = Producers(log.producers.producers_max)
    found.load(start if state else 0, state)
    for segment in log.segments:
        if segment.end_offset > segment.base_offset:
            found.replay(segment, segment.base_offset, log.end_offset)
    require(
        found.encode() == log.producers.encode(),
        f"D22: {process.id} knows other producers than its log from {start} to {log.end_offset}",
    )
