"""Check what votes rest on: the log of the candidate, and the disks of the voters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.messages import VoteRequest
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.invariants import Oracle
    from kraftfast.sim.process import Process

LogEnd = tuple[int, int]
"""Last epoch and end offset: compared in this order, as votes are."""


class VoteOracle:
    """Every vote that was granted, with the voter's log at that time.

    A pre-vote promises nothing and is not looked at.
    """

    grants: dict[tuple[int, int], dict[int, LogEnd]]  # (epoch, candidate id) -> by voter

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.grants = {}

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
        """I10: the vote is on the disk before the candidate hears of it; D21: logs are compared."""
        if request.pre_vote:
            return
        stable = self.oracle.stable_promise(process.machine)
        candidate_id, epoch = request.replica.id, request.epoch
        require(
            stable is not None and stable.epoch == epoch
            and stable.voted is not None and stable.voted.id == candidate_id,
            f"I10: {process.id} grants {candidate_id} in {epoch} with {stable} on its disk",
        )
        end = log_end(process)
        require(
            (request.last_epoch, request.last_offset) >= end,
            f"D21: {process.id} with {end} grants {candidate_id} in {epoch}, which has "
            f"{request.last_offset}@{request.last_epoch}",
        )
        self.grants.setdefault((epoch, candidate_id), {})[process.id] = end

    def elected(self, process: Process, epoch: int) -> None:
        """D21: a leader's log is at least as long as each was that granted it a vote."""
        own = log_end(process)
        for voter_id, end in self.grants.get((epoch, process.id), {}).items():
            require(
                own >= end,
                f"D21: {process.id} leads epoch {epoch} with {own}; {voter_id}, which granted its "
                f"vote, had {end}",
            )


def log_end(process: Process) -> LogEnd:
    """Return the end of a replica's log."""
    return process.core.last_epoch, process.log.end_offset
