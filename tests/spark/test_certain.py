"""Random histories of a quorum: what was certain at some moment, every leader after it has."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark")

from kraftfast.log.reading.extents import Extent  # noqa: E402
from kraftfast.spark.reading.certain import Certain, HeldRecords, SetAt, certain_end  # noqa: E402
from kraftfast.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet  # noqa: E402

Entry = tuple[int, int, VoterSet | None]
"""(epoch, a number that no other record has, the voter set that it is)."""


def key(id: int) -> ReplicaKey:
    return ReplicaKey(id, bytes([id]) * 16)


def voters(*ids: int) -> VoterSet:
    return VoterSet(Voter(id, key(id).directory_id) for id in ids)


@dataclass
class Replica:
    id: int
    log: list[Entry] = field(default_factory=list)
    epoch: int = 0
    leads: bool = False
    floor: OffsetAndEpoch = OffsetAndEpoch(0, 0)

    @property
    def place(self) -> tuple[int, int]:
        return (self.log[-1][0] if self.log else 0), len(self.log)


class History:
    """Elections, replication and changes of voters as Raft allows them, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.first = voters(*range(1, self.chance.choice((2, 3, 3, 4, 5)) + 1))
        self.weights = [self.chance.random() for _ in range(4)]
        self.copied = self.chance.choice(((0, 1), (0, 1, 2, 9), (0, 0, 0, 9)))
        self.changes, self.heard = self.chance.choice((0, 0.1, 0.5)), self.chance.random()
        self.here = self.chance.choice((0.5, 0.85, 1))
        self.replicas = [Replica(id) for id in range(1, 6)]
        self.numbers = iter(range(1 << 30))
        self.must: list[Entry] = []

    def sets(self, log: list[Entry]) -> list[SetAt]:
        found = [(at, entry[2]) for at, entry in enumerate(log) if entry[2] is not None]
        return [(-1, self.first), *found]

    def committed(self, leader: Replica) -> int:
        now = self.sets(leader.log)[-1][1]
        for end in range(len(leader.log), 0, -1):
            if leader.log[end - 1][0] != leader.epoch:
                return 0
            same = [each for each in self.replicas if each.log[:end] == leader.log[:end]]
            if sum(now.is_voter(key(each.id)) for each in same) >= now.majority:
                return end
        return 0

    def elect(self) -> None:
        one = self.chance.choice(self.replicas)
        now = self.sets(one.log)[-1][1]
        if not now.is_voter(key(one.id)):
            return
        epoch = one.epoch + 1
        asked = [each for each in self.replicas if each is one or self.chance.random() < self.heard]
        granting = [each for each in asked if each.epoch < epoch and each.place <= one.place]
        for each in granting:
            each.epoch, each.leads = epoch, False
        if sum(now.is_voter(key(each.id)) for each in granting) >= now.majority:
            assert one.log[: len(self.must)] == self.must, "a leader lacks what was certain"
            one.leads = True
            one.log.append((epoch, next(self.numbers), None))

    def replicate(self) -> None:
        leaders = [each for each in self.replicas if each.leads]
        if not leaders:
            return
        leader, one = self.chance.choice(leaders), self.chance.choice(self.replicas)
        if one is leader or one.epoch > leader.epoch:
            return
        one.epoch, one.leads = leader.epoch, False
        pairs = zip(leader.log, one.log)
        same = next((at for at, (a, b) in enumerate(pairs) if a != b), -1)
        same = min(len(leader.log), len(one.log)) if same < 0 else same
        one.log = leader.log[: same + self.chance.choice(self.copied)]
        end = min(self.committed(leader), len(one.log))
        if end and self.chance.random() < 0.1:
            one.floor = max(one.floor, OffsetAndEpoch(end, one.log[end - 1][0]))

    def append(self) -> None:
        leaders = [each for each in self.replicas if each.leads]
        if not leaders:
            return
        leader, changed = self.chance.choice(leaders), None
        if self.chance.random() < self.changes:
            at, now = self.sets(leader.log)[-1]
            if not at < self.committed(leader):
                return
            id = self.chance.randint(1, 5)
            changed = now.without(id) if id in now else now.with_voter(Voter(id, key(id)[1]))
            if not len(changed):
                return
        leader.log.append((leader.epoch, next(self.numbers), changed))

    def step(self) -> None:
        steps = self.elect, self.replicate, self.replicate, self.append
        self.chance.choices(steps, self.weights)[0]()

    def look(self) -> int:
        """Note what is certain by the directories that are here now; how much that is."""
        here = [each for each in self.replicas if self.chance.random() < self.here]
        if not here:
            return 0
        known = max(each.floor for each in here)
        found: Certain = certain_end([self.held(each, known) for each in here], known)
        if found.index >= 0:
            log = here[found.index].log[: found.end.offset]
            shorter = min(len(log), len(self.must))
            assert log[:shorter] == self.must[:shorter]
            self.must = max(self.must, log, key=len)
        return found.end.offset - known.offset

    def held(self, one: Replica, known: OffsetAndEpoch) -> HeldRecords:
        epochs: list[tuple[int, int]] = []
        for at, (epoch, _, _) in enumerate(one.log):
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, at))
        sets = self.sets(one.log)
        below = [each for each in sets if each[0] < known.offset]
        extent = Extent(0, len(one.log), tuple(epochs))
        return HeldRecords(key(one.id), extent, one.epoch, tuple(below[-1:] + sets[len(below) :]))


def test_no_leader_lacks_what_was_certain() -> None:
    told = 0
    for seed in range(60):
        history = History(seed)
        for number in range(120):
            history.step()
            if number % 5 == 0:
                told += history.look() > 0
    assert told > 50, "much is certain beyond what was known"
