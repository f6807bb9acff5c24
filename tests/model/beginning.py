"""Where a search begins: the first voter leads, and all have its first records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode

if TYPE_CHECKING:
    from tests.model.quorum import Quorum, State

NONE = ErrorCode.NONE
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
    return emptied(quorum, state) if setting.emptied else state


def emptied(quorum: Quorum, state: State) -> State:
    """A few records are committed, the power is cut everywhere, some come back with new disks."""
    for _ in range(RECORDS):
        state = quorum.calm(quorum.apply(state, ("append", quorum.setting.voters[0])) or state)
    cuts = [("crash", id, 0, 0) for id in quorum.order]
    for action in (*cuts, *[("wipe", id, "empty") for id in quorum.setting.emptied]):
        after = quorum.apply(state, action)
        assert after is not None, f"{action}:\n{quorum.describe(state)}"
        state = after
    return state


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
