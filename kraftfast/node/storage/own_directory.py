"""Open the directory of a replica, unless it belongs to another one."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftfast.core.effects import PersistQuorumState
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.errors import ForeignDirectory
from kraftfast.log.disk import Disk
from kraftfast.log.recovery import Recovered
from kraftfast.log.small_files import quorum_state
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.log.small_files.state_check import check_quorum_state
from kraftfast.node.node_config import NodeConfig
from kraftfast.node.storage.voter_records import voter_history
from kraftfast.types import ElectionState, OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from kraftfast.node.node import Node


def open_own(disk: Disk, config: NodeConfig) -> ReplicaDirectory:
    """Lock and return the directory that ``config`` names.

    Raises ForeignDirectory if it, or the log in it, belongs to another node or cluster,
    StorageError.
    """
    directory = ReplicaDirectory(disk, config.directory)
    try:
        _check_owner(disk, config, directory)
    except BaseException:
        directory.close()
        raise
    return directory


def _check_owner(disk: Disk, config: NodeConfig, directory: ReplicaDirectory) -> None:
    """Check that directory and log are this replica's (D5), before recovery changes the log."""
    meta, path = directory.meta, state_path(directory)
    if meta.node_id != config.node_id:
        raise ForeignDirectory(
            f"{config.directory} belongs to node {meta.node_id}, not {config.node_id}"
        )
    if config.cluster_id not in ("", meta.cluster_id):
        raise ForeignDirectory(
            f"{config.directory} belongs to cluster {meta.cluster_id}, not {config.cluster_id}"
        )
    if disk.exists(path):
        data = disk.read_file(path)
        quorum_state.decode(data, path)
        quorum_state.check_owner(data, path, meta.directory_id)


def state_path(directory: ReplicaDirectory) -> str:
    """Return the path of ``quorum-state``."""
    return os.path.join(directory.log_path, quorum_state.NAME)


def state_to_write(
    effect: PersistQuorumState, voter_ids: Sequence[int], directory_id: Uuid
) -> bytes:
    """Return the content of ``quorum-state`` that an effect of the core asks for."""
    marks = effect.superseded, effect.was_voter
    state = ElectionState(effect.epoch, effect.leader_id, effect.voted, *marks)
    line = quorum_state.encode(state, effect.kraft_version, voter_ids, directory_id)
    return quorum_state.seal(line)


def stored_state(
    disk: Disk, directory: ReplicaDirectory, opened: Recovered, floor: OffsetAndEpoch
) -> ElectionState | None:
    """Return the epoch, leader and vote of ``quorum-state``; None if there is none yet.

    ``floor``: of what is committed. Raises CorruptLog if the file cannot be that of this log (D5).
    """
    path, log = state_path(directory), opened.log
    stored = None
    if disk.exists(path):
        stored = quorum_state.decode(disk.read_file(path), path)
    end = log.end_offset, log.last_epoch
    places = end, floor, log.durable_end, opened.phantom_tail
    check_quorum_state(stored, path, places, directory.meta.node_id)
    return stored


def core_of(node: Node, stored: ElectionState | None) -> Replica:
    """Return the core of a replica whose log is open; it goes on from what was ``stored``."""
    log, recovered = node.log, node.recovered
    return Replica(
        node.quorum_config,
        node.key,
        node.config.voter_set(),
        random.Random(node.seed),
        node.now_ms(),
        stored,
        EpochTrail(recovered.epochs),
        log.end_offset,
        log.flushed_end_offset,
        log_start_offset=log.log_start_offset,
        phantom_tail=recovered.phantom_tail,
        memory_lost=node.uncertainty.memory_lost,
        cluster_id=node.cluster_id or None,
        history=voter_history(node.disk, node.directory.log_path, log),
        snapshots=recovered.snapshots,
        floor_offset=node.floor.stored.offset,
    )
