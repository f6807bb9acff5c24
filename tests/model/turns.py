"""What an event does to one replica, computed once by the core itself and kept.

A replica with its disk, between two turns, is a number in a table; so is a message.
``Turns.take(id, before, event)`` is a function of its arguments: the core runs once for each that
is new, everything else is a look-up.
"""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from kraftfast.core import messages as msg
from kraftfast.types import KRaftVersion, KRaftVoters, ReplicaKey, VoterSet
from tests.core.disk import Message, voter_of
from tests.model import timeless
from tests.model.alone import Alone, Killed, Lone, Setting, Violation
from tests.model.displaced import keeps_to_what_it_was_told
from tests.model.happening import Arrived, happen, in_flight, settle, stranger_asks
from tests.model.marks import add_marks
from tests.model.moving import ends_its_doubt, moves_as_it_may, remember_voting
from tests.model.promises import keep_promises
from tests.model.seen import Seen, look
from tests.model.storing import CHANCE, bytes_of, digest_of

LATE = 9
"""The correlation of what nobody waits for; 0: of a pushed answer. Between: under way."""
GENERATIONS = 4
BARRIERS = range(10, 40)
"""The correlations of a replica's requests for read barriers, by turns: the answer to one that was
given up must not look like that to the next."""
FRESH = BARRIERS.stop
"""The first correlation that the core gives in a turn."""
LIVES = 100
"""Starts of one disk: those of one that replaced it are numbered behind them."""
REPLICAS_MAX = 60_000
"""States of single replicas that are kept at once, about 6 KB each."""


class NotComputed(Exception):
    """Only what was computed before is asked for, and this was not."""


class Turn(NamedTuple):
    """What one turn left behind."""

    after: int  # the replica's number
    sent: tuple[tuple[int, int], ...]  # (peer, message number), in order
    dropped: tuple[int, ...]  # peers whose answer is not waited for any more
    facts: tuple[tuple[Any, ...], ...]  # for the oracle
    by_id: bool  # under other names another replica might have been chosen
    marks: frozenset[str]  # what came about, by name


