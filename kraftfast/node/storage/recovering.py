"""One replica goes on alone after a majority of the voters was lost.

Its log is taken for the committed one: it gets a voter set of its own, in an epoch that none of the
lost replicas can have reached. Nothing in Kafka does this; etcd's ``--force-new-cluster`` and
Redpanda's forced recovery do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from kraftfast import limits
from kraftfast.core.effects import AppendControl
from kraftfast.core.membership.voter_controls import ControlRecord
from kraftfast.errors import DirectoryInUse, InvalidOption, StorageError
from kraftfast.link.ring_link import OwnDoorbell
from kraftfast.log.disk import DISK, Disk
from kraftfast.log.nursery import PreparerThread
from kraftfast.log.recovery import LogSettings, open_log
from kraftfast.log.small_files import quorum_state
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.log.small_files.marks import PHANTOM_TAIL
from kraftfast.node.control_records import batch_of
from kraftfast.node.ports import Preparer
from kraftfast.node.storage.stored_replica import StoredReplica
from kraftfast.types import ElectionState, Endpoint, KRaftVersion, KRaftVoters, Voter, VoterSet

EPOCH_STEP = 1000
"""How far ahead of every epoch in its directory it goes on: the others may have elected since."""
ROOM_S_MAX = 30.0


def next_epoch(stored: StoredReplica) -> int:
    """Return the epoch of the new voter set. Raise InvalidOption if none is left.

    An epoch of quorum-state that is (nearly) the last one, far above the log, was used up without
    a record: the new voter set then goes on from the log's last epoch, so that it can elect again.
    """
    for epoch in (max(stored.state.epoch, stored.last_epoch), stored.last_epoch):
        if epoch + EPOCH_STEP <= limits.EPOCH_MAX - limits.EPOCH_JUMP_MAX:
            return epoch + EPOCH_STEP
    raise InvalidOption(f"the log of {stored.path} is in epoch {stored.last_epoch}: none is left")


def sole_voter(stored: StoredReplica, endpoints: tuple[Endpoint, ...]) -> Voter:
    """Return the replica as the only voter, where its entry said it is unless ``endpoints`` do."""
    meta = stored.meta
    latest = stored.history.latest
    known = None if latest is None else latest.voters.get(meta.node_id)
    if not endpoints and known is not None:
        endpoints = known.endpoints
    versions = limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX
    return Voter(meta.node_id, meta.directory_id, endpoints, *versions)


def make_sole_voter(
    stored: StoredReplica, endpoints: tuple[Endpoint, ...], settings: LogSettings
) -> int:
    """Append the new voter set to the replica's log; the log's end offset after that.

    A crash in between leaves the directory as it was, or with all of it in the log: it can be done
    again. Raises DirectoryInUse, StorageError and its subclasses.
    """
    doorbell = OwnDoorbell()
    try:
        preparer = PreparerThread(doorbell.bell.address, doorbell.bell.fd)
        return append_sole_voter(DISK, preparer, stored, endpoints, settings, time.sleep)
    finally:
        doorbell.close()


def append_sole_voter(
    disk: Disk,
    preparer: Preparer,
    stored: StoredReplica,
    endpoints: tuple[Endpoint, ...],
    settings: LogSettings,
    sleep: Callable[[float], None],
) -> int:
    """Do as :func:`make_sole_voter`, on a disk and with a preparer that are handed over."""
    epoch = next_epoch(stored)
    voters = VoterSet([sole_voter(stored, endpoints)])
    records: tuple[ControlRecord, ...] = (KRaftVoters(voters),)
    if stored.history.kraft_version < 1:
        records = (KRaftVersion(1), *records)
    batch = batch_of(AppendControl(epoch, records), time.time_ns() // 1_000_000)
    directory = ReplicaDirectory(disk, stored.path)
    try:
        log = open_log(disk, directory, settings, preparer).log
        try:
            _refuse_used(disk, directory, stored, (log.end_offset, log.last_epoch))
            if epoch >= stored.state.epoch:  # D5: before a record of that epoch
                _write_state(disk, directory, epoch, voters)
            deadline = time.monotonic() + ROOM_S_MAX
            while not log.append(batch, epoch, True):
                if time.monotonic() >= deadline:
                    raise StorageError(f"{directory.log_path} has no room: {log.error}")
                log.tend(time.monotonic_ns() // 1_000_000)
                sleep(0.01)
            end_offset = int(log.end_offset)
        finally:
            log.close()
        _write_state(disk, directory, epoch, voters)
        _forget_doubt(disk, directory)
    finally:
        directory.close()
    return end_offset


def _refuse_used(
    disk: Disk, directory: ReplicaDirectory, stored: StoredReplica, end: tuple[int, int]
) -> None:
    """Raise DirectoryInUse if a process ran it after it was looked at, and before it was locked.

    ``end``: (end offset, last epoch) of its log now.
    """
    path = os.path.join(directory.log_path, quorum_state.NAME)
    state = stored.state
    if stored.state_fault is None:
        there = disk.exists(path)  # where it never ran there is none
        state = quorum_state.decode(disk.read_file(path), path) if there else ElectionState()
    if (*end, state) != (stored.end_offset, stored.last_epoch, stored.state):
        raise DirectoryInUse(f"{stored.path} was used since this was shown: run it again")


def _write_state(disk: Disk, directory: ReplicaDirectory, epoch: int, voters: VoterSet) -> None:
    """Begin an epoch without a vote."""
    data = quorum_state.encode(ElectionState(epoch), 1, voters.ids, directory.meta.directory_id)
    disk.replace_file(os.path.join(directory.log_path, quorum_state.NAME), quorum_state.seal(data))


def _forget_doubt(disk: Disk, directory: ReplicaDirectory) -> None:
    """Give up, by decision, what may have been lost (D10)."""
    phantom_tail = os.path.join(directory.path, PHANTOM_TAIL)
    if disk.exists(phantom_tail):
        disk.unlink(phantom_tail)
        disk.sync_directory(directory.path)
    directory.clear_boot_id()
