"""States that differ only in which replica has which name are one state.

The first voter keeps its name: it leads as a search begins, so no state is like one where another
did. Voters change names with each other, and observers, where the setting makes no difference
between them. Of all ways to rename, those are tried that order the replicas by what they are made
of without any name.

The core prefers lower ids here and there: which peer is asked first, who of two goes first with
the same log, the first of several equal successors, the next move of a reassignment.
``Turn.by_id`` tells which turns these are. There two states that differ in names may go different
ways, so ``search.delay_bounded`` counts them once and goes on from both: what is behind the second
alone was up to 11% of all states, for a fifth fewer steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, permutations, product
from typing import TYPE_CHECKING, Any

from tests.model.alone import Setting
from tests.model.content import Names, content_of, content_print

if TYPE_CHECKING:
    from tests.model.quorum import State
    from tests.model.turns import Turns

TRIED_MAX = 24
"""Ways to rename that are tried of one state."""
REMEMBERED_MAX = 100_000


def classes_of(setting: Setting) -> list[tuple[int, ...]]:
    """Return the sets of ids between which the setting makes no difference."""
    if setting.begin:  # its steps name replicas
        return [(id,) for id in setting.ids]

    def kind_of(id: int) -> tuple[bool, ...]:
        first = id == setting.voters[0]
        rare = (setting.witnesses, setting.in_memory, setting.floors, setting.moved,
                setting.emptied)  # fmt: skip
        return (first, id in setting.voters, *(id in each for each in rare))

    ids = sorted(setting.ids, key=lambda id: (kind_of(id), id))
    return [tuple(each) for _, each in groupby(ids, kind_of)]


class Renaming:
    """New names for all replicas, and where each is looked for in a state's tuples."""

    def __init__(self, setting: Setting, names: Names, place: int) -> None:
        self.names = names
        self.place = place
        ids = setting.ids
        pairs = [(a, b) for a in ids for b in ids if a != b]
        before = {new: old for old, new in names.items()}
        self.replicas = [ids.index(before[id]) for id in ids]
        self.pairs = [pairs.index((before[a], before[b])) for a, b in pairs]


class Symmetry:
    """Prints of states under new names."""

    def __init__(self, setting: Setting, turns: Turns) -> None:
        self.setting = setting
        self.turns = turns
        self.classes = classes_of(setting)
        self.nameless = dict.fromkeys(setting.ids, 0)
        self._renamings: dict[tuple[int, ...], Renaming] = {}
        self.identity = self.renaming(setting.ids)
        self.forget()

    def forget(self) -> None:
        """Numbers of replicas and messages stand for others from now on."""
        self._shapes: dict[int, int] = {}
        self._replicas: dict[tuple[int, int], int] = {}
        self._messages: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[Any, int], int] = {}
        self._fitting: dict[tuple[int, ...], list[Renaming]] = {}

    def renaming(self, order: tuple[int, ...]) -> Renaming:
        """Return the renaming that gives the n-th id of the setting's to the n-th of these."""
        found = self._renamings.get(order)
        if found is None:
            names = dict(zip(order, self.setting.ids))
            found = Renaming(self.setting, names, len(self._renamings))
            self._renamings[order] = found
        return found

    def all_of(self) -> Iterator[Renaming]:
        """Yield every renaming of the setting."""
        for orders in product(*(permutations(each) for each in self.classes)):
            yield self.of_orders(orders)

    def of_orders(self, orders: tuple[tuple[int, ...], ...]) -> Renaming:
        """Return the renaming that puts the members of each class in this order."""
        place = {
            new: old for ids, order in zip(self.classes, orders) for new, old in zip(ids, order)
        }
        return self.renaming(tuple(place[id] for id in self.setting.ids))

    def print_of(self, state: State) -> int:
        """Return 64 bits that are the same for all states that differ only in names."""
        fitting = self.fitting_of(state)
        if len(fitting) == 1:
            return self.print_under(state, fitting[0])
        return min(self.print_under(state, each) for each in fitting)

    def order_of(self, state: State) -> tuple[int, ...]:
        """Return the ids in an order that does not depend on names."""
        fitting = self.fitting_of(state)
        found = fitting[0]
        if len(fitting) > 1:
            found = min(fitting, key=lambda each: self.print_under(state, each))
        ids = self.setting.ids
        return tuple(ids[each] for each in found.replicas)

    def fitting_of(self, state: State) -> list[Renaming]:
        found = self._fitting.get(state.replicas)
        if found is None:
            if len(self._fitting) > REMEMBERED_MAX:
                self._fitting.clear()
            found = self._fitting[state.replicas] = self.fitting(state.replicas)
        return found

    def fitting(self, replicas: tuple[int, ...]) -> list[Renaming]:
        """Return the renamings after which the replicas of each class are in order."""
        numbers, shapes = dict(zip(self.setting.ids, replicas)), dict.fromkeys(self.setting.ids, 0)
        for id in [each for members in self.classes if len(members) > 1 for each in members]:
            shapes[id] = self._shape(numbers[id])
        orders = []
        for members in self.classes:
            alike = [
                list(permutations(each))
                for _, each in groupby(sorted(members, key=shapes.__getitem__), shapes.get)
            ]
            orders.append([sum(each, ()) for each in product(*alike)])
        found = [self.of_orders(each) for each in product(*orders)]
        return found[:TRIED_MAX]

    def print_under(self, state: State, renaming: Renaming) -> int:
        """Return what stands for a state with these names, in every process and form."""
        replicas = [self._replica(state.replicas[each], renaming) for each in renaming.replicas]
        channels = [
            tuple([self._message(number, renaming) for number in state.channels[each]])
            for each in renaming.pairs
        ]
        links = tuple([state.links[each] for each in renaming.pairs])
        return hash((*replicas, *channels, links, self._known_print(state.known, renaming)))

    def _shape(self, number: int) -> int:
        found = self._shapes.get(number)
        if found is None:
            host = self.turns.host_of(number)
            found = self._shapes[number] = content_print(host, self.nameless)
        return found

    def _replica(self, number: int, renaming: Renaming) -> int:
        key = number, renaming.place
        found = self._replicas.get(key)
        if found is None:
            found = content_print(self.turns.host_of(number), renaming.names)
            self._replicas[key] = found
        return found

    def _message(self, number: int, renaming: Renaming) -> int:
        key = number, renaming.place
        found = self._messages.get(key)
        if found is None:
            kind, correlation, *rest = (*self.turns.parts_of(number), 0)
            parts = (kind, content_of(correlation, field="correlation"), tuple(rest))
            found = self._messages[key] = content_print(parts, renaming.names)
        return found

    def _known_print(self, known: Any, renaming: Renaming) -> int:
        key = known, renaming.place
        found = self._known.get(key)
        if found is None:
            names = renaming.names
            leaders = sorted((epoch, names[id], life) for epoch, id, life in known.leaders)
            rest = content_of(known._replace(leaders=()), names)
            found = self._known[key] = content_print((tuple(leaders), rest))
        return found
