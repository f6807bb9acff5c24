"""A replica as its directory describes it, without a start: nothing is changed or locked."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kraftfast.core.membership.voter_controls import VoterControls
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.errors import StorageError
from kraftfast.log.disk import DISK, Disk
from kraftfast.log.reading.at_rest import looked_at
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.recovery import Recovery
from kraftfast.log.small_files import quorum_state
from kraftfast.log.small_files.directory import LogOptions, MetaProperties, ReplicaDirectory
from kraftfast.log.small_files.state_check import check_quorum_state
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.node.storage.voter_records import controls_of, history_of
from kraftfast.types import ElectionState, OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """What a start would find."""

    path: str
    meta: MetaProperties
    options: LogOptions
    state: ElectionState
    """Epoch 0 without a vote where ``state_fault`` says that there is no such file."""
    state_fault: StorageError | None
    """Why no start would believe ``quorum-state``."""
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
        """The voters, as far as this directory knows; None: only its configuration says."""
        latest = self.history.latest
        return self.static_voter_ids if latest is None else latest.voters.ids


def stored_replica(path: str, disk: Disk = DISK) -> StoredReplica:
    """Look at a replica's directory. Raises NotFormatted, ForeignDirectory, CorruptLog.

    A fault of ``quorum-state`` is not raised but reported: ``storage recover`` goes on.
    """
    directory = ReplicaDirectory(disk, os.path.abspath(path), lock=False)
    with looked_at(disk, directory) as recovery:
        kept = recovery.segments[: recovery.keep]
        start, phantom_tail = recovery.start, recovery.phantom_tail
        end_offset = kept[-1].end_offset if kept else start.offset
        last_epoch = max(recovery.last_epoch(), start.epoch)  # of a snapshot, if no batch follows
    stored = _quorum_state(disk, directory, recovery, (end_offset, last_epoch))
    state, state_fault, static_voter_ids = stored
    ids = snapshot_ids(disk, directory.log_path)
    return StoredReplica(
        path=directory.path,
        meta=directory.meta,
        options=directory.options,
        state=state,
        state_fault=state_fault,
        static_voter_ids=static_voter_ids,
        log_start_offset=start.offset,
        end_offset=end_offset,
        last_epoch=last_epoch,
        phantom_tail=phantom_tail,
        history=stored_history(disk, directory.log_path, start.offset, end_offset),
        snapshots=tuple(ids),
        running=disk.is_locked(os.path.join(directory.path, ".lock")),
    )


def _quorum_state(
    disk: Disk, directory: ReplicaDirectory, recovery: Recovery, end: tuple[int, int]
) -> tuple[ElectionState, StorageError | None, tuple[int, ...] | None]:
    """Return what the file says, what is wrong with it, and the voters that it names.

    Raises ForeignDirectory if it is another replica's.
    """
    path = os.path.join(directory.log_path, quorum_state.NAME)
    found, ids = None, None
    try:
        data = disk.read_file(path)
        found = quorum_state.decode(data, path)
        ids = quorum_state.static_voter_ids(data)
    except FileNotFoundError:
        pass
    except StorageError as error:
        return ElectionState(), error, ids
    else:  # before any other fault: no vote of another replica may be reset here
        quorum_state.check_owner(data, path, directory.meta.directory_id)
    state = found or ElectionState()
    try:
        check_quorum_state(found, path, (end, *recovery.places()), directory.meta.node_id)
    except StorageError as error:
        return state, error, ids
    return state, None, ids


def stored_history(
    disk: Disk, log_path: str, log_start_offset: int, end_offset: int
) -> VoterHistory:
    """Return the history of a log that is not open. Raises CorruptLog, CorruptBatch."""
    with LogReader(log_path, verify_crc=False, disk=disk) as log:

        def later(offset: int) -> VoterControls:
            batches = log.batches(offset, end_offset) if offset < end_offset else ()
            return controls_of(batch for batch in batches if batch.is_control)

        return history_of(disk, log_path, log_start_offset, later)
