"""The one change of the voter set that is under way at a leader (KIP-853: one at a time, D17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kraftfast.core.effects import Reply
from kraftfast.core.messages import ChangeVoterResponse, Source, UpdateRaftVoterResponse
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_OFFSET, Voter

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState


class VoterChange(Struct, eq=False):
    """An addition, removal, update, upgrade, or another target.

    Its life: perhaps a probe and a Fetch, then its records are appended, then committed. It ends
    with the commit, at its deadline, or with the leadership; the deadline undoes no record, but the
    next change still waits for that record's commit (D17).
    """

    answers: type[ChangeVoterResponse]  # what its asker is answered with
    source: Source  # its asker
    deadline_ms: int
    voter: Voter | None = None  # whom it is about, if it is probed first
    at_append: bool = False  # answered as soon as it is appended
    answered: bool = False  # the asker knows, or there is none
    probe: int = 0  # number of the probe under way, 0 for none
    probed: bool = False  # that was answered, and a Fetch after it is waited for (D19)
    fetched: bool = False  # which came
    appending: bool = False  # AppendControl went out, Appended has not come
    offset: int = NO_OFFSET  # of its last record, -1 before it is appended

    def answer(self, state: QuorumState, error: ErrorCode, message: str | None = None) -> None:
        """Tell the asker, once."""
        if not self.answered:
            self.answered = True
            reply(state, self.source, self.answers, error, message)


def reply(
    state: QuorumState,
    source: Source,
    answers: type[ChangeVoterResponse],
    error: ErrorCode,
    message: str | None = None,
) -> None:
    """Answer a request for a change; that of a voter about itself also says who leads."""
    if answers is UpdateRaftVoterResponse:
        response: ChangeVoterResponse = UpdateRaftVoterResponse(
            partition_error=error,
            leader_id=state.leader_id,
            leader_epoch=state.epoch,
            leader_endpoints=state.leader_endpoints,
            message=message,
        )
    else:
        response = answers(error, message=message)
    state.effects.append(Reply(source, response))
