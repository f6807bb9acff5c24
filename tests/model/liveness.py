"""Check that from any state healed links and a majority lead to a commit (L1, L2, L4).

What is broken ends: processes start, links are made, disks answer, messages arrive. Timers are over
one at a time, and the next only when the last has led nowhere: fair, as chance makes them. After
that a leader must be there, all that run must hold its log, and an append must be committed by all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode
from tests.core.disk import Record
from tests.model.alone import Violation
from tests.model.seen import Seen

if TYPE_CHECKING:
    from tests.model.quorum import Action, Quorum, State

IDLE_MAX = 20
ROUNDS = 8
APPENDS_MAX = 3
PLENTY = 99
HARMLESS = (
    "unflushed", "parked_deadline_ms", "update_at_ms", "membership_at_ms", "move_at_ms",
)  # fmt: skip
"""Timers that go on beside a leader that is heard."""
DECISIVE = (
    "silent", "change", "transfer", "election_deadline_ms", "fetch_deadline_ms",
    "check_quorum_deadline_ms", "stream_deadline_ms",
)  # fmt: skip
"""Timers that are over only where nothing else goes on."""


def check_liveness(quorum: Quorum, state: State, down: int | None = None) -> bool:
    """Return whether anything could be asked of this state; ``down``: who stays away.

    Raises Violation if nobody leads in the end, or nothing is committed.
    """
    state = heal(quorum, state, down)
    if not may_be_asked(quorum, state, down):
        return False
    state = led(quorum, state, down, 0)
    leader = leader_of(quorum, state)
    if leader is None or not is_whole(quorum, state, down):
        raise Violation(f"L1: nobody leads all in the end, {told(down)}\n{quorum.describe(state)}")
    for _ in range(APPENDS_MAX):  # the first may go with its leader
        before = len(state.known.committed)
        state = led(quorum, act(quorum, state, ("append", leader)) or state, down, before + 1)
        if any(is_appended(each) for each in state.known.committed[before:]):
            break
        leader = leader_of(quorum, state) or leader
    else:
        raise Violation(f"L2: an append is not committed, {told(down)}\n{quorum.describe(state)}")
    return True


def is_appended(record: Record) -> bool:
    """Return whether it is a producer's: a leader's own record shows that one was elected only."""
    return record.control is None and not record.value.startswith("leader")


def led(quorum: Quorum, state: State, down: int | None, committed: int) -> State:
    """Return the state in which one leads all and so much is committed, or the last of many."""
    fired: Counter[Action] = Counter()

    def is_there(state: State) -> bool:
        return len(state.known.committed) >= committed and is_whole(quorum, state, down)

    state = rest(quorum, state)
    for _ in range(ROUNDS):
        for kind in DECISIVE:
            if is_there(state):
                return state
            timer = next_timer(quorum, state, kind, fired)
            if timer is not None:
                fired[timer] += 1
                state = rest(quorum, act(quorum, state, timer) or state)
    return state


def act(quorum: Quorum, state: State, action: Action) -> State | None:
    """Return the state after an action, which costs nothing here."""
    after = quorum.apply(state, action)
    return None if after is None else after._replace(left=state.left)


def told(down: int | None) -> str:
    return "though all run" if down is None else f"though all but {down} run"


def heal(quorum: Quorum, state: State, down: int | None) -> State:
    """Start what is to run, and make every link."""
    state = state._replace(left=type(state.left)(*(PLENTY,) * len(state.left)))
    if down is not None and quorum.see(state, down).running:
        state = act(quorum, state, ("crash", down, len(quorum.see(state, down).records), 0)) or (
            act(quorum, state, ("crash", down, 0, 0)) or state
        )
    for id in quorum.ids:
        if id != down and not quorum.see(state, id).running:
            state = act(quorum, state, ("start", id)) or state
    for source, target in quorum.pairs:
        if source < target:
            state = act(quorum, state, ("link", source, target)) or state
    return state


def may_be_asked(quorum: Quorum, state: State, down: int | None) -> bool:
    """Return whether each set that may count has a majority that runs and lost nothing.

    A set may count that is in some log, committed or not, and none if voters are being changed.
    """
    if len(state.known.hurt_ids) > quorum.setting.bears:
        return False
    if down is not None and any(quorum.see(state, id).moves for id in quorum.ids):
        return False  # the voters may become those that wait for it
    fine = {
        seen.key
        for seen in (quorum.see(state, id) for id in quorum.ids if id != down)
        if may_count(quorum, state, seen, down)
    }
    for id in quorum.ids:
        if quorum.setting.upgraded and not quorum.see(state, id).voters:
            continue  # a configuration counts no more (D23)
        voters = quorum.see(state, id).voters or quorum.oracle.static
        if sum(voters.is_voter(key) for key in fine) < voters.majority:
            return False
    logs = {key.id: end_of(quorum.see(state, key.id)) for key in fine}
    leads = [end for id, end in logs.items() if id not in quorum.setting.witnesses]
    return bool(leads) and max(leads) >= max(logs.values())  # a witness never leads


def end_of(seen: Seen) -> tuple[int, int]:
    """Return what elections compare: the epoch of the last record, and the end."""
    return (seen.records[-1].epoch if seen.records else 0), len(seen.records)


def may_count(quorum: Quorum, state: State, seen: Seen, down: int | None) -> bool:
    """Return whether a replica helps to lead and commit, now or once all others agreed to it.

    Who is in doubt leads if every voter agrees (D10); in a quorum that commits from memory none
    does that remembers all: where only some lost theirs, an operator has to say what is left.
    """
    agreed = down is None and not quorum.setting.wipes
    if agreed and quorum.setting.volatile:
        agreed = all(quorum.see(state, id).memory_lost for id in quorum.setting.voters)
    return (agreed or is_sound(quorum, state, seen)) and quorum.oracle.is_sure(seen.key.id)


def is_sound(quorum: Quorum, state: State, seen: Seen) -> bool:
    """Return whether a replica lost nothing, or has it again, and its disk keeps it."""
    fine = seen.key.id not in state.known.hurt_ids and not seen.memory_lost
    return fine or is_covered(seen) and holds_all(seen, state)


def is_covered(seen: Seen) -> bool:
    """Return whether the log reaches as far as its mark says that it did (D10)."""
    phantom, end = seen.phantom, seen.flushed
    if seen.memory_lost:
        return False
    if phantom is None:
        return True
    return end > 0 and (seen.records[end - 1].epoch, end) >= (phantom.epoch, phantom.offset)


def holds_all(seen: Seen, state: State) -> bool:
    return seen.sure >= len(state.known.committed)


def rest(quorum: Quorum, state: State) -> State:
    """Let messages, flushes, probes and harmless timers go on until nothing new comes of it.

    Replicas that ask each other in vain do so for ever: they are left when nothing else changed.
    """
    seen, visible, idle = {state}, None, 0
    while idle < IDLE_MAX * len(quorum.ids):
        actions = quorum.default_order(state)
        first = len(seen) % max(len(actions), 1)  # fair: no channel waits for ever behind others
        for action in actions[first:] + actions[:first]:
            after = act(quorum, state, action)
            if after is not None and after not in seen:
                break
        else:
            after = nudge(quorum, state, seen)
            if after is None:
                return state
        seen.add(after)
        state = after
        now = [seen_of(quorum.see(state, id)) for id in quorum.ids]
        idle = idle + 1 if now == visible else 0
        visible = now
    return state


def seen_of(seen: Seen) -> tuple[object, ...]:
    """Return what a replica comes to, without what is under way."""
    return seen.role, seen.epoch, len(seen.records), seen.flushed, seen.high_watermark, seen.counted


def nudge(quorum: Quorum, state: State, seen: set[State]) -> State | None:
    """Return the state after something that is no message and harms nothing, if it is new."""
    actions = [("probed", id, ErrorCode.NONE) for id in quorum.ids if quorum.see(state, id).probing]
    for name in HARMLESS:
        actions += [
            ("timer", id, name) for id in quorum.ids if name in quorum.see(state, id).timers
        ]
    for action in actions:
        after = act(quorum, state, action)
        if after is not None and after not in seen:
            return after
    return None


def next_timer(quorum: Quorum, state: State, kind: str, fired: Counter[Action]) -> Action | None:
    """Return the timer of this kind that is over next: the one that was so least often.

    A leader takes for silent whoever does not follow it.
    """
    found = [
        ("timer", id, name)
        for id in quorum.ids
        for name in quorum.see(state, id).timers
        if name == kind or kind == name.split()[0] == "silent" and is_away(quorum, state, id, name)
    ]
    return min(found, key=lambda timer: fired[timer], default=None)


def is_away(quorum: Quorum, state: State, leader: int, name: str) -> bool:
    """Return whether the voter that the timer names does not follow in the leader's epoch."""
    seen = quorum.see(state, int(name.split()[1]))
    return seen.role != "follower" or seen.epoch != quorum.see(state, leader).epoch


