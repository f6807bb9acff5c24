"""A leader hands over to a chosen voter, once that voter has the whole log.

Appends wait meanwhile, so that the successor can catch up. A leader with damage in its log may be
unable to send the rest, so it resigns at the time-out in any case (``in_any_case``). No committed
record is lost: the voters that have all of them are a majority, and elect one of themselves.

Kafka's leaders only hand over when they resign. Ours also do so for ``kraftfast quorum transfer``,
for a reassignment that removes them, before a snapshot that takes long, and where their disk fails.
"""

from __future__ import annotations

from kraftfast.core.effects import Reply
from kraftfast.core.events import TransferRequested
from kraftfast.core.membership.changes import ACCEPTED, NONE, Refusal, check_leads
from kraftfast.core.messages import Source, TransferResponse
from kraftfast.core.replication.leader import Leader, Transfer
from kraftfast.core.replication.on_append import request_drain
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import transition_to_resigned
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_NODE


def on_transfer_requested(state: QuorumState, event: TransferRequested, now_ms: int) -> None:
    """Begin to hand over to the voter that is asked for, or refuse the request."""
    error, message = refusal(state, event.target_id)
    if error is not NONE:
        state.effects.append(Reply(event.source, TransferResponse(error, message)))
        return
    leader = state.leader
    assert leader is not None
    target_id = event.target_id
    if target_id == NO_NODE:
        target_id = leader.successors()[0].id
    begin_transfer(state, leader, target_id, event.source, False, now_ms, event.in_any_case)


def refusal(state: QuorumState, target_id: int) -> Refusal:
    """Return the error and message with which the request must be refused, or ACCEPTED."""
    found = check_leads(state)
    if found is not ACCEPTED:
        return found
    leader = state.leader
    assert leader is not None
    if leader.transfer is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "this leader is handing over already"
    if not leader.voters:
        return ErrorCode.INVALID_REQUEST, "there is no other voter to hand over to"
    if target_id != NO_NODE and target_id not in leader.voters:
        return ErrorCode.VOTER_NOT_FOUND, f"{target_id} is no other voter"
    return ACCEPTED


def begin_transfer(
    state: QuorumState,
    leader: Leader,
    target_id: int,
    source: Source,
    answered: bool,
    now_ms: int,
    in_any_case: bool = False,
) -> None:
    """Have appends wait from now on, for an election timeout at most.

    ``answered``: no answer goes to ``source``.
    """
    deadline_ms = now_ms + state.config.election_timeout_ms
    leader.transfer = Transfer(target_id, source, answered, deadline_ms, in_any_case)
    state.poll_due = True


def tend_transfer(state: QuorumState, leader: Leader, now_ms: int) -> bool:
    """Resign once the successor has the whole log; return whether this leader resigned.

    At the time-out resign too if the transfer says so (L1), else take appends again and lead on.
    """
    transfer = leader.transfer
    if transfer is None:
        return False
    progress = leader.voters.get(transfer.target_id)
    end_offset = state.log.end_offset
    caught_up = progress is not None and progress.acknowledged_end_offset == end_offset
    expired = now_ms >= transfer.deadline_ms
    if (caught_up and not leader.draining) or (expired and transfer.in_any_case):
        leader.transfer = None
        if not transfer.answered:
            state.effects.append(Reply(transfer.source, TransferResponse()))
        transition_to_resigned(state, now_ms, transfer.target_id)
        return True
    if progress is None or expired:
        leader.transfer = None
        leader.handed_over_ms = now_ms
        if not transfer.answered:
            message = f"{transfer.target_id} did not catch up: this leader continues"
            response = TransferResponse(ErrorCode.REQUEST_TIMED_OUT, message)
            state.effects.append(Reply(transfer.source, response))
        request_drain(state, leader, now_ms)
    return False
