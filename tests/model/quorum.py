"""A quorum between two actions, what may happen next, and what that leads to.

A state is immutable: replicas and messages by number (``turns``), what the oracle remembers, and
what may still be spent on faults. Messages between two replicas arrive in order unless a fault
says otherwise.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

from kraftfast.types import ReplicaKey
from tests.core.disk import splits_batch
from tests.model.alone import Setting, Violation
from tests.model.beginning import settled
from tests.model.choices import CHANNEL_MAX, choices
from tests.model.liveness import check_liveness
from tests.model.oracle import Known, Oracle, has_its_epoch
from tests.model.seen import Seen
from tests.model.storing import print_of
from tests.model.symmetry import Symmetry
from tests.model.timeless import OF_ITSELF
from tests.model.turns import BARRIERS, LATE, Turns

NEWS = ("up", "down", "ended")
KINDS = ("timers", "crashes", "faults", "appends", "admin", "snapshots", "reads")


class Budget(NamedTuple):
    """How often each kind of event may still happen."""

    timers: int = 0
    crashes: int = 0
    faults: int = 0  # messages lost, late, doubled, overtaken; links cut
    appends: int = 0
    admin: int = 0
    snapshots: int = 0
    reads: int = 0


class State(NamedTuple):
    """All of a quorum."""

    replicas: tuple[int, ...]
    channels: tuple[tuple[int, ...], ...]  # message numbers by pair, first in first out
    links: tuple[bool, ...]  # by pair, whether it stands
    known: Known
    left: Budget


Action = tuple[Any, ...]


class Quorum:
    """The rules of the search: actions and what they do."""

    def __init__(self, setting: Setting, epochs_max: int = 6, order: tuple[int, ...] = ()) -> None:
        """``order``: of ids, in which what goes on by itself does so."""
        self.setting = setting
        self.order = order or setting.ids
        self.epochs_max = epochs_max
        self.turns = Turns(setting)
        self.oracle = Oracle(self.turns)
        self.ids = setting.ids
        self.pairs = [(a, b) for a in self.ids for b in self.ids if a != b]
        self.in_order = [(a, b) for a in self.order for b in self.order if a != b]
        self.place = {pair: place for place, pair in enumerate(self.pairs)}
        self.index = {id: place for place, id in enumerate(self.ids)}
        self.symmetry = Symmetry(setting, self.turns)
        self.symmetric = True  # states that differ only in names have the same print
        self.by_id = False  # in the last action the core may have preferred the lower id
        self.marks: set[str] = set()  # what came about since they were last emptied
        self._setting_print = print_of(repr(setting).encode())
        news = self.turns.news
        self.down, self.up, self.ended, self.failed = map(news, ("down", "up", "ended", "failed"))

    # --- beginning ----------------------------------------------------------------------------

    def initial(self) -> State:
        """Return the state in which every process has started and no link stands."""
        replicas = tuple(self.turns.fresh(id) for id in self.ids)
        empty = ((),) * len(self.pairs)
        plenty = Budget(*(99,) * len(KINDS))
        state = State(replicas, empty, (False,) * len(self.pairs), Known(), plenty)
        for id in self.order:
            state = self.turn(state, id, ("start", ()))
        for pair in combinations(self.order, 2):
            state = self.linked(state, *pair)
        return state

    def settled(self, left: Budget) -> State:
        """Return the state in which the first voter leads, and all have its first records."""
        return settled(self)._replace(left=left)

    def calm(self, state: State) -> State:
        """Let messages and flushes go on until nothing new comes of it."""
        seen = set()
        for _ in range(max(400, 40 * len(self.ids) ** 2)):
            seen.add(state)
            for action in self.default_order(state):
                after = self.apply(state, action)
                if after is not None and after not in seen:
                    state = after
                    break
            else:
                return state
        return state

    def default_order(self, state: State, order: tuple[int, ...] = ()) -> list[Action]:
        """Return what goes on without anybody's doing: messages first, then disks.

        ``order``: of ids, by which one of several replicas goes first.
        """
        found: list[Action] = []
        pairs = [(a, b) for a in order for b in order if a != b] if order else self.in_order
        for pair in pairs:
            if state.channels[self.place[pair]] and self.see(state, pair[1]).running:
                found.append(("deliver", *pair))
        for id in order or self.order:
            seen = self.see(state, id)
            if seen.flushing:
                found.append(("flushed", id))
            elif "unflushed" in seen.timers:
                found.append(("timer", id, "unflushed"))
        for id in order or self.order:
            if "begin_quorum_epoch_at_ms" in self.see(state, id).timers:
                found.append(("timer", id, "begin_quorum_epoch_at_ms"))
        return found

    def stay_bounded(self) -> None:
        """Between walks: forget what was computed, if it is too much."""
        if self.turns.forget():
            self.oracle.forget()
            self.symmetry.forget()

    # --- looking ------------------------------------------------------------------------------

    def see(self, state: State, id: int) -> Seen:
        return self.turns.seen[state.replicas[self.index[id]]]

    def describe(self, state: State) -> str:
        """Return the state in words."""
        lines = [f"    {id}: {self.see(state, id).text}" for id in self.ids]
        for place, (source, target) in enumerate(self.pairs):
            kinds = []
            for number in state.channels[place]:
                kind, correlation = self.turns.heads[number]
                late = " (late)" if correlation == LATE else ""
                kinds.append(f"{self.turns.name_of(number)}{late}" if kind != "down" else kind)
            if kinds:
                lines.append(f"      {source} -> {target}: {', '.join(kinds)}")
        return "\n".join(lines)

    def print_of(self, state: State) -> int:
        """Return 64 bits that stand for a state, the same in every process.

        What may still be spent is not in them, nor the names of replicas that could have each
        other's; how the quorum is set up is.
        """
        if not self.symmetric:
            return self.own_print_of(state)
        return hash((self.symmetry.print_of(state), self._setting_print))

    def own_print_of(self, state: State) -> int:
        """Return the print of a state under the names that its replicas have."""
        symmetry = self.symmetry
        return hash((symmetry.print_under(state, symmetry.identity), self._setting_print))

    def actions(self, state: State, order: tuple[int, ...] = ()) -> list[Action]:
        """Return what may happen next: what goes on by itself first."""
        return choices(self, state, order)

    # --- what happens -------------------------------------------------------------------------

    def apply(self, state: State, action: Action) -> State | None:
        """Return the state after an action; None if it cannot be. Raises Violation."""
        self.by_id = False
        method = getattr(self, f"_do_{action[0]}", None)
        if method is not None:
            return method(state, *action[1:])
        return self._by_itself(state, *action)

    def _by_itself(self, state: State, kind: str, id: int, *words: Any) -> State | None:
        """An event that concerns one replica."""
        seen = self.see(state, id)
        if not seen.running or (kind == "flushed" and not seen.flushing):
            return None
        if kind == "timer" and words[0] not in seen.timers:
            return None
        if kind == "append" and seen.role != "leader":
            return None
        if kind == "probed" and not seen.probing:
            return None
        if kind == "retain" and not seen.snapshots:
            return None
        cost = COSTS.get(kind)
        if cost is None or (kind == "timer" and words[0] in OF_ITSELF):
            return self.turn(state, id, (kind, *words))
        if not getattr(state.left, cost):
            return None
        if kind == "barrier":
            words = (len(state.known.committed),)
        return self.turn(self.spend(state, cost), id, (kind, *words))

    def spend(self, state: State, kind: str) -> State:
        left = state.left
        return state._replace(left=left._replace(**{kind: getattr(left, kind) - 1}))

    # --- messages -----------------------------------------------------------------------------

    def _do_deliver(self, state: State, source: int, target: int) -> State | None:
        queue = state.channels[self.place[source, target]]
        if not queue or not self.see(state, target).running:
            return None
        state = self.with_channel(state, (source, target), queue[1:])
        if queue[0] == self.up:
            told = self.see(state, source).key.directory_id
            told = told if self.setting.streaming else bytes(16)  # the hello of a socket
            return self.turn(state, target, ("up", source, told))
        return self.turn(state, target, ("deliver", source, queue[0]))

    def _do_lose(self, state: State, source: int, target: int) -> State | None:
        """The request, or its answer, is lost, and the asker's patience ends."""
        place = self.place[source, target]
        queue = state.channels[place]
        if not queue or not state.left.faults:
            return None
        kind, correlation = self.turns.heads[queue[0]]
        if kind not in ("ask", "answer"):
            return None
        asker, asked = (source, target) if kind == "ask" else (target, source)
        state = self.with_channel(self.spend(state, "faults"), (source, target), queue[1:])
        waits = correlation != LATE and asked in self.see(state, asker).waits_for
        return self.turn(state, asker, ("fail", asked)) if waits else state

    def _do_late(self, state: State, source: int, target: int) -> State | None:
        """The asker's patience ends, and its request arrives nevertheless."""
        if not state.left.faults or target not in self.see(state, source).waits_for:
            return None
        return self.turn(self.spend(state, "faults"), source, ("fail", target))

    def _do_double(self, state: State, source: int, target: int) -> State | None:
        queue = state.channels[self.place[source, target]]
        if not queue or not state.left.faults or self.turns.heads[queue[0]][0] != "ask":
            return None
        copy = self.turns.late(queue[0])
        state = self.spend(state, "faults")
        return self.with_channel(state, (source, target), (*queue, copy))

    def _do_overtake(self, state: State, source: int, target: int) -> State | None:
        queue = state.channels[self.place[source, target]]
        if len(queue) < 2 or not state.left.faults:
            return None
        if any(self.turns.heads[each][0] not in ("ask", "answer") for each in queue[:2]):
            return None
        state = self.spend(state, "faults")
        return self.with_channel(state, (source, target), (queue[1], queue[0], *queue[2:]))

    def _do_lie(self, state: State, source: int, target: int) -> State | None:
        """The answer under way names a diverging offset inside a batch of the asker's log."""
        queue, seen = state.channels[self.place[source, target]], self.see(state, target)
        if not queue or not state.left.faults:
            return None
        inside = [
            offset for offset in range(max(seen.high_watermark, 1), len(seen.records))
            if splits_batch(list(seen.records), offset)
        ]  # fmt: skip
        number = self.turns.diverging(queue[0], inside[0]) if inside else None
        if number is None:
            return None
        state = self.spend(state, "faults")
        return self.with_channel(state, (source, target), (number, *queue[1:]))

    def _do_cut(self, state: State, one: int, other: int) -> State | None:
        if not state.left.faults or not state.links[self.place[one, other]]:
            return None
        return self.unlinked(self.spend(state, "faults"), one, other, self.down)

    def _do_link(self, state: State, one: int, other: int) -> State | None:
        running = self.see(state, one).running and self.see(state, other).running
        if not running or state.links[self.place[one, other]]:
            return None
        return self.linked(state, one, other)

    def linked(self, state: State, one: int, other: int) -> State:
        links = list(state.links)
        for pair in ((one, other), (other, one)):
            links[self.place[pair]] = True
            queue = state.channels[self.place[pair]]
            state = self.with_channel(state, pair, (*queue, self.up))
        return state._replace(links=tuple(links))

    def unlinked(self, state: State, one: int, other: int, news: int) -> State:
        """The link broke: what was on its way is lost, and whoever runs is told."""
        links = list(state.links)
        for source, target in ((one, other), (other, one)):
            links[self.place[source, target]] = False
            told = (news,) if self.see(state, target).running else ()
            state = self.with_channel(state, (source, target), told)
        return state._replace(links=tuple(links))

    def with_channel(self, state: State, pair: tuple[int, int], queue: tuple[int, ...]) -> State:
        place, channels = self.place[pair], state.channels
        return state._replace(channels=(*channels[:place], queue, *channels[place + 1 :]))

    def _do_live(self, state: State, down: int | None) -> State:
        """Nothing happens, but what would if all but one replica went on undisturbed is judged."""
        self.oracle.looked["asked what comes of it"] += check_liveness(self, state, down)
        return state

    # --- processes and disks ------------------------------------------------------------------

    def _do_start(self, state: State, id: int) -> State | None:
        if self.see(state, id).running:
            return None
        state = self.turn(state, id, ("start", ()))
        for other in self.ids:
            if other != id and self.see(state, other).running:
                if not state.links[self.place[id, other]]:
                    state = self.linked(state, id, other)
        return state

    def _do_crash(self, state: State, id: int, keep: int, damaged: int) -> State | None:
        seen = self.see(state, id)
        if not state.left.crashes or not seen.running:
            return None
        unflushed, kept = len(seen.records) - seen.flushed, max((seen.start, *seen.snapshots))
        if keep > unflushed or damaged > seen.flushed - kept:
            return None
        state = self.spend(state, "crashes")
        if damaged:
            if not state.left.faults or id in self.setting.floors:
                return None  # a log that ends below its floor does not start (D23)
            state = self.spend(state, "faults")
        if damaged or (self.setting.volatile and keep < unflushed):
            if not self.may_be_hurt(state, id):
                return None
            state = self.hurt(state, id)
        return self.buried(self.turn(state, id, ("crash", keep, damaged)), id)

    def buried(self, state: State, id: int) -> State:
        news = self.ended if self.setting.streaming else self.down
        for other in self.ids:
            if other != id and state.links[self.place[id, other]]:
                state = self.unlinked(state, id, other, news)
        return state

    def _do_dies(self, state: State, id: int) -> State | None:
        """The first event that has quorum-state written finds the process killed before that."""
        if not state.left.crashes or not self.see(state, id).running:
            return None
        events: list[tuple[Action, int | None]] = []
        for source in self.ids:
            queue = () if source == id else state.channels[self.place[source, id]]
            if queue and queue[0] != self.up:
                events.append((("deliver", source, queue[0]), source))
        if state.left.timers:
            for name in ("election_deadline_ms", "fetch_deadline_ms"):
                if name in self.see(state, id).timers:
                    events.append((("timer", name), None))
        for event, source in events:
            turn = self.turns.take(id, state.replicas[self.index[id]], event, True)
            if not self.turns.seen[turn.after].running:
                if source is not None:
                    queue = state.channels[self.place[source, id]]
                    state = self.with_channel(state, (source, id), queue[1:])
                state = self.after_turn(self.spend(state, "crashes"), id, turn)
                return self.buried(state, id)
        return None

    def _do_wipe(self, state: State, id: int, how: str) -> State | None:
        """The disk of a replica that is down is replaced."""
        seen = self.see(state, id)
        if seen.running or not state.left.admin:
            return None
        if self.is_named(state, id):
            if not self.may_be_hurt(state, id):
                return None
            state = self.hurt(state, id)
        letter = chr(seen.key.directory_id[0] + 32)
        if letter > "z":
            return None
        replicas = list(state.replicas)
        replicas[self.index[id]] = self.turns.fresh(id, letter, how)
        return self.spend(state, "admin")._replace(replicas=tuple(replicas))

    def is_named(self, state: State, id: int) -> bool:
        """Return whether any replica takes this id for a voter, or the last committed set does."""
        if id in self.oracle.committed_voters(state.known.committed).ids:
            return True
        first = self.oracle.committed_voters(())
        return any(id in (self.see(state, each).voters or first) for each in self.ids)

    def may_be_hurt(self, state: State, id: int) -> bool:
        """Return whether what this disk loses leaves a majority that lost nothing."""
        hurt = {*state.known.hurt_ids, id}
        if self.setting.hurt_max >= 0:
            return len(hurt) <= self.setting.hurt_max
        sets = [self.see(state, each).voters for each in self.ids]  # some may be smaller by now
        sets.append(self.oracle.committed_voters(state.known.committed))
        left = all(len(hurt & {*each.ids}) <= (len(each) - 1) // 2 for each in sets if each)
        return left and len(hurt) <= self.setting.minority

    def hurt(self, state: State, id: int) -> State:
        return state._replace(known=state.known.hurts(self.see(state, id)))

    # --- a turn -------------------------------------------------------------------------------

    def turn(self, state: State, id: int, event: tuple[Any, ...]) -> State:
        """One event at one replica: what it sends goes out, the oracle looks."""
        return self.after_turn(state, id, self.turns.take(
            id, state.replicas[self.index[id]], event
        ))  # fmt: skip

    def after_turn(self, state: State, id: int, turn: Any) -> State:
        place = self.index[id]
        before = state.replicas[place]
        replicas = (*state.replicas[:place], turn.after, *state.replicas[place + 1 :])
        channels = list(state.channels)
        for peer_id in turn.dropped:
            there, back = self.place[id, peer_id], self.place[peer_id, id]
            channels[there] = tuple(
                self.turns.late(each) if self.is_alone(each, "ask") else each
                for each in channels[there]
            )
            channels[back] = tuple(
                each for each in channels[back] if not self.is_alone(each, "answer")
            )
        for peer_id, number in turn.sent:
            self.put_on_its_way(state, channels, id, peer_id, number)
        state = state._replace(replicas=replicas, channels=tuple(channels))
        self.by_id = self.by_id or turn.by_id
        self.marks |= turn.marks
        known = self.oracle.judge(state.known, replicas, place, before, turn.facts)
        for fact in turn.facts:
            if fact[0] == "added":
                self.check_added(state, id, fact[1])
        return state if known is state.known else state._replace(known=known)

    def is_alone(self, number: int, kind: str) -> bool:
        """Return whether this is the one request under way, or its answer: barriers go beside."""
        sort, correlation = self.turns.heads[number]
        return sort == kind and correlation not in BARRIERS

    def check_added(self, state: State, id: int, keys: tuple[ReplicaKey, ...]) -> None:
        """A voter that a leader adds must not be one that is gone, as a ring's link says."""
        self.oracle.looked["added"] += 1
        for key in keys:
            if key.id == id or key.id not in self.index:
                continue
            has_its_epoch(self.see(state, key.id), key, self.see(state, id), state.known)
            if not self.setting.streaming:
                continue
            back = self.place[key.id, id]
            told = state.links[back] and not any(
                self.turns.heads[each][0] in NEWS for each in state.channels[back]
            )
            if told and self.see(state, key.id).key != key:
                raise Violation(f"D19: {id} adds {key.id} by a directory that is gone")

    def put_on_its_way(
        self, state: State, channels: list[tuple[int, ...]], id: int, peer_id: int, number: int
    ) -> None:
        if peer_id not in self.index:
            return
        there, back = self.place[id, peer_id], self.place[peer_id, id]
        kind, correlation = self.turns.heads[number]
        if not state.links[there]:
            if kind == "ask" and correlation != LATE and self.failed not in channels[back]:
                channels[back] += (self.failed,)
            return
        queue = (*channels[there], number)
        if len(queue) > CHANNEL_MAX:  # bounded: the oldest that nobody waits for goes
            late = [each for each in queue if self.turns.heads[each][1] == LATE]
            if late:
                queue = tuple(each for each in queue if each != late[0])
        channels[there] = queue


COSTS = {
    "timer": "timers",
    "resign": "timers",
    "transfer": "timers",
    "append": "appends",
    "barrier": "reads",
    "consume": "reads",
    "snapshot": "snapshots",
    "retain": "snapshots",
    "add": "admin",
    "remove": "admin",
    "assign": "admin",
    "upgrade": "admin",
    "stranger": "faults",
}