def leader_of(quorum: Quorum, state: State) -> int | None:
    """Return who leads the latest epoch that any replica knows."""
    ids = [
        id for id in quorum.ids if not quorum.oracle.began_anew(state.known, quorum.see(state, id))
    ]
    last = max(quorum.see(state, id).epoch for id in ids)
    for id in ids:
        seen = quorum.see(state, id)
        if seen.role == "leader" and seen.epoch == last:
            return id
    return None


def is_whole(quorum: Quorum, state: State, down: int | None) -> bool:
    """Return whether one leads, and all voters that run follow with the same log, committed.

    An observer may ask one that is down for ever here, where chance always draws the first.
    """
    leader = leader_of(quorum, state)
    if leader is None:
        return False
    mine = quorum.see(state, leader)
    if mine.high_watermark < len(mine.records) or mine.probing or "change" in mine.timers:
        return False
    voters = mine.voters or quorum.oracle.static
    return all(
        not voters.is_voter(seen.key)
        or seen.role == "follower"
        and seen.epoch == mine.epoch
        and len(seen.records) == len(mine.records)
        and (seen.flushed == len(mine.records) or seen.key.id in quorum.setting.in_memory)
        and seen.high_watermark == mine.high_watermark
        for seen in (quorum.see(state, id) for id in quorum.ids if id not in (leader, down))
    )
