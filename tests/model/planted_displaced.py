"""What is planted for the rules of replaced disks and old voters (D23), and of who was removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.errors import ErrorCode
from tests.model.beginning import goes_on, key_of
from tests.model.planting import begun, bug, history, in_place_of

if TYPE_CHECKING:
    from tests.model.quorum import Action, Quorum, State

OLD: dict[str, Any] = {"upgraded": True, "wipes": ("empty",), "hurt_max": 2}
ALONE: dict[str, Any] = {"ids": (1, 2, 3), "voters": (1,), "upgraded": True, "wipes": ("empty",)}
THIRD_ASKS: tuple[Action, ...] = (("timer", 3, "election_deadline_ms"),)
IS_CALLED: tuple[Action, ...] = (
    ("deliver", 2, 3), ("timer", 2, "fetch_deadline_ms"), ("deliver", 2, 3),
)  # fmt: skip
"""The third, on a new disk, hears that the second calls it by the old one."""


def replaced(id: int) -> tuple[Action, ...]:
    return ("crash", id, 0, 0), ("wipe", id, "empty"), ("start", id)


@bug("D23")
def told_voter_campaigns_by_its_configuration() -> None:
    from kraftfast.core.elections import leader_identity

    with in_place_of(leader_identity, "is_superseded", lambda state: False):
        history(*replaced(3), *IS_CALLED, *THIRD_ASKS, **OLD)


@bug("D23")
def only_voter_that_was_told_begins_a_log() -> None:
    from kraftfast.core.elections import on_vote

    with in_place_of(on_vote, "yield_to_quorum", lambda *words: None):
        with in_place_of(on_vote, "supersede_if_replaced", lambda *words: None):
            history(*replaced(1), ("calm",), ("timer", 1, "ask_until_ms"), **ALONE)


@bug("D23")
def only_voter_does_not_listen() -> None:
    from kraftfast.core import on_tick

    with in_place_of(on_tick, "campaign_alone_ms", lambda *words: 0):
        begun(**ALONE)


@bug("D23")
def another_disk_of_a_voter_gets_a_vote() -> None:
    from kraftfast.core.elections import on_vote

    with in_place_of(on_vote, "is_long_enough", lambda *words: True):
        history(
            ("crash", 1, 0, 0), ("crash", 2, 0, 0), ("start", 2), *replaced(3), ("deliver", 2, 3),
            *THIRD_ASKS, *[("deliver", 3, 2)] * 3, ("deliver", 2, 3),
            ("timer", 3, "fetch_deadline_ms"), ("deliver", 1, 2), ("deliver", 3, 2), **OLD,
        )  # fmt: skip


@bug("D23")
def told_voter_helps_one_of_the_configuration() -> None:
    from kraftfast.core.elections import on_vote

    with in_place_of(on_vote, "asks_by_configuration", lambda *words: False):
        history(
            *replaced(3), *IS_CALLED, ("crash", 1, 0, 0), *replaced(2), ("deliver", 2, 3),
            ("deliver", 2, 3), ("deliver", 3, 2), ("timer", 2, "election_deadline_ms"),
            ("calm",), **OLD,
        )  # fmt: skip


@bug("D23")
def refusal_of_one_without_a_log_is_ignored() -> None:
    from kraftfast.core.elections import campaigning

    with in_place_of(campaigning, "is_refused_as_empty", lambda *words: False):
        history(
            ("crash", 1, 0, 0), *replaced(3), *replaced(2), ("start", 1), *THIRD_ASKS, ("calm",),
            wipes=("empty",), hurt_max=2,
        )  # fmt: skip


def begins_alone() -> tuple[Quorum, State]:
    """Return a quorum whose first voter leads alone on a new disk; the others elected a leader."""
    quorum, state = begun(**ALONE)
    down = ("crash", 2, 0, 0), ("crash", 3, 0, 0), *replaced(1), ("timer", 1, "ask_until_ms")
    return quorum, goes_on(quorum, state, *down, ("calm",))


OTHERS_CALL: tuple[Action, ...] = (
    ("start", 2), ("start", 3), ("cut", 1, 2), ("cut", 1, 3), ("calm",),
    ("timer", 2, "fetch_deadline_ms"), ("calm",), ("link", 1, 2), ("link", 1, 3), ("calm",),
)  # fmt: skip


@bug("D23")
def only_voter_leads_beside_the_quorum() -> None:
    from kraftfast.core.elections import on_begin_quorum_epoch

    with in_place_of(on_begin_quorum_epoch, "pause_for_rival", lambda *words: None):
        goes_on(*begins_alone(), *OTHERS_CALL)


@bug("D23")
def only_voter_follows_the_quorum() -> None:
    from kraftfast.core.elections import on_begin_quorum_epoch

    with in_place_of(on_begin_quorum_epoch, "may_follow", lambda *words: True):
        goes_on(*begins_alone(), *OTHERS_CALL)


@bug("D23")
def committed_voters_are_not_told() -> None:
    from kraftfast.core.elections import leader_identity

    with in_place_of(leader_identity, "knows_committed_voters", lambda state: False):
        history(("append", 1), ("calm",), ("crash", 3, 0, 0), ("start", 3), ("calm",),
                streaming=False, floors=(1,), **ALONE)  # fmt: skip


@bug("D23")
def leader_is_refused_for_a_removal_that_was_undone() -> None:
    from kraftfast.core.elections import leader_identity

    def by_the_latest(state: Any, leader_id: int, directory_id: bytes) -> bool:
        return leader_identity.is_named(state.voters, leader_id, directory_id)

    with in_place_of(leader_identity, "may_be_voter", by_the_latest):
        history(("calm",), ("transfer", 2, 3), ("calm",), ("start", 1), ("calm",),
                dynamic=True, begin="undone-removal")  # fmt: skip


@bug("D17")
def needed_voter_is_removed() -> None:
    from kraftfast.core.membership import on_remove_voter

    ids: dict[str, Any] = {"ids": (1, 2, 3), "voters": (1, 2), "dynamic": True}
    with in_place_of(on_remove_voter.membership, "goes_on_without", lambda *words: True):
        history(
            ("cut", 1, 2), ("add", 1, key_of(3)), ("probed", 1, ErrorCode.NONE), ("append", 1),
            ("calm",), ("remove", 1, key_of(3)), **ids,
        )  # fmt: skip


@bug("D17")
def removed_voter_adds_itself() -> None:
    from kraftfast.core.membership import joining

    def wanted(state: Any, follower: Any) -> Any:
        config = state.config
        return joining.AddRaftVoterRequest(state.local, config.endpoints, 100, False, None)

    with in_place_of(joining, "wanted_request", wanted):
        history(("remove", 1, key_of(3)), ("calm",), ("append", 1), ("calm",),
                ("timer", 3, "membership_at_ms"), ("calm",),
                dynamic=True, auto_join=True)  # fmt: skip
