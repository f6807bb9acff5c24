"""KRaftVersion and KRaftVoters records of snapshots and log, for the core (KIP-853).

They count as soon as they are in the log, committed or not: so whatever is at a start, and whatever
a follower copies, is looked through for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kraftfast.core.control import KRaftVersion, KRaftVoters, VoterControls
from kraftfast.core.voter_history import VoterHistory
from kraftfast.log.disk import Disk
from kraftfast.log.snapshot_files import snapshot_ids
from kraftfast.log.snapshot_reader import open_snapshot
from kraftfast.node.control_records import from_record
from kraftfast.node.control_scan import control_batches
from kraftfast.record import pure
from kraftfast.record.batch import BatchView
from kraftfast.record.control import ControlType, decode_control

KINDS = (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)


def controls_of(batches: Iterable[bytes | pure.Batch | BatchView]) -> VoterControls:
    """The records that change who counts in control batches, with their offsets.

    Raises CorruptBatch for one that does not decode.
    """
    found: list[tuple[int, KRaftVersion | KRaftVoters]] = []
    for each in batches:
        batch = pure.batch_at(each) if isinstance(each, bytes) else each
        for record in batch.records():
            if record.key is None or int.from_bytes(record.key[2:4], "big") not in KINDS:
                continue
            control = from_record(decode_control(record))
            if control is not None:
                found.append((record.offset, control))
    return tuple(found)


def copied_controls(log: Any, from_offset: int) -> VoterControls:
    """Those among what was copied to the log from ``from_offset`` on."""
    batches = control_batches(log, from_offset)
    return controls_of(batches) if batches else ()


def voter_history(disk: Disk, log_path: str, log: Any) -> VoterHistory:
    """Of an open log: see :func:`history_of`."""
    later = partial(copied_controls, log)
    return history_of(disk, log_path, log.log_start_offset, later)


def history_of(
    disk: Disk, log_path: str, log_start_offset: int, later: Callable[[int], VoterControls]
) -> VoterHistory:
    """Of the newest snapshot (filed at its end less one; the bootstrap's at -1) and of the log.

    ``later(offset)``: those of the log's batches from the one on that holds the offset, committed
    or not. Raises CorruptLog, CorruptBatch.
    """
    history = VoterHistory()
    begin = log_start_offset
    for newest in snapshot_ids(disk, log_path)[-1:]:
        begin = max(begin, newest.offset)
        with open_snapshot(disk, log_path, newest) as snapshot:
            for each in snapshot.controls:
                control = from_record(each)
                assert control is not None, "a snapshot's controls concern the core"
                history.add(newest.offset - 1, control)
    for offset, control in later(begin):
        if offset >= begin:
            history.add(offset, control)
    return history
