"""What a log keeps of the producers that it has forgotten, so that nothing of theirs comes twice.

A batch of a producer that is not known may be a repeat if its id was forgotten. Ids of a kind rise
(``log/small_files/id_ranges.py``), so an id above the largest forgotten one is new. Below it, the
epochs decide: no batch was ever appended under an id in a higher epoch than it was forgotten with.
The highest epochs are kept id by id, so that a client whose epoch is high does not stand in the way
of others; of all other forgotten ids of a kind the highest epoch is known.
"""

from __future__ import annotations

from kraftfast.log.small_files.id_ranges import KINDS, NAMED, OF_A_CLOCK, can_be_given, kind_of

APART_MAX = 32
"""I25: ids of each kind whose epochs are kept one by one."""
ID_LAST = 2**63 - 2  # so that one more can be written down
EPOCHS_MAX = 0x7FFF
RAN_OUT = EPOCHS_MAX - 2
"""From this epoch on a name gets another id: the one before is forgotten, the name is not."""


class Forgotten:
    """The ids that were forgotten. A pure function of the order in which they were."""

    # ids: by kind, the largest; -1: none.
    # epochs: by kind, the highest of all ids that are not in `apart`; -1: none of them.
    # apart: by kind, id -> its epoch, above `epochs`.

    def __init__(self) -> None:
        self.ids = [-1 for _ in KINDS]
        self.epochs = [-1 for _ in KINDS]
        self.apart: list[dict[int, int]] = [{} for _ in KINDS]

    def __bool__(self) -> bool:
        return max(self.ids) >= 0

    def add(self, id: int, epoch: int) -> None:
        """Record that this producer was forgotten in this epoch."""
        kind, id = kind_of(id), min(id, ID_LAST)
        self.ids[kind] = max(self.ids[kind], id)
        apart = self.apart[kind]
        if epoch <= max(self.epochs[kind], apart.get(id, -1)):
            return
        apart[id] = epoch
        if len(apart) > APART_MAX:
            lowest = min(apart.values())
            self.epochs[kind] = lowest
            self.apart[kind] = {each: of for each, of in apart.items() if of > lowest}

    def may_begin(self, id: int, epoch: int, leader_epoch: int) -> bool:
        """Return whether no batch of this unknown producer in this epoch can be in the log."""
        kind, id = kind_of(id), min(id, ID_LAST)
        if id <= self.ids[kind]:
            return epoch > max(self.epochs[kind], self.apart[kind].get(id, -1))
        return can_be_given(id, leader_epoch)

    def may_hold_names(self) -> bool:
        """Return whether one may have had a name that went with it. Such are of ``NAMED`` ids.

        It does not depend on how many producers are remembered now: that limit may be raised.
        """
        return self.epochs[NAMED] >= 0 or any(of < RAN_OUT for of in self.apart[NAMED].values())

    # --- as numbers, each from -1 -----------------------------------------------------------------

    def to_numbers(self) -> list[int]:
        """Return the state as numbers; the first three are all that version 2 has.

        To their reader they say: ids up to here may be forgotten ones, up to this epoch.
        """
        highest = max(self.epochs + [max(each.values(), default=-1) for each in self.apart])
        numbers = [max(self.ids[:OF_A_CLOCK]), self.ids[OF_A_CLOCK], highest]
        for kind in KINDS:
            apart = sorted(self.apart[kind].items())
            numbers += [self.ids[kind], self.epochs[kind], len(apart)]
            numbers += [number for entry in apart for number in entry]
        return numbers

    @classmethod
    def of_version_2(cls, leaders: int, clocks: int, epoch: int) -> Forgotten:
        """Return what those three numbers say."""
        found = cls()
        found.ids = [leaders, -1, clocks]
        found.epochs = [epoch if id >= 0 else -1 for id in found.ids]
        return found
