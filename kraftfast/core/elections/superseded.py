"""Voters of a configuration, or of the bootstrap snapshot, that no longer count (D23).

Once a voters record is committed, only voters records count. A replica whose disk was replaced may
be given an old configuration all the same; if a majority of that configuration are such replicas,
they could elect one of them beside the cluster, and acknowledge what no log of the cluster has. So
a replica that learns of a committed voters record before it has any in its own log neither
campaigns by its configuration nor votes for one that counts by a configuration. ``quorum-state``
keeps that. A voter that only lags behind is not kept from voting: a candidate that has the record
gets its vote.

The rule holds with durability=memory, too: a voters record is acknowledged from disk alone
(``membership/on_controls.py``), so a power cut everywhere leaves a committed one to a majority.

An answer to an own request is believed. A request is, if this replica has no log: it may be what
other replicas know of a disk that was replaced, and anyone can send one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.messages import (
    UNSAID,
    VoteRequest,
)
from kraftfast.types import NO_NODE, NO_OFFSET, ZERO_UUID

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState


def is_superseded(state: QuorumState) -> bool:
    """Return whether the voters in force here no longer count."""
    return state.superseded and state.history.latest_offset == NO_OFFSET


def knows_committed_voters(state: QuorumState) -> bool:
    """Return whether a voters record of the own log or snapshot is known to be committed.

    What others said is not told on: a request that is believed could be anyone's.
    """
    for offset, _ in state.history.voter_sets:
        if offset > NO_OFFSET:
            return offset < state.uncuttable_offset()
    return False


def asks_by_configuration(state: QuorumState, request: VoteRequest) -> bool:
    """Return whether a candidate counts by a configuration, and this replica knows that none does.

    Kafka's candidates do not say by what they count, but name a directory only from the log.
    """
    if not is_superseded(state):
        return False
    if request.voters_at == UNSAID.voters_at:
        return request.voter.directory_id == ZERO_UUID
    return request.voters_at.offset < 0


def superseded_warning(state: QuorumState) -> str:
    """Return the warning of a replica that finds no leader, and must not elect one."""
    known = "" if state.leader_id == NO_NODE else f" under leader {state.leader_id}"
    return (
        f"the configured voters {list(state.voters.ids)} no longer count: the cluster has "
        f"others in its log{known}, which this replica has not fetched. It neither leads nor votes "
        "by its configuration until it finds a leader: start the others; if they are lost for "
        "good, stop it and run kraftfast storage recover"
    )
