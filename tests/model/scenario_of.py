"""A history of the search as a text scenario of ``tests/core``, made by running one beside it.

Scenarios have clocks: a timer that is over moves its replica's clock to its deadline, a pause is
waited for. Where the two part (a process killed in the middle of a step, an order of timers that
no clock gives), the history itself is what counts, and the text says so.
"""

from __future__ import annotations

from typing import Any

from kraftfast.types import OffsetAndEpoch
from tests.core.scenario import Scenario
from tests.model.alone import CLUSTER, Setting, Violation
from tests.model.quorum import Action, Quorum, State

PAUSE_MS = 60
"""Longer than pauses between requests, shorter than any timer of a role."""


class Parted(Exception):
    """The scenario does not do what the history does."""


class Translation:
    """Scenario and search, action by action."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.setting: Setting = quorum.setting
        self.scenario = Scenario()
        self.text: list[str] = []

    def say(self, command: str) -> None:
        """Run one command of the scenario, and keep it."""
        self.text.append(command)
        self.scenario.run_block([command])

    # --- the beginning ------------------------------------------------------------------------

    def begin(self, start: State) -> None:
        """The first voter leads, and all have its first records."""
        setting = self.setting
        named = [f"{id}:{chr(64 + id)}" for id in setting.ids]
        voters = [each for each, id in zip(named, setting.ids) if id in setting.voters]
        self.say(f"{'bootstrap' if setting.dynamic else 'voters'} {' '.join(voters)}")
        for id in setting.ids:
            if id not in setting.voters:
                self.say(f"observer {id}")
        config = setting.config
        ids = ",".join(map(str, config.bootstrap_ids))
        self.say(
            f"config inline_flush_bytes_max={config.inline_flush_bytes_max} "
            f"follower_inline_flush_bytes_max={config.follower_inline_flush_bytes_max}"
            + (f" bootstrap_ids={ids}" if ids else "")
        )
        self.say(f"cluster {CLUSTER}")
        if setting.turn_records < 100:
            self.say(f"turn {setting.turn_records}")
        self.say("start all")
        self.say(f"links {'ring' if setting.streaming else 'socket'}")
        self.say("deliver")
        self.say(f"time {setting.voters[0]} +{2 * setting.config.election_timeout_ms}")
        self.say(f"tick {setting.voters[0]}")
        for _ in range(3):
            self.say("deliver")
            self.say("wait 20")
        self.align(start)

    # --- actions ------------------------------------------------------------------------------

    def act(self, before: State, action: Action) -> None:
        """Do in the scenario what the search does next."""
        kind, id, *words = action
        method = getattr(self, f"_{kind}", None)
        if method is not None:
            method(before, id, *words)
        elif kind in PLAIN:
            self.say(PLAIN[kind].format(id, *words))
        else:
            raise Parted(f"a scenario has no word for {kind}")

    def _deliver(self, before: State, source: int, target: int) -> None:
        quorum = self.quorum
        number = before.channels[quorum.place[source, target]][0]
        kind = quorum.turns.heads[number][0]
        if kind == "up":
            letter = chr(quorum.see(before, source).key.directory_id[0])
            link = "ring" if self.setting.streaming else "socket"
            self.say(f"link {target} {source} {link} as {letter}")
        elif kind == "down":
            self.say(f"link {target} {source} down")
        elif kind == "ended":
            self.say(f"ended {target} {source}")
        elif kind == "failed":
            self.say(f"reply {target} {source} fails")
        else:
            self.say(f"deliver {source} {target}")
        self._rest(target)

    def _lose(self, before: State, source: int, target: int) -> None:
        number = before.channels[self.quorum.place[source, target]][0]
        asker, asked = (
            (source, target) if self.quorum.turns.heads[number][0] == "ask" else (target, source)
        )
        self.say(f"drop {source} {target}")
        self.say(f"reply {asker} {asked} fails REQUEST_TIMED_OUT")
        self._rest(asker)

    def _late(self, before: State, source: int, target: int) -> None:
        self.say(f"reply {source} {target} fails REQUEST_TIMED_OUT")
        self._rest(source)

    def _timer(self, before: State, id: int, name: str) -> None:
        replica = self.scenario.world.hosts[id].replica
        assert replica is not None
        world = self.scenario.world
        config = world.config
        after_ms = {
            "election_deadline_ms": 2 * config.election_timeout_ms,
            "fetch_deadline_ms": config.fetch_timeout_ms,
            "check_quorum_deadline_ms": config.check_quorum_timeout_ms,
            "begin_quorum_epoch_at_ms": config.begin_quorum_epoch_ms,
            "parked_deadline_ms": config.fetch_max_wait_ms,
            "unflushed": config.unflushed_age_ms_max,
            "flushing": config.fetch_timeout_ms,
        }.get(name)
        if after_ms is None:
            raise Parted(f"a scenario has no word for the timer {name}")
        self.say(f"time {id} +{after_ms}")
        self.say(f"tick {id}")
        self._rest(id)

    def _start(self, before: State, id: int) -> None:
        seen = self.quorum.see(before, id)
        phantom = seen.phantom
        mark = f" phantom {phantom.offset}@{phantom.epoch}" if phantom is not None else ""
        self.say(f"start {id}{mark}")

    def _stranger(self, before: State, id: int) -> None:
        self.say(f"to {id} vote e{self.quorum.see(before, id).epoch + 1} of 9 0@0")

    def _crash(self, before: State, id: int, keep: int, damaged: int) -> None:
        self.say(f"crash {id} keep {keep}{f' damaged {damaged}' if damaged else ''}")

    def _resign(self, before: State, id: int) -> None:
        self.say(f"resign {id} e{self.quorum.see(before, id).epoch}")
        self._rest(id)

    def _cut(self, before: State, one: int, other: int) -> None:
        self.say(f"drop {one} {other}")
        self.say(f"drop {other} {one}")

    def _link(self, before: State, one: int, other: int) -> None:
        """Both ends are told when it is delivered."""

    def _retain(self, before: State, id: int) -> None:
        snapshot_id: OffsetAndEpoch = max(self.scenario.world.hosts[id].disk.snapshots)
        self.say(f"retain {id} {snapshot_id.offset}@{snapshot_id.epoch}")

    def _add(self, before: State, id: int, key: Any) -> None:
        self.say(f"to {id} add {key.id}:{chr(key.directory_id[0])}")

    def _remove(self, before: State, id: int, key: Any) -> None:
        self.say(f"to {id} remove {key.id}:{chr(key.directory_id[0])}")

    def _assign(self, before: State, id: int, ids: tuple[int, ...]) -> None:
        self.say(f"to {id} assign {','.join(map(str, ids))}")

    def _probed(self, before: State, id: int, error: int) -> None:
        self.say(f"probed {id}{' fails NETWORK_EXCEPTION' if error else ''}")

    def _rest(self, id: int) -> None:
        """Let the pauses of this replica pass."""
        world = self.scenario.world
        for _ in range(20):
            replica = world.hosts[id].replica
            if replica is None:
                return
            due_ms = replica.deadline_ms - world.now_of(id)
            if due_ms > PAUSE_MS:
                return
            if due_ms > 0:
                self.say(f"time {id} +{due_ms}")
            self.say(f"tick {id}")

    # --- comparing ----------------------------------------------------------------------------

    def align(self, after: State) -> None:
        """Drop what the links of the search did not carry; then both must be the same."""
        quorum, world = self.quorum, self.scenario.world
        for place, (source, target) in enumerate(quorum.pairs):
            wanted = sum(
                quorum.turns.heads[each][0] in ("ask", "answer", "push")
                for each in after.channels[place]
            )
            there = sum((m.source, m.target) == (source, target) for m in world.messages)
            if there > wanted == 0:
                self.say(f"drop {source} {target}")
        for id in quorum.ids:
            seen, host = quorum.see(after, id), world.hosts[id]
            role = host.replica.role if host.replica is not None else "down"
            epochs = [each.epoch for each in host.disk.records]
            same = (
                role == seen.role
                and epochs == [each.epoch for each in seen.records]
                and host.disk.flushed == seen.flushed
            )
            if not same:
                raise Parted(f"replica {id} is {role}, not {seen.role}, or its log is another")


PLAIN = {
    "append": "append {} 1",
    "flushed": "flushed {}",
    "transfer": "transfer {} {}",
    "barrier": "barrier {}",
    "snapshot": "snapshot {} {}",
}


def scenario_of(
    quorum: Quorum, start: State, path: list[tuple[State, Action, State | None]]
) -> list[str]:
    """Return the commands that do what the path does, and a last line where they part from it.

    ``path``: each action with the states around it, None after the one that breaks a rule.
    """
    found = Translation(quorum)
    try:
        found.begin(start)
    except Parted as error:
        return [*found.text, f"# a scenario has no such quorum: {error}"]
    for before, action, after in path:
        try:
            found.act(before, action)
            if after is not None:
                found.align(after)
        except (Parted, AssertionError, StopIteration, KeyError, Violation) as error:
            if after is not None:
                said = str(error) or type(error).__name__
                found.text.append(f"# here the scenario parts from the history: {said}")
            break
    return found.text
