"""Up to where the logs of a quorum at rest are certain: no leader to come can cut them there.

A log does not say how far it is committed. A record of epoch E is certain if a majority of the
voters holds it on disk and no leader can be elected that lacks it (D11, I7):

* The voters are those of the voter sets in the logs themselves (KIP-853) by which a leader without
  the record could be elected: the set in force where the logs are known to be committed, and every
  later one, committed or not, that is not behind the record itself. A majority of each of them must
  hold the record. A replica that was removed, an observer, a directory whose place another one has
  taken: none of them counts.
* A voter that lacks the record must have no record of an epoch above E: it could win an election
  with the votes of those whose logs are, or after a truncation will be, shorter in its eyes.
* A voter whose directory is not here may hold anything that a leader after E wrote. Each such
  leader had the vote of some voter of the majority, which stored its epoch (D5). So every epoch
  after E that a voter here knows must be that of a log which holds the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftfast.log.reading.extents import Extent, agreed_end
from kraftfast.types import OffsetAndEpoch, ReplicaKey, VoterSet

SetAt = tuple[int, VoterSet]
"""(offset of its record, -1 for that of a bootstrap snapshot; the voter set)."""


@dataclass(frozen=True, slots=True)
class HeldRecords:
    """What one directory holds."""

    key: ReplicaKey
    extent: Extent
    epoch: int | None
    """The newest epoch that this replica stored or has records of; None: its file is unreadable."""
    sets: tuple[SetAt, ...] = ()
    """The voter set in force at the known committed end, and all later ones of this log.

    Invariant: offsets must rise.
    """
    snapshot_epoch: int = -1
    """That of the record before the end of its newest snapshot; -1: it has none."""

    @property
    def last_epoch(self) -> int:
        """Return the epoch of its last record, which may stand in a snapshot; -1 if it has none."""
        epochs = self.extent.epochs
        return max(epochs[-1][0] if epochs else -1, self.snapshot_epoch)

    def holds(self, known: OffsetAndEpoch) -> bool:
        """Return whether this log holds all that is known to be committed, or began behind it."""
        if self.extent.start_offset >= known.offset:
            return True
        return known.epoch in (-1, self.extent.epoch_at(known.offset - 1)) and (
            self.extent.end_offset >= known.offset
        )


@dataclass(frozen=True, slots=True)
class Certain:
    """Up to where, and which of the logs holds all of that. -1: none, all is known otherwise."""

    end: OffsetAndEpoch
    index: int = -1


def certain_end(held: Sequence[HeldRecords], known: OffsetAndEpoch) -> Certain:
    """Return up to where the logs are certain, ``known`` at least.

    ``known``: an end that is known to be committed, with the epoch of the record before it.

    >>> voters = VoterSet.of(1, 2, 3)
    >>> logs = [Extent(0, 348, ((1, 0),)), Extent(0, 103, ((1, 0),))]
    >>> key = [ReplicaKey(1), ReplicaKey(2)]
    >>> held = [HeldRecords(key[n], log, 1, ((-1, voters),)) for n, log in enumerate(logs)]
    >>> certain_end(held, OffsetAndEpoch(0, 0)).end
    OffsetAndEpoch(offset=103, epoch=1)
    """
    found = Certain(known)
    while True:  # what is certain by now may decide which voter set was in force
        further = _further(held, found)
        if further.end == found.end:
            return found
        found = further


def _further(held: Sequence[HeldRecords], known: Certain) -> Certain:
    """Return the highest end that the voter sets from ``known`` on make certain."""
    best = known
    for index, one in enumerate(held):
        if not one.holds(known.end):
            continue
        agreed = [agreed_end(one.extent, other.extent) for other in held]
        stop = one.extent.end_offset
        for epoch, start in reversed(one.extent.epochs):
            if epoch < known.end.epoch or stop <= best.end.offset:
                break  # a leader of that epoch was deposed before ``known`` was committed
            ends = {stop, *agreed, *(at for at, _ in one.sets)}
            low = max(start, best.end.offset)
            ends = {end for end in ends if low < end <= stop}
            certain = (
                end
                for end in sorted(ends, reverse=True)
                if _is_certain(held, known.end, agreed, end, epoch)
            )
            end = next(certain, -1)
            if end >= 0:
                best = Certain(OffsetAndEpoch(end, epoch), index)
                break
            stop = start
    return best


def _sets_without(
    held: Sequence[HeldRecords], known: OffsetAndEpoch, agreed: Sequence[int], end: int
) -> list[VoterSet]:
    """Return the sets by which a leader may be elected that lacks the record before ``end``.

    ``agreed``: up to where each log is like the one that holds that record.
    """
    found: list[VoterSet] = []
    for each, reached in zip(held, agreed, strict=True):
        if not each.holds(known):
            continue
        below = [voters for at, voters in each.sets if at < known.offset]
        bound = end if reached >= end else each.extent.end_offset
        later = [voters for at, voters in each.sets if known.offset <= at < bound]
        found += [voters for voters in below[-1:] + later if voters not in found]
    return found


def _copies(held: Sequence[HeldRecords], voters: VoterSet) -> list[list[int]]:
    """Return by voter the indices of its directories: none, one, or copies of one."""
    return [
        [n for n, each in enumerate(held) if each.key.id == voter.id and voters.is_voter(each.key)]
        for voter in voters
    ]


def _majority_reach(held: Sequence[HeldRecords], voters: VoterSet, agreed: Sequence[int]) -> int:
    """Return up to where a majority holds the same. Which of several copies starts is unknown."""
    reached = sorted(
        (min((agreed[n] for n in copies), default=0) for copies in _copies(held, voters)),
        reverse=True,
    )
    return reached[voters.majority - 1] if len(reached) >= voters.majority else 0


def _is_certain(
    held: Sequence[HeldRecords], known: OffsetAndEpoch, agreed: Sequence[int], end: int, epoch: int
) -> bool:
    """Return whether no leader can be elected that lacks the record before ``end``."""
    sets = _sets_without(held, known, agreed, end)
    if not sets or any(_majority_reach(held, voters, agreed) < end for voters in sets):
        return False
    all_copies = [copies for voters in sets for copies in _copies(held, voters)]
    here = {n for copies in all_copies for n in copies}
    if any(agreed[n] < end and held[n].last_epoch > epoch for n in here):
        return False
    if all(all_copies):
        return True
    stored = [held[n].epoch for n in here]
    if None in stored:
        return False
    newest = max(each for each in stored if each is not None)
    covered = {
        each
        for log, reached in zip(held, agreed, strict=True)
        if reached >= end
        for each, _ in log.extent.epochs
        if epoch < each <= newest
    }
    return len(covered) == max(0, newest - epoch)