class Turns:
    """The tables: replicas, messages, and what was computed."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.world = Alone(setting)
        self.replicas: list[bytes] = []
        self.seen: list[Seen] = []
        self.messages: list[bytes] = []
        self.heads: list[tuple[str, int]] = []  # of each message: its kind, its correlation
        self.calls = 0
        self._replica_numbers: dict[bytes, int] = {}
        self._message_numbers: dict[tuple[Any, ...], int] = {}
        self._kept: dict[tuple[Any, ...], Turn | Violation] = {}
        self._marked = 0, 0
        self.only_computed = False

    # --- tables -------------------------------------------------------------------------------

    def mark(self) -> None:
        """Remember what the search begins with: it is never forgotten."""
        self._marked = len(self.replicas), len(self.messages)

    def forget(self) -> bool:
        """Empty the tables down to the mark, if they are full; no other number is valid then."""
        if len(self.replicas) < REPLICAS_MAX:
            return False
        replicas, messages = self._marked
        del self.replicas[replicas:], self.seen[replicas:]
        del self.messages[messages:], self.heads[messages:]
        self._replica_numbers = {k: n for k, n in self._replica_numbers.items() if n < replicas}
        self._message_numbers = {k: n for k, n in self._message_numbers.items() if n < messages}
        self._kept.clear()
        return True

    def fresh(self, id: int, directory: str | None = None, how: str = "") -> int:
        """Number a replica that never ran.

        ``how``: "empty", its disk does not name any voter, or "alone", it names itself only.
        """
        host = Lone(self.world, id)
        setting = self.setting
        if setting.dynamic and id in setting.voters and not how:
            entries = VoterSet(setting.entry_of(self.world.key(each)) for each in setting.voters)
            host.disk.bootstrap = (KRaftVersion(1), KRaftVoters(entries))
        elif setting.dynamic:
            host.disk.bootstrap = (KRaftVersion(1),)
        host.directory_id = (directory or chr(64 + id)).encode() * 16
        host.replaced = directory is not None
        host.lives = LIVES if directory is not None else 0
        if how == "alone":
            entries = VoterSet([voter_of(ReplicaKey(id, host.directory_id))])
            host.disk.bootstrap = (KRaftVersion(1), KRaftVoters(entries))
        return self._put(host)

    def message(self, message: Message, correlation: int) -> int:
        """Number a message, under the correlation that it has between turns."""
        kind = "ask" if message.is_request else "answer" if correlation else "push"
        key = (
            kind,
            correlation,
            bytes_of(message.body),
            message.records,
            message.base_offset,
            message.snapshot,
        )
        return self._numbered(kind, correlation, key, message)

    def news(self, kind: str) -> int:
        """Number what a link tells: ``up``, ``down``, ``ended``, ``failed``."""
        return self._numbered(kind, 0, (kind,), None)

    def _numbered(
        self, kind: str, correlation: int, key: tuple[Any, ...], message: Message | None
    ) -> int:
        number = self._message_numbers.get(key)
        if number is None:
            number = self._message_numbers[key] = len(self.messages)
            self.messages.append(pickle.dumps(message, 5))
            self.heads.append((kind, correlation))
        return number

    def name_of(self, number: int) -> str:
        """Return what a message is."""
        message = pickle.loads(self.messages[number])
        return self.heads[number][0] if message is None else type(message.body).__name__

    def host_of(self, number: int) -> Lone:
        """Return a replica with its disk, as it was."""
        found: Lone = pickle.loads(self.replicas[number])
        return found

    def parts_of(self, number: int) -> tuple[Any, ...]:
        """Return the content of a message or of news: equal ones are the same."""
        kind, correlation = self.heads[number]
        message: Message | None = pickle.loads(self.messages[number])
        if message is None:
            return (kind,)
        body, records = message.body, message.records
        return kind, correlation, body, records, message.base_offset, message.snapshot

    def late(self, number: int) -> int:
        """Return the same message as one whose sender does not wait for an answer any more."""
        kind, correlation = self.heads[number]
        if kind not in ("ask", "answer") or correlation == LATE:
            return number
        return self.message(pickle.loads(self.messages[number]), LATE)

    def diverging(self, number: int, offset: int) -> int | None:
        """Return the same answer to a Fetch with another diverging offset, if it has one."""
        message = pickle.loads(self.messages[number])
        if message is None or not isinstance(message.body, msg.FetchResponse):
            return None
        if message.body.diverging is None:
            return None
        message.body.diverging = message.body.diverging._replace(offset=offset)
        return self.message(message, self.heads[number][1])

    def _put(self, host: Lone) -> int:
        world, host.world = host.world, None
        if host.replica is not None:
            timeless.rest(host.replica)
        if host.replica is None or host.replica.role != "leader":
            host.heard, host.fetched = {}, False
        host.ticks = (-1, 0)
        content = bytes_of(host)
        key = digest_of(content)
        number = self._replica_numbers.get(key)
        if number is None:
            number = self._replica_numbers[key] = len(self.replicas)
            self.replicas.append(pickle.dumps(host, 5))
            self.seen.append(look(host, self.setting.volatile))
        host.world = world
        return number

    # --- a turn -------------------------------------------------------------------------------

    def take(self, id: int, before: int, event: tuple[Any, ...], dies: bool = False) -> Turn:
        """Return what ``event`` does to replica ``before``. Raises Violation."""
        key = (before, event, dies)
        found = self._kept.get(key)
        if found is None:
            if self.only_computed:
                raise NotComputed
            try:
                found = self._take(id, before, event, dies)
            except Violation as error:
                found = error
            except Exception as error:  # an assertion of the core, of its host, or worse
                found = Violation(f"{in_words(error)} (replica {id}, {event[0]})")
            self._kept[key] = found
        if isinstance(found, Violation):
            raise found
        return found

    def _take(self, id: int, before: int, event: tuple[Any, ...], dies: bool) -> Turn:
        self.calls += 1
        world = self.world
        host = self.host_of(before)
        host.world = world
        world.host, world.out, world.facts, world.dies = host, [], [], dies
        world.marks, world.listening = set(), None
        CHANCE.chose = False
        world.hosts = {id: host}
        world.keeps_floors = id in self.setting.floors
        world.durable = id not in self.setting.in_memory
        world.directory_ids = {id: host.directory_id}
        waited = in_flight(host)
        asked = barrier_asked(host)
        role = host.replica.role if host.replica is not None else "down"
        epoch = host.replica.epoch if host.replica is not None else 0
        try:
            arrived = None
            if event[0] == "deliver":
                arrived = (*self.heads[event[2]], pickle.loads(self.messages[event[2]]))
            elif event[0] == "stranger":
                arrived = stranger_asks(host)
            happen(host, event, arrived)
            settle(host)
            keep_promises(host, event, role)
            moves_as_it_may(host, arrived, role, epoch)
            ends_its_doubt(host, event, arrived)
            remember_voting(host)
            keeps_to_what_it_was_told(host)
        except Killed:
            host.crash(None if id in self.setting.in_memory else 0)
            host.stalled = None
        finally:
            world.dies = False
        sent, dropped = self._numbers_of_requests(host, waited, asked, event)
        by_id = CHANCE.chose or goes_by_id(host, event, role, arrived)
        add_marks(host, world.marks)
        facts, marks = tuple(world.facts), frozenset(world.marks)
        return Turn(self._put(host), sent, dropped, facts, by_id, marks)

    def _numbers_of_requests(
        self, host: Lone, waited: dict[int, int], asked: int, event: tuple[Any, ...]
    ) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """Give requests under way the small numbers that they have between turns."""
        now = in_flight(host)
        answered = event[1] if event[0] == "deliver" else None
        if answered is not None and self.heads[event[2]][0] not in ("answer", "push"):
            answered = None
        dropped = []
        names: dict[tuple[int, int], int] = {}
        for peer_id in {*waited, *now}:
            old, new = waited.get(peer_id, 0), now.get(peer_id, 0)
            if old and new != old:
                dropped.append(peer_id)
                if peer_id != answered:
                    given_up = host.generations.get(peer_id, 0) + 1
                    host.generations[peer_id] = given_up % GENERATIONS
            if new and new != old:
                names[peer_id, new] = 1 + host.generations.get(peer_id, 0)
        barriers: dict[int, int] = {}
        for message in self.world.out:
            if message.is_request and isinstance(message.body, msg.ReadBarrierRequest):
                asked = barriers[message.correlation] = later_barrier(asked)
        if host.replica is not None:
            renumber(host, names)
            renumber_barriers(host, barriers, asked)
        sent = []
        for message in self.world.out:
            correlation = message.correlation
            if message.is_request:
                correlation = names.get((message.target, correlation), LATE)
                if isinstance(message.body, msg.ReadBarrierRequest):
                    correlation = barriers[message.correlation]
            sent.append((message.target, self.message(message, correlation)))
        return tuple(sent), tuple(dropped)


def goes_by_id(host: Lone, event: tuple[Any, ...], role: str, arrived: Arrived | None) -> bool:
    """Return whether the core may have preferred the lower of two ids in this turn."""
    if host.replica is None:
        return False
    body = arrived[2].body if arrived is not None and arrived[0] == "ask" else None
    if role == "prospective" and isinstance(body, msg.VoteRequest) and body.pre_vote:
        return True  # of two with equal logs the lower id goes first
    state = timeless.state_of(host.replica)
    if host.replica.role == "resigned" and role != "resigned":
        return len(state.current.successors) > 1
    return event[0] == "assign" or (state.leader is not None and state.leader.assigning)


def in_words(error: Exception) -> str:
    """Return what failed, and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = f": {error}" if str(error) else ""
    file = Path(place.filename).name
    return f"{type(error).__name__}{said} at {file}:{place.lineno} {place.line}"


