"""Check that what is derived from a log equals what a scan of the whole log gives (D22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.log.idempotence.producers import Producers
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.log.snapshots.snapshot_footer import producers_state
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.oracles.shadow import Shadow


def check_producers(process: Process) -> None:
    """Compare; called after a restart, a cut, an installed snapshot, and a moved log start.

    Not where a disk has changed under its process: a scan would now read something else.
    """
    if process.rots:
        return
    log, log_path = process.log, process.directory.log_path
    start = log.log_start_offset
    ids = [each for each in snapshot_ids(process.disk, log_path) if each != BOOTSTRAP]
    stands_on = [each for each in ids if each.offset == start]
    state = producers_state(process.disk, log_path, stands_on[-1]) if stands_on else b""
    found = Producers(log.producers.producers_max)
    found.load(start if state else 0, state)
    if state or start == 0:  # the state there is what every cut and snapshot goes by
        require(
            log.producers.freeze(start, log.segments) == found.encode(),
            f"D22: {process.id} knows other producers at the start of its log, {start}",
        )
    for segment in log.segments:
        if segment.end_offset > segment.base_offset:
            found.replay(segment, segment.base_offset, log.end_offset)
    require(
        found.encode() == log.producers.encode(),
        f"D22: {process.id} knows other producers than its log from {start} to {log.end_offset}",
    )


def check_epochs(process: Process, shadow: Shadow) -> None:
    """Compare the epoch index of a log with the epochs of its batches."""
    start, last, found = process.log.log_start_offset, -1, []
    for batch, _, _ in shadow.entries:
        if batch.end_offset > start and batch.epoch != last:
            last = batch.epoch
            found.append((last, batch.base_offset))
    told = [tuple(each) for each in process.log.epochs]
    while len(told) > 1 and told[1][1] <= start:
        del told[0]  # over before the log begins
    if start and found and told and told[0][1] < found[0][1]:
        found[0] = found[0][0], told[0][1]  # it began before the log
    if start and not found:
        told = []  # at most the epoch of the snapshot
    require(
        told == found,
        f"D22: {process.id} tells of the epochs {told}, its log holds {found}",
    )
