"""Check what votes rest on: the log of the candidate, and the disks of the voters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.messages import VoteRequest
from kraftfast.sim.require import require
from kraftfast.types import ZERO_UUID, ReplicaKey

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.oracles.shadow import BatchId, Shadow
    from kraftfast.sim.oracles.world_invariants import Oracle

LogEnd = tuple[int, int]
"""Last epoch and end offset: compared in this order, as votes are."""


class VoteOracle:
    """Every vote that was granted, with the voter's log at that time.

    A pre-vote promises nothing and is not looked at.
    """

    grants: dict[tuple[int, int], dict[int, LogEnd]]  # (epoch, candidate id) -> by voter
    logs: dict[int, BatchId | None]  # by epoch: the last batch that its leader was elected with

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.grants, self.logs = {}, {}

    def asked(self, process: Process, request: VoteRequest) -> None:
        """D21: a candidate asks with its whole log, all of which is on its disk."""
        if request.pre_vote:
            return
        self.oracle.observe(process)
        end = log_end(process)
        require(
            (request.last_epoch, request.last_offset) == end,
            f"D21: {process.id} asks with {request.last_offset}@{request.last_epoch}, it has {end}",
        )
        durable = self.oracle.shadow(process.id).durable
        require(
            process.durability == "memory" or durable >= request.last_offset,
            f"D21: {process.id} asks with {request.last_offset}, on its disk: {durable}",
        )

    def granted(self, process: Process, request: VoteRequest) -> None:
        """I10: the vote is on disk before the candidate learns of it; D21: logs are compared."""
        if request.pre_vote:
            return
        stable = self.oracle.stable_promise(process.machine)
        candidate_id, epoch = request.replica.id, request.epoch
        require(
            stable is not None
            and stable.epoch == epoch
            and stable.voted is not None
            and stable.voted.id == candidate_id,
            f"I10: {process.id} grants {candidate_id} in {epoch} with {stable} on its disk",
        )
        end = log_end(process)
        require(
            (request.last_epoch, request.last_offset) >= end,
            f"D21: {process.id} with {end} grants {candidate_id} in {epoch}, which has "
            f"{request.last_offset}@{request.last_epoch}",
        )
        lost = self.lost(process)
        require(
            request.unanimous or lost is None or (request.last_epoch, request.last_offset) >= lost,
            f"D10, I21: {process.id}, which had {lost} on its disk, grants {candidate_id} in "
            f"{epoch}, which has {request.last_offset}@{request.last_epoch}",
        )
        self.grants.setdefault((epoch, candidate_id), {})[process.id] = end

    def recovered(self, old: Shadow, new: Shadow, process: Process) -> None:
        """Note what a start did not find again that had been on the disk."""
        new.lost, last = old.lost, old.below(old.durable)
        if last is not None and new.end < last.batch.end_offset and process.durability != "memory":
            new.lost = max(new.lost or (0, 0), (last.batch.epoch, last.batch.end_offset))

    def lost(self, process: Process) -> LogEnd | None:
        """Return up to where a replica had its log on a disk that damage took it from (D10)."""
        shadow = self.oracle.shadow(process.id)
        if shadow.lost is not None:
            entry = shadow.below(shadow.durable)
            last = entry.batch if entry is not None else self.oracle.committed_to(shadow.start)
            if last is not None and (last.epoch, last.end_offset) >= shadow.lost:
                shadow.lost = None  # there again
        return shadow.lost

    def elected(self, process: Process, epoch: int) -> None:
        """D21: a leader's log is at least as long as each was that granted it a vote.

        I21: one that lost some of its log leads only if every voter agreed.
        """
        own, shadow = log_end(process), self.oracle.shadow(process.id)
        grants = {process.id, *self.grants.get((epoch, process.id), {})}
        if self.lost(process) is not None:
            voters = self.oracle.voters.in_force(process)
            require(
                grants >= set(voters.ids),
                f"D10, I21: {process.id} leads {epoch} by {grants} of {voters}, and lost "
                f"{shadow.lost}",
            )
            shadow.lost = None
        last = shadow.entries[-1].batch if shadow.entries else None
        self.logs[epoch] = last or self.oracle.committed_to(shadow.start)
        for voter_id, end in self.grants.get((epoch, process.id), {}).items():
            require(
                own >= end,
                f"D21: {process.id} leads epoch {epoch} with {own}; {voter_id}, which granted its "
                f"vote, had {end}",
            )

    def committed(self, epoch: int, batch: BatchId) -> None:
        """I4: a leader of a later epoch was elected with what is committed only now."""
        for later, last in self.logs.items():
            if later > epoch:
                while last is not None and last.base_offset > batch.base_offset:
                    last = self.oracle.batches[last.epoch, last.base_offset][1]
                require(
                    last == batch,
                    f"I4: {batch} is committed in {epoch}, the leader of {later} never had it",
                )


def log_end(process: Process) -> LogEnd:
    """Return the end of a replica's log."""
    return process.core.last_epoch, process.log.end_offset


def is_same_vote(one: ReplicaKey | None, other: ReplicaKey) -> bool:
    """Compare two readings of quorum-state; version 0 of the file has no directory ids."""
    if one is None or one.id != other.id:
        return False
    return one == other or ZERO_UUID in (one.directory_id, other.directory_id)
