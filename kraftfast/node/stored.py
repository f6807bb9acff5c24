"""A replica as its directory tells of it, without starting it: nothing is changed or locked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from kraftfast.core.voter_history import VoterHistory
from kraftfast.log import quorum_state
from kraftfast.log.at_rest import looked_at
from kraftfast.log.directory import LogOptions, MetaProperties, ReplicaDirectory
from kraftfast.log.disk import Disk
from kraftfast.log.reader import LogReader
from kraftfast.log.snapshot_files import snapshot_ids
from kraftfast.log.snapshot_reader import open_snapshot
from kraftfast.node.control_records import from_record
from kraftfast.record.control import decode_control
from kraftfast.types import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """What a start would find."""

    path: str
    meta: MetaProperties
    options: LogOptions
    state: quorum_state.StoredQuorumState
    static_voter_ids: tuple[int, ...] | None
    """What ``quorum-state`` names, at ``kraft.version`` 0."""
    log_start_offset: int
    end_offset: int
    last_epoch: int
    """Of the record before ``end_offset``; 0 for an empty log."""
    phantom_tail: OffsetAndEpoch | None
    """Up to here records may have been acknowledged that are not here (D10)."""
    history: VoterHistory
    snapshots: tuple[OffsetAndEpoch, ...]
    running: bool
    """Whether a process holds the directory's lock."""

    @property
    def place(self) -> tuple[int, int]:
        """What elections compare: last epoch, then end offset."""
        return self.last_epoch, self.end_offset

    @property
    def voter_ids(self) -> tuple[int, ...] | None:
        """Who votes, as far as this directory knows; None: only its configuration says."""
        latest = self.history.latest
        return self.static_voter_ids if latest is None else latest.voters.ids


def stored_replica(path: str) -> StoredReplica:
    """Look at a replica's directory. Raises NotFormatted, ForeignDirectory, CorruptLog."""
    disk = Disk()
    directory = ReplicaDirectory(disk, os.path.abspath(path), lock=False)
    with looked_at(disk, directory) as recovery:
        kept = recovery.segments[: recovery.keep]
        start, phantom_tail = recovery.start, recovery.phantom_tail
        end_offset = kept[-1].end_offset if kept else start.offset
        last_epoch = recovery.last_epoch() if kept and not recovery.anew else start.epoch
    state, static_voter_ids = _quorum_state(disk, directory.log_path)
    ids = snapshot_ids(disk, directory.log_path)
    return StoredReplica(
        path=directory.path,
        meta=directory.meta,
        options=directory.options,
        state=state,
        static_voter_ids=static_voter_ids,
        log_start_offset=start.offset,
        end_offset=end_offset,
        last_epoch=last_epoch,
        phantom_tail=phantom_tail,
        history=stored_history(disk, directory.log_path, ids, start.offset, end_offset),
        snapshots=tuple(ids),
        running=disk.is_locked(os.path.join(directory.path, ".lock")),
    )


def _quorum_state(
    disk: Disk, log_path: str
) -> tuple[quorum_state.StoredQuorumState, tuple[int, ...] | None]:
    path = os.path.join(log_path, quorum_state.NAME)
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return quorum_state.StoredQuorumState(), None
    return quorum_state.decode(data, path), quorum_state.static_voter_ids(data)


def stored_history(
    disk: Disk, log_path: str, ids: list[OffsetAndEpoch], start_offset: int, end_offset: int
) -> VoterHistory:
    """Of the newest snapshot and the log behind it. Raises CorruptLog, CorruptBatch."""
    history = VoterHistory()
    if ids:
        with open_snapshot(disk, log_path, ids[-1]) as reader:
            _add(history, ((ids[-1].offset - 1, each) for each in reader.controls))
        start_offset = max(start_offset, ids[-1].offset)
    with LogReader(log_path, verify_crc=False) as log:
        for batch in log.batches(start_offset, end_offset):
            if batch.is_control:
                found = ((each.offset, decode_control(each)) for each in batch.records())
                _add(history, (each for each in found if each[0] >= start_offset))
    return history


def _add(history: VoterHistory, found: Any) -> None:
    for offset, record in found:
        control = from_record(record)
        if control is not None:
            history.add(offset, control)
