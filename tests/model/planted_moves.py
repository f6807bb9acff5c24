"""What is planted for the rules of epochs, roles and moves of the voters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.model.beginning import goes_on, key_of
from tests.model.planting import (
    begun,
    bug,
    history,
    in_place_of,
    waits_for_no_fetch,
)

if TYPE_CHECKING:
    from tests.model.quorum import Action

OTHERS_ELECT: tuple[Action, ...] = (
    ("cut", 1, 2), ("cut", 1, 3), ("timer", 2, "fetch_deadline_ms"),
    ("timer", 3, "fetch_deadline_ms"), ("link", 1, 2), ("link", 1, 3), ("calm",),
)  # fmt: skip
"""The second voter is cut off from the leader until it asks for votes."""


LOST_MEMORY: tuple[Action, ...] = (
    ("append", 1), ("deliver", 1, 3), ("crash", 3, 1, 0), ("crash", 1, 2, 0), ("start", 3),
    ("calm",), ("timer", 3, "fetch_deadline_ms"), ("calm",),
)  # fmt: skip
"""The third voter lost what it alone had of its leader, which is gone, and asks the other one."""


@bug("L1")
def vote_deposes_a_leader() -> None:
    from kraftfast.core.elections import on_vote

    with in_place_of(on_vote, "is_shielded", lambda *words: False):
        history(*OTHERS_ELECT)


@bug("L1")
def leader_hands_over_to_who_lags() -> None:
    from kraftfast.core import on_tick
    from kraftfast.core.effects import Reply
    from kraftfast.core.messages import TransferResponse
    from kraftfast.core.transitions import transition_to_resigned

    def at_once(state: Any, leader: Any, now_ms: int) -> bool:
        transfer, leader.transfer = leader.transfer, None
        if transfer is None:
            return False
        state.effects.append(Reply(transfer.source, TransferResponse()))
        transition_to_resigned(state, now_ms, transfer.target_id)
        return True

    with in_place_of(on_tick, "tend_transfer", at_once):
        history(("append", 1), ("transfer", 1, 2))


@bug("L1")
def witness_shields_a_dead_leader() -> None:
    from kraftfast.core.elections import on_vote

    with in_place_of(on_vote, "leader_is_silent", lambda *words: False):
        history(("crash", 1, 0, 0), ("calm",), witnesses=(3,))


@bug("D10")
def memory_that_is_whole_agrees_to_one_that_is_not() -> None:
    from kraftfast.core.elections import on_vote

    before = on_vote.is_long_enough

    def by_the_log(state: Any, request: Any) -> bool:
        fits = state.has_log_up_to(request.last_epoch, request.last_offset)
        return bool(fits if request.unanimous else before(state, request))

    with in_place_of(on_vote, "is_long_enough", by_the_log):
        history(*LOST_MEMORY, in_memory=(1, 2, 3))


@bug("D10, I21")
def lost_memory_votes() -> None:
    from kraftfast.core.elections.doubt import Doubt

    with in_place_of(Doubt, "allows", lambda *words: True):
        history(("append", 1), ("calm",), ("crash", 3, 0, 0), ("start", 3), ("crash", 1, 2, 0),
                ("calm",), ("timer", 2, "fetch_deadline_ms"), ("calm",),
                in_memory=(1, 2, 3))  # fmt: skip


@bug("I6")
def high_watermark_follows_the_last_answer() -> None:
    from kraftfast.core.replication import on_append

    def falls(state: Any, *words: Any) -> None:
        state.high_watermark = 1

    quorum, state = begun()
    state = goes_on(quorum, state, ("append", 1), ("calm",))
    with in_place_of(on_append, "request_drain", falls):
        goes_on(quorum, state, ("append", 1))


@bug("D10")
def doubt_that_was_settled_stays() -> None:
    from kraftfast.core.elections.doubt import Doubt

    with in_place_of(Doubt, "covered", lambda *words: None):
        history(("append", 1), ("calm",), ("crash", 3, 0, 1), ("start", 3), ("calm",),
                ("append", 1), ("calm",))  # fmt: skip


@bug("L1")
def stranger_moves_the_epoch() -> None:
    from kraftfast.core.elections import on_vote

    with in_place_of(on_vote, "is_known", lambda *words: True):
        history(("crash", 1, 0, 0), ("deliver", 1, 2), ("stranger", 2), strangers=True)


@bug("D17")
def who_has_nothing_is_added() -> None:
    who_lacks_an_epoch_is_added()


@bug("D17")
def who_lost_a_tail_of_an_older_epoch_is_added() -> None:
    who_lacks_an_epoch_is_added(("append", 1), ("deliver", 1, 4))


@bug("D17")
def who_has_an_older_snapshot_is_added() -> None:
    who_lacks_an_epoch_is_added(("append", 1), ("calm",), ("snapshot", 4, 3), ("retain", 4))


def who_lacks_an_epoch_is_added(*before: Action) -> None:
    """Have 2 add 4, which was down when 2 began to lead."""
    from kraftfast.core.membership import on_add_voter
    from kraftfast.errors import ErrorCode

    with (
        in_place_of(on_add_voter, "has_caught_up", lambda *words: True),
        in_place_of(on_add_voter, "runs_with_its_directory", lambda *words: on_add_voter.ACCEPTED),
        in_place_of(on_add_voter, "VoterChange", waits_for_no_fetch),
    ):
        history(*before, ("crash", 4, 0, 0), ("crash", 1, 0, 0), ("calm",),
                ("add", 2, key_of(4)), ("probed", 2, ErrorCode.NONE), ("calm",),
                ids=(1, 2, 3, 4), dynamic=True)  # fmt: skip


@bug("D17")
def target_is_forgotten() -> None:
    from kraftfast.core.membership import changes as membership
    from kraftfast.errors import ErrorCode
    from kraftfast.types import KRaftVoters

    def forgets(voters: Any, target: Any = None) -> KRaftVoters:
        return KRaftVoters(voters)

    with in_place_of(membership, "KRaftVoters", forgets):
        history(("assign", 1, (1, 2, 4)), ("calm",), ("probed", 1, ErrorCode.NONE), ("append", 1),
                ("calm",), ids=(1, 2, 3, 4), dynamic=True)  # fmt: skip


@bug("D17")
def removed_voter_campaigns() -> None:
    from kraftfast.core.state import QuorumState

    with in_place_of(QuorumState, "counts_as_voter", lambda self: True):
        history(("remove", 1, key_of(3)), ("calm",), ("append", 1), ("calm",),
                ("timer", 3, "fetch_deadline_ms"), dynamic=True)  # fmt: skip
