"""KRaftVersion and KRaftVoters records of snapshots and log, for the core (KIP-853).

They count as soon as they are in the log, committed or not: so whatever is at a start, and whatever
a follower copies, is looked through for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kraftfast.core.membership.voter_controls import VoterControls
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.log.disk import Disk
from kraftfast.log.scan import control_batches
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.node.control_records import for_core
from kraftfast.record import pure
from kraftfast.record.batch import BatchView
from kraftfast.record.control import ControlType, decode_control
from kraftfast.types import KRaftVersion, KRaftVoters, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.log.log import Log
    from kraftfast.node.control_records import Began

KINDS = (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)


def controls_of(batches: Iterable[bytes | pure.Batch | BatchView]) -> VoterControls:
    """Return the records that change who counts in control batches, with their offsets.

    Raises CorruptBatch for one that does not decode.
    """
    found: list[tuple[int, KRaftVersion | KRaftVoters]] = []
    for each in batches:
        batch = pure.batch_at(each) if isinstance(each, bytes) else each
        for record in batch.records():
            if record.key is None or int.from_bytes(record.key[2:4], "big") not in KINDS:
                continue
            control = for_core(decode_control(record))
            if control is not None:
                found.append((record.offset, control))
    return tuple(found)


def copied_controls(log: Log, began: Began) -> VoterControls:
    """Return those among what was copied to the log."""
    batches = control_batches(log, began.offset, (began.segment, began.position))
    return controls_of(batches) if batches else ()


def stored_controls(log: Log, from_offset: int) -> VoterControls:
    """Return those in the log from the batch that holds ``from_offset`` on."""
    batches = control_batches(log, from_offset)
    return controls_of(batches) if batches else ()


def voter_history(disk: Disk, log_path: str, log: Log) -> VoterHistory:
    """Return the voter history of an open log: see :func:`history_of`."""
    later = partial(stored_controls, log)
    return history_of(disk, log_path, log.log_start_offset, later)


def history_of(
    disk: Disk, log_path: str, log_start_offset: int, later: Callable[[int], VoterControls]
) -> VoterHistory:
    """Return the history from the snapshot that the log starts at, and from the whole log.

    D22: a later snapshot says nothing of the offsets below its end, and a snapshot may still be
    made there. It is used only where nothing else names voters.
    ``later(offset)``: the records of the log's batches from the one on that holds the offset,
    committed or not. Raises CorruptLog, CorruptBatch.
    """
    ids = snapshot_ids(disk, log_path)
    at_start = [each for each in ids if each.offset == log_start_offset]
    begin = OffsetAndEpoch(log_start_offset, 0)
    history = _history_behind(disk, log_path, begin, at_start[-1:], later)
    if history.latest is None and ids and ids[-1].offset > log_start_offset:
        history = _history_behind(disk, log_path, ids[-1], ids[-1:], later)
    return history


def _history_behind(
    disk: Disk,
    log_path: str,
    begin: OffsetAndEpoch,
    snapshots: Iterable[OffsetAndEpoch],
    later: Callable[[int], VoterControls],
) -> VoterHistory:
    """Return the history from the snapshot that ends at ``begin``, if there is one, and the log.

    Records of a snapshot are filed at its end less one, the bootstrap's at -1.
    """
    history = VoterHistory()
    for each in snapshots:
        with open_snapshot(disk, log_path, each) as snapshot:
            for stored in snapshot.controls:
                control = for_core(stored)
                assert control is not None, "a snapshot's controls concern the core"
                history.add(begin.offset - 1, control)
    for offset, control in later(begin.offset):
        if offset >= begin.offset:
            history.add(offset, control)
    return history