def renumber(host: Lone, names: dict[tuple[int, int], int]) -> None:
    """Write the small numbers into the replica."""
    assert host.replica is not None
    state = timeless.state_of(host.replica)
    asks = state.leader.round_asks if state.leader is not None else {}
    for peer_id, peer in state.peers._peers.items():
        old = peer.correlation
        peer.correlation = names.get((peer_id, old), old)
        if peer_id in asks:
            asks[peer_id] = peer.correlation if asks[peer_id] == old and old else LATE
    state.peers.next_correlation = FRESH


def barrier_asked(host: Lone) -> int:
    """Return the correlation of the last request for a read barrier, 0 if it was answered."""
    return timeless.state_of(host.replica).barriers_correlation if host.replica is not None else 0


def later_barrier(asked: int) -> int:
    """Return the correlation of the next one."""
    return asked + 1 if asked and asked + 1 in BARRIERS else BARRIERS.start


def renumber_barriers(host: Lone, numbers: dict[int, int], asked: int) -> None:
    """Write the small numbers of requests for read barriers into the replica."""
    assert host.replica is not None
    state = timeless.state_of(host.replica)
    for barrier in state.barriers:
        barrier.correlation = numbers.get(barrier.correlation, barrier.correlation)
    state.barriers_correlation = asked
