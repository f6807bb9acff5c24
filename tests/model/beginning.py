"""Where a search begins: the first voter leads, and all have its first records.

Some defects show only where much has happened, which chance seldom does in that order: a setting
may name steps that are taken before its walks begin (``BEGINNINGS``). They cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode
from kraftfast.types import ReplicaKey

if TYPE_CHECKING:
    from tests.model.quorum import Action, Quorum, State

NONE = ErrorCode.NONE
CALM: Action = ("calm",)
"""What goes on by itself does, until nothing new comes of it."""


def key_of(id: int) -> ReplicaKey:
    """Return a replica with the disk that it has at first."""
    return ReplicaKey(id, bytes([64 + id]) * 16)


def delivered(pairs: str) -> list[Action]:
    """Let messages arrive: "12" is the next from 1 to 2."""
    return [("deliver", int(source), int(target)) for source, target in pairs.split()]


POWER_CUT = tuple(("crash", id, 0, 0) for id in (1, 2, 3))
BEGINNINGS: dict[str, tuple[Action, ...]] = {
    # 1 ends with records of its epoch that no other has; a later epoch is led, by the others
    "older-tail": (
        ("append", 1), ("append", 1), ("timer", 1, "unflushed"), ("flushed", 1),
        ("crash", 1, 0, 0), CALM,
    ),
    # 1 removed 3 in its own log alone
    "undone-removal": (
        ("remove", 1, key_of(3)), ("timer", 1, "unflushed"), ("flushed", 1), ("crash", 1, 0, 0),
    ),
    # a majority confirmed that it follows 1, and was then cut off from it
    "read-barrier": (("barrier", 1), CALM, ("cut", 1, 2), ("cut", 1, 3)),
    # 1 removes itself, which 3 and 4 have heard of; they are cut off from it and from 2
    "removed-leader": (
        ("remove", 1, key_of(1)), *delivered("13 14"), ("flushed", 3), ("flushed", 4),
        ("cut", 1, 3), ("cut", 1, 4), ("cut", 2, 3), ("cut", 2, 4),
        ("timer", 3, "fetch_deadline_ms"), ("timer", 4, "fetch_deadline_ms"),
    ),
    # the log has voters since 3 was cut off
    "upgrade-without-3": (
        ("cut", 1, 3), ("cut", 2, 3), CALM, ("append", 1), CALM, ("upgrade", 1), CALM,
    ),
    # 1, with a new disk and an old configuration, began a log of its own beside those of 2 and 3
    "beside-its-quorum": (
        *POWER_CUT, ("wipe", 1, "empty"), ("start", 1), CALM, ("timer", 1, "ask_until_ms"), CALM,
    ),
    # 2 leads by the vote of 3, which is down, and has committed nothing. 1, with a new disk and an
    # old configuration, asked for a leader, whose call was lost, and has its first record
    "part-of-a-log": (
        *POWER_CUT, ("wipe", 1, "empty"), ("start", 3), ("start", 2), CALM,
        ("timer", 2, "fetch_deadline_ms"), *delivered("23 23 32 23 32 23 32"),
        ("crash", 3, 0, 0), CALM, ("start", 1), *delivered("12 21 21"), ("lose", 2, 1),
        *delivered("12 21 12 21"), ("flushed", 1),
    ),
    # 1 and 2, with new disks and an old configuration, have a log of their own beside that of 3
    "two-new-disks": (
        *POWER_CUT, ("wipe", 1, "empty"), ("wipe", 2, "empty"), ("start", 1), ("start", 2), CALM,
        ("timer", 1, "election_deadline_ms"), CALM, ("timer", 1, "election_deadline_ms"), CALM,
        ("resign", 1), CALM,
    ),
    # what 3 acknowledged is damaged, and it has started again
    "damaged-log": (("append", 1), CALM, ("crash", 3, 0, 1), ("start", 3)),
    # 2 has what 1 and 3 committed, not on its disk; 1 is down, and 3 granted 2 a pre-vote
    "unflushed-follower": (
        ("append", 1), *delivered("12 13"), ("flushed", 3), *delivered("31"), ("flushed", 1),
        ("crash", 1, 0, 0), *delivered("12 13"), ("timer", 2, "fetch_deadline_ms"),
        ("timer", 3, "fetch_deadline_ms"), *delivered("23 32"), ("lose", 3, 2),
    ),
    # the log begins with a snapshot, and the observer has a new disk
    "new-disk": (
        ("snapshot", 1, 3), ("crash", 2, 0, 0), ("wipe", 2, "empty"), ("start", 2),
    ),
}  # fmt: skip
"""By name, what is done before walks begin: it leads near a place, not into it."""
RECORDS = 3
"""That are committed before disks are emptied: what is begun then may end in a snapshot below."""


def settled(quorum: Quorum) -> State:
    """Return that state, with whatever else the setting says was done before."""
    setting = quorum.setting
    first = setting.voters[0]
    state = quorum.calm(quorum.initial())
    if len(setting.voters) == 1:
        state = quorum.calm(quorum.turn(state, first, ("timer", "ask_until_ms")))
    state = quorum.apply(state, ("timer", first, "election_deadline_ms")) or state
    state = quorum.calm(state)
    assert quorum.see(state, first).role == "leader", quorum.describe(state)
    assert state.known.committed, quorum.describe(state)
    if setting.upgrades or setting.upgraded:
        state = told_where(quorum, state)
    if setting.upgraded:
        state = upgraded(quorum, state)
    if setting.lies:  # the leader's log ends in a batch that the others do not have
        alone = ("upgrade", first), ("timer", first, "unflushed"), ("flushed", first)
        for action in (*alone, ("crash", first, 0, 0)):
            state = quorum.apply(state, action) or state
    state = emptied(quorum, state) if setting.emptied else state
    return goes_on(quorum, state, *BEGINNINGS.get(setting.begin, ()))


def goes_on(quorum: Quorum, state: State, *actions: Action) -> State:
    """Let these happen, and return the state after them."""
    for action in actions:
        after = quorum.calm(state) if action == CALM else quorum.apply(state, action)
        assert after is not None, f"{action} cannot be:\n{quorum.describe(state)}"
        state = after
    return state


def emptied(quorum: Quorum, state: State) -> State:
    """A few records are committed, the power is cut everywhere, some come back with new disks."""
    for _ in range(RECORDS):
        state = quorum.calm(quorum.apply(state, ("append", quorum.setting.voters[0])) or state)
    cuts = [("crash", id, 0, 0) for id in quorum.order if quorum.see(state, id).running]
    return goes_on(quorum, state, *cuts, *[("wipe", id, "empty") for id in quorum.setting.emptied])


def told_where(quorum: Quorum, state: State) -> State:
    """Voters say where they are, or none can be upgraded."""
    first = quorum.setting.voters[0]
    for id in [each for each in quorum.order if each in quorum.setting.voters[1:]]:
        asks = ("timer", id, "membership_at_ms"), ("timer", first, "parked_deadline_ms")
        for action in (*asks, ("probed", first, NONE)):
            state = quorum.calm(quorum.apply(state, action) or state)
    return state


def upgraded(quorum: Quorum, state: State) -> State:
    """All replicas are voters in the log, by id and directory."""
    setting = quorum.setting
    first = setting.voters[0]
    state = quorum.calm(quorum.apply(state, ("upgrade", first)) or state)
    for id in quorum.order:
        key = quorum.see(state, id).key
        if not quorum.see(state, first).voters.is_voter(key):
            fetches = ("append", first), ("timer", first, "parked_deadline_ms")
            for action in (("add", first, key), ("probed", first, NONE), *fetches):
                state = quorum.calm(quorum.apply(state, action) or state)
    assert len(quorum.see(state, first).voters) == len(setting.ids), quorum.describe(state)
    return state
