"""Answer every request that waits at a leader whose leadership is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.effects import Reply
from kraftfast.core.messages import ReadBarrierResponse, TransferResponse
from kraftfast.core.replication.leader import Leader
from kraftfast.core.responding import fetch_refusal, snapshot_response
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_OFFSET

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState


def dismiss(state: QuorumState, leader: Leader) -> None:
    """Refuse what waits at this former leader. Local read barriers go on to the next leader."""
    if leader.change is not None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader.change.answer(state, error, "leadership was lost; the change may still be committed")
    if leader.transfer is not None and not leader.transfer.answered:
        message = "leadership was lost before it was handed over"
        response = TransferResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        state.effects.append(Reply(leader.transfer.source, response))
    for barrier in leader.barriers:
        if barrier.remote:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            refused = ReadBarrierResponse(error, NO_OFFSET, state.leader_id, state.epoch)
            state.effects.append(Reply(barrier.source, refused))
        else:
            state.barriers.append(barrier)  # the next leader is asked
    for event, _ in leader.waiting_slices:
        refusal = snapshot_response(state, event.request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        state.effects.append(Reply(event.source, refusal))
    waiting = [(parked.source, 0) for parked in leader.parked]
    waiting += [(progress.source, progress.stream) for progress in leader.streams]
    for source, stream in waiting:
        refused_fetch = fetch_refusal(state, ErrorCode.NOT_LEADER_OR_FOLLOWER, stream)
        state.effects.append(Reply(source, refused_fetch))
