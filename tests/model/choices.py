"""What may happen next in a state of the search: what goes on by itself first."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode
from kraftfast.types import ReplicaKey
from tests.model.seen import Seen
from tests.model.timeless import OF_ITSELF
from tests.model.turns import LATE

if TYPE_CHECKING:
    from tests.model.quorum import Action, Quorum, State

CHANNEL_MAX = 6


def choices(quorum: Quorum, state: State, order: tuple[int, ...] = ()) -> list[Action]:
    """Return the actions of a state, those that need nobody's doing first."""
    found = quorum.default_order(state, order)
    left = state.left
    for id in quorum.ids:
        seen = quorum.see(state, id)
        if not seen.running:
            found.append(("start", id))
            if left.admin and quorum.setting.wipes:
                found += [("wipe", id, how) for how in quorum.setting.wipes]
            continue
        of_one(quorum, state, id, seen, found)
    if left.faults:
        of_links(quorum, state, found)
    return found


def of_one(quorum: Quorum, state: State, id: int, seen: Seen, found: list[Action]) -> None:
    """Add what may happen at one replica."""
    left = state.left
    leads = seen.role == "leader"
    if left.appends and leads:
        found.append(("append", id))
    if left.timers:
        ends = "election_deadline_ms", "fetch_deadline_ms"
        for name in seen.timers:
            if name not in OF_ITSELF and (name not in ends or seen.epoch < quorum.epochs_max):
                found.append(("timer", id, name))
        if leads:
            found.append(("resign", id))
            found += [("transfer", id, other) for other in quorum.ids if other != id]
    if left.faults and quorum.setting.strangers and seen.epoch < quorum.epochs_max:
        found.append(("stranger", id))
    if left.crashes:
        crashes(state, id, seen, found)
    if left.reads:
        found += [("barrier", id), *([("consume", id)] if leads else [])]
    if left.snapshots:
        end = min(seen.high_watermark, seen.flushed)
        for offset in sorted({end, len(seen.records)}):
            if offset > max((*seen.snapshots, 0)):
                found.append(("snapshot", id, offset))
        if seen.snapshots and max(seen.snapshots) > seen.start:
            found.append(("retain", id))
    if seen.probing:
        found.append(("probed", id, ErrorCode.NONE))
        if left.faults:
            found.append(("probed", id, ErrorCode.NETWORK_EXCEPTION))
    if left.admin and leads and not quorum.setting.upgraded:
        of_operator(quorum, state, id, found)


def crashes(state: State, id: int, seen: Seen, found: list[Action]) -> None:
    """Add the ways in which a process can end."""
    unflushed = len(seen.records) - seen.flushed
    found += [("crash", id, keep, 0) for keep in sorted({0, unflushed})]
    if unflushed > 1:
        found.append(("crash", id, 1, 0))
    if seen.flushed > max((seen.start, *seen.snapshots)) and state.left.faults:
        found.append(("crash", id, 0, 1))
    found.append(("dies", id))


def of_operator(quorum: Quorum, state: State, id: int, found: list[Action]) -> None:
    """Add what an operator may ask of a leader."""
    if quorum.setting.upgrades:
        found.append(("upgrade", id))
    voters = quorum.see(state, id).voters
    if not quorum.setting.dynamic and not voters:  # nor were they upgraded
        return
    for other in quorum.ids:
        key = quorum.see(state, other).key
        if not voters.is_voter(key):
            found.append(("add", id, key))
        if key.directory_id[0] >= ord("a"):  # a disk that was replaced: its directory before that
            found.append(("add", id, ReplicaKey(other, bytes([64 + other]) * 16)))
    found += [("remove", id, ReplicaKey(each.id, each.directory_id)) for each in voters]
    if len(quorum.ids) > len(voters):
        found += [("assign", id, ids) for ids in combinations(quorum.ids, len(voters))]
        found.append(("assign", id, None))


def of_links(quorum: Quorum, state: State, found: list[Action]) -> None:
    """Add what may go wrong with messages and links."""
    heads = quorum.turns.heads
    for place, (source, target) in enumerate(quorum.pairs):
        queue = state.channels[place]
        if quorum.setting.lies:
            pass
        elif state.links[place] and source < target:
            found.append(("cut", source, target))
        elif source < target and not state.links[place]:
            if quorum.see(state, source).running and quorum.see(state, target).running:
                found.append(("link", source, target))
        if not queue or not quorum.see(state, target).running:
            continue
        kind, correlation = heads[queue[0]]
        if quorum.setting.lies:  # instead of other faults
            if kind == "answer":
                found.append(("lie", source, target))
        elif kind in ("ask", "answer") and not quorum.setting.streaming:
            found.append(("lose", source, target))
            if len(queue) < CHANNEL_MAX:
                found.append(("double", source, target))
            if len(queue) > 1 and heads[queue[1]][0] in ("ask", "answer"):
                found.append(("overtake", source, target))
        if kind == "ask" and correlation != LATE and not quorum.setting.lies:
            found.append(("late", source, target))
