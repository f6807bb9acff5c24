"""The one change of the voter set that is under way at a leader (KIP-853: one at a time, D17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core.effects import Reply
from kraftfast.core.messages import ChangeVoterResponse, UpdateRaftVoterResponse
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_OFFSET, Voter

if TYPE_CHECKING:
    from kraftfast.core.state import ReplicaState


class VoterChange:
    """An addition, removal, update, upgrade, or another target.

    Its life: perhaps a probe and a Fetch, then its records are appended, then committed. It ends
    with the commit, at its deadline, or with the leadership; the deadline undoes no record, but the
    next change still waits for that record's commit (D17).
    """

    answers: type[ChangeVoterResponse]  # what its asker is answered with
    source: Any  # its asker
    answered: bool  # the asker knows, or there is none
    deadline_ms: int
    voter: Voter | None  # whom it is about, if it is probed first
    probe: int  # number of the probe under way, 0 for none
    probed: bool  # that was answered, and a Fetch after it is waited for (D19)
    fetched: bool  # which came
    at_append: bool  # answered as soon as it is appended
    appending: bool  # AppendControl went out, Appended has not come
    offset: int  # of its last record, -1 before it is appended

    def __init__(
        self,
        answers: type[ChangeVoterResponse],
        source: Any,
        deadline_ms: int,
        voter: Voter | None = None,
        at_append: bool = False,
        answered: bool = False,
    ) -> None:
        self.answers = answers
        self.source = source
        self.answered = answered
        self.deadline_ms = deadline_ms
        self.voter = voter
        self.probe = 0
        self.probed = False
        self.fetched = False
        self.at_append = at_append
        self.appending = False
        self.offset = NO_OFFSET

    def answer(self, state: ReplicaState, error: ErrorCode, message: str | None = None) -> None:
        """Tell the asker, once."""
        if not self.answered:
            self.answered = True
            reply(state, self.source, self.answers, error, message)


def reply(
    state: ReplicaState,
    source: Any,
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
