"""Replicas under other names go through the same states, and the search takes each of them once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from random import Random

import pytest

from kraftfast.types import ReplicaKey
from tests.model import search
from tests.model.__main__ import arguments, quorum_of
from tests.model.fingerprints import Fingerprints
from tests.model.quorum import Action, Quorum, State
from tests.model.settings import SETTINGS
from tests.model.symmetry import Renaming, classes_of

BETWEEN = ("deliver", "lose", "late", "double", "overtake", "lie", "cut", "link", "transfer")
"""Actions that name two replicas."""

BEGINS_BY_ID = {"first election", "memory alone", "memory alone, witness", "memory, snapshots"}
"""Before anybody leads, whom each replica asks first goes by ids: no two beginnings are alike."""


def renamed(action: Action, names: dict[int, int]) -> Action:
    """Return the same action of replicas with other names."""
    kind, id, *words = action
    if kind in BETWEEN:
        words = [names[each] for each in words]
    elif kind == "timer" and words[0].startswith("silent "):
        words = [f"silent {names[int(words[0].split()[1])]}"]
    elif kind in ("add", "remove"):
        key: ReplicaKey = words[0]
        case = 96 if key.directory_id[0] > 96 else 64
        words = [ReplicaKey(names[key.id], bytes([case + names[key.id]]) * 16)]
    elif kind == "assign" and words[0] is not None:
        words = [tuple(names[each] for each in words[0])]
    return (kind, names[id], *words)


def setting(name: str, order: tuple[int, ...] = ()) -> tuple[Quorum, State]:
    return quorum_of(arguments().parse_args(shlex.split(SETTINGS[name])), order)


def walks(quorum: Quorum, start: State, count: int, length: int) -> Iterator[list[Action]]:
    for number in range(count):
        chance, outcome = Random(f"symmetry {number}"), search.Outcome()
        yield search.walk(quorum, start, chance, length, Fingerprints(), outcome)[0]


def follow(
    one: Quorum, start: State, history: list[Action], other: Quorum, twin: State, place: Renaming
) -> tuple[int, bool]:
    """Take a history beside the same under other names, as long as no id decides.

    Returns how many steps that was, and whether they are different states.
    """
    under, identity = other.symmetry.print_under, other.symmetry.identity
    steps, differ = 0, False
    for action in history:
        start = one.apply(start, action) or start
        if one.by_id:
            break
        twin = other.apply(twin, renamed(action, dict(place.names))) or twin
        told = f"{steps}, {action}:\n{one.describe(start)}\n{other.describe(twin)}"
        assert one.symmetry.print_under(start, place) == under(twin, identity), told
        assert one.print_of(start) == other.print_of(twin), told
        steps += 1
        differ |= one.own_print_of(start) != other.own_print_of(twin)
    return steps, differ


@pytest.mark.parametrize("name", list(SETTINGS))
def test_other_names_give_the_same_states(name: str) -> None:
    quorum, start = setting(name)
    renamings = [each for each in quorum.symmetry.all_of() if each is not quorum.symmetry.identity]
    if not renamings:
        assert all(len(each) == 1 for each in classes_of(quorum.setting))
        return
    renaming = renamings[len(name) % len(renamings)]
    other, twin = setting(name, tuple(renaming.names[id] for id in quorum.ids))
    if name in BEGINS_BY_ID:
        alike = other.symmetry.print_under(twin, other.symmetry.identity)
        assert quorum.symmetry.print_under(start, renaming) != alike
        return
    steps, differ = 0, False
    for history in walks(quorum, start, 4, 40):
        found, differs = follow(quorum, start, history, other, twin, renaming)
        steps, differ = steps + found, differ or differs
    assert steps > 25 and differ


class Whole(Quorum):
    """A quorum whose states are told apart by names, and what they come to without."""

    alike: set[int]

    def print_of(self, state: State) -> int:
        self.alike.add(super().print_of(state) & (1 << 64) - 1)
        return self.own_print_of(state)


def test_no_state_is_missed_for_its_names() -> None:
    """The core leads elsewhere by the lower id, also from a state whose like was taken."""
    words = "--crashes 0 --appends 1 --timers 1 --faults 0"
    quorum, start = quorum_of(arguments().parse_args(words.split()))
    few = Fingerprints()
    assert search.delay_bounded(quorum, start, 1, 300, few).whole
    whole, begin = quorum_of(arguments().parse_args(words.split()))
    whole.__class__ = Whole
    assert isinstance(whole, Whole)
    whole.alike = set()
    many = Fingerprints()
    assert search.delay_bounded(whole, begin, 1, 300, many).whole
    assert {*few} == whole.alike
    assert len(few) < len(many)
