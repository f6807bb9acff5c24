"""Make producer ids so that none is given twice and later ones are larger.

Only leaders make them: the leader's epoch, whether a name stands for the id, and a number that
counts up in the epoch. No clock is asked: an epoch has one leader, which does not lead in it again
after a restart (D4). Where the count begins is drawn for each epoch: in a copy of the log that is
restored, the same epoch comes again, and producers of before must not be taken for those of now.
Of each kind later ids are larger, so a log that has forgotten a producer need
not remember every id that it has forgotten (``forgotten.py``).

Earlier versions gave ids by the clock of a replica that did not lead, from 2^62 on. Those in a log
are still known; no new ones are taken, in no epoch: several producers may have the same.
"""

from __future__ import annotations

NUMBER_BITS = 30
EPOCH_SHIFT = NUMBER_BITS + 1
NUMBER_LAST = (1 << NUMBER_BITS) - 1
CLOCK_ID = 1 << 62
"""The first id that was given by a clock."""
NAMELESS, NAMED, OF_A_CLOCK = KINDS = range(3)
"""Which ids rise one behind the other."""


def leader_id(epoch: int, number: int, named: bool = False) -> int:
    """Return the id that a leader hands out as its ``number``-th, from 1."""
    assert 0 <= epoch < 1 << 31 and 0 <= number <= NUMBER_LAST
    return epoch << EPOCH_SHIFT | named << NUMBER_BITS | number


def kind_of(id: int) -> int:
    """Return which kind of ids this one is of."""
    return OF_A_CLOCK if id >= CLOCK_ID else id >> NUMBER_BITS & 1


def can_be_given(id: int, epoch: int) -> bool:
    """Return whether a leader can have handed this id out in ``epoch`` or before."""
    return id < CLOCK_ID and id >> EPOCH_SHIFT <= epoch
