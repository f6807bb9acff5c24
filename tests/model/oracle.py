"""Check what must hold between replicas; the core and its host assert what holds within one.

I1 to I8, I13 to I15, I19, D3, D6, D16, D17 and the read barrier. A commit owes the leaders of later
epochs only: so the epoch in which each offset was committed is kept. Where more disks were hurt
than the quorum can bear, commits may be lost; leaders of one epoch (I1, I13) and records under one
epoch and offset (I2, I3) are judged there too, and the rest in the hosts.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from kraftfast.types import KRaftVoters, ReplicaKey, VoterSet
from tests.core.disk import GONE, Record, splits_batch
from tests.model.alone import Violation
from tests.model.seen import Seen
from tests.model.turns import Turns


class Hurt(NamedTuple):
    """A disk that lost what had been flushed: it stands for what it held until then."""

    key: ReplicaKey
    end: int  # of the log that it held; 0: it is whole again
    epoch: int  # the last one in it
    stood: int  # in which epoch it was: it may have cut what leaders of older ones count


class Cut(NamedTuple):
    """A disk whose process ended with all in memory that it had of an epoch."""

    key: ReplicaKey
    epoch: int


class Known(NamedTuple):
    """What the oracle remembers."""

    committed: tuple[Record, ...] = ()
    terms: tuple[int, ...] = ()  # the epoch in which each of them was committed
    leaders: tuple[tuple[int, int, int], ...] = ()  # (epoch, id, which of its lives)
    snapshots: tuple[tuple[Any, Any], ...] = ()
    hurt: frozenset[Hurt] = frozenset()
    cut: frozenset[Cut] = frozenset()

    @property
    def hurt_ids(self) -> set[int]:
        """The replicas that had a disk that was hurt."""
        return {each.key.id for each in self.hurt}

    def hurts_of(self, key: ReplicaKey) -> list[Hurt]:
        """Return what is known of this disk; of any of that id, where no directory is named."""
        nameless = ReplicaKey(key.id, bytes(16))
        return [
            each for each in self.hurt
            if key in (each.key, nameless) and each.key.id == key.id
        ]  # fmt: skip

    def is_hurt(self, key: ReplicaKey, end: int, epoch: int = 1 << 31) -> bool:
        """Return whether this disk was hurt when it held so much, or a leader of that epoch need
        not know what it had cut by then."""
        return any(end <= each.end or epoch < each.stood for each in self.hurts_of(key))

    def hurt_of(self, voters: VoterSet, end: int) -> set[int]:
        """Return the voters whose disks held so much when they were hurt."""
        return {each.id for each in voters if self.is_hurt(each.key, end)} if self.hurt else set()

    def hurts(self, seen: Seen) -> Known:
        """Note that this disk loses what it has."""
        before = self.hurts_of(seen.key)
        end = max([len(seen.records), *(each.end for each in before)])
        epoch = max([last_epoch(seen), *(each.epoch for each in before)])
        stood = max([seen.epoch, *(each.stood for each in before)])
        hurt = self.hurt.difference(before) | {Hurt(seen.key, end, epoch, stood)}
        return self._replace(hurt=hurt)

    def heals(self, seen: Seen) -> Known:
        """Note that a disk has again as much as it had when it was hurt."""
        whole = {
            each for each in self.hurt
            if each.key == seen.key and seen.running and 0 < each.end <= seen.sure
        }  # fmt: skip
        if not whole:
            return self
        return self._replace(hurt=self.hurt - whole | {each._replace(end=0) for each in whole})


def agree(one: tuple[Record, ...], other: tuple[Record, ...], end: int) -> bool:
    """Return whether two logs hold the same below an offset, as far as both still have it."""
    if one[:end] == other[:end]:
        return True
    return all(
        mine == theirs or mine == GONE or theirs == GONE
        for mine, theirs in zip(one[:end], other[:end])
    )


class Oracle:
    """Judges each state from what changed."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.static = VoterSet.of(*turns.setting.voters)
        self.looked: Counter[str] = Counter()  # how often each rule had something to look at
        self._matching: dict[tuple[int, int], bool] = {}

    def forget(self) -> None:
        """Numbers of replicas stand for others from now on."""
        self._matching.clear()

    def judge(
        self,
        known: Known,
        replicas: tuple[int, ...],
        place: int,
        before: int,
        facts: tuple[tuple[Any, ...], ...],
    ) -> Known:
        """Return what is known now. Raises Violation."""
        seen = [self.turns.seen[each] for each in replicas]
        mine, old = seen[place], self.turns.seen[before]
        self._recovers(known, old, mine)
        known = self._cuts(known, old, mine).heals(mine)
        if mine.role == old.role in ("leader", "follower") and mine.epoch == old.epoch:
            self.looked["high watermark"] += mine.high_watermark > old.high_watermark
            if mine.high_watermark < old.high_watermark:
                raise Violation(f"I6: the high watermark of {mine.key.id} goes back")
        if self.began_anew(known, mine):
            return known
        if len(known.hurt_ids) > self.turns.setting.bears:
            return self._judge_hurt(known, replicas, place, old, facts)
        for kind, *words in sorted(facts, key=is_last):
            judge = getattr(self, f"_{kind}", None)
            if judge is not None:
                self.looked[kind] += 1
                known = judge(known, seen, mine, *words)
        if mine.high_watermark > len(known.committed):
            raise Violation(f"I6: {mine.key.id} takes {mine.high_watermark} for committed")
        self._keeps(known, old, mine)
        self._counts_no_gone_disk(seen, old, mine)
        self.looked["told committed"] += mine.told_committed >= 0
        if mine.told_committed >= len(known.committed):
            raise Violation(f"D17: {mine.key.id} calls voters committed that are not")
        if facts or mine.records != old.records or mine.flushed != old.flushed:
            self._durable(known, seen)
            self._logs_match(known, replicas, place)
        if mine.counted != old.counted or mine.flushed < old.flushed:
            self._acknowledged(known, seen)
        return known

    def _judge_hurt(
        self, known: Known, replicas: tuple[int, ...], place: int, old: Seen,
        facts: tuple[tuple[Any, ...], ...],
    ) -> Known:  # fmt: skip
        """Judge what holds though commits may be lost."""
        if self.turns.setting.begins_anew:
            return known  # disks that no voter set names vote again in an epoch: only hosts judge
        mine = self.turns.seen[replicas[place]]
        for kind, *words in facts:
            if kind == "elected":
                self.looked["elected by hurt"] += 1
                known = self._leads(known, mine, *words[:2])
        if mine.records != old.records:
            self._logs_match(known, replicas, place)
        return known

    def began_anew(self, known: Known, seen: Seen) -> bool:
        """Return whether a replaced disk has another log than the quorum's, begun by the
        configuration: nobody of the quorum follows it (D23), so what it does is not judged here."""
        if not self.turns.setting.begins_anew or seen.key.id not in known.hurt_ids:
            return False
        if not known.committed or not seen.records:
            return False
        anew = seen.records[0] not in (known.committed[0], GONE)
        self.looked["began anew"] += anew
        return anew

    def _recovers(self, known: Known, old: Seen, mine: Seen) -> None:
        """A log is what stood on the disk, whole batches of it, however power went (I14)."""
        name, end, held = mine.key.id, len(mine.records), len(old.records)
        if old.running == mine.running:
            return
        self.looked["recovered"] += 1
        if old.running:  # the power went, or the process
            if mine.records != old.records[:end] or splits_batch(list(old.records), end):
                raise Violation(f"I14: {name} had {show(old.records)}, left {show(mine.records)}")
            if end < old.flushed and not known.is_hurt(mine.key, held):
                raise Violation(f"I14: {name} flushed {show(old.records)}, left {end} of them")
        more = any(each.epoch <= old.epoch for each in mine.records[held:])  # none led so soon
        if mine.running and (more or mine.records[:held] != old.records):
            raise Violation(f"I14: {name} had {show(old.records)}, starts {show(mine.records)}")

    def _cuts(self, known: Known, old: Seen, mine: Seen) -> Known:
        """Note whose process ended with a tail in memory: what it once had, it may lack now."""
        if not self.turns.setting.changes_voters:
            return known
        if old.running and not mine.running and len(mine.records) < len(old.records):
            lost = {Cut(mine.key, each.epoch) for each in old.records[len(mine.records) :]}
            return known._replace(cut=known.cut | lost)
        back = {each for each in known.cut if each.key == mine.key and reaches(mine, each.epoch)}
        return known._replace(cut=known.cut - back) if back else known

    def _keeps(self, known: Known, old: Seen, mine: Seen) -> None:
        """No process cuts what is committed, though others may have it (I7).

        What a power cut takes is what was not on the disk; that enough is there, I5 judges.
        """
        if not mine.running or mine.records == old.records or mine.key != old.key:
            return
        end = held_end(old.records, known.committed)
        if end and not known.is_hurt(mine.key, end):
            self.looked["cut or extended"] += 1
            if len(mine.records) < end or not agree(mine.records, known.committed, end):
                raise Violation(
                    f"I7: {mine.key.id} cuts {show(old.records)} to {show(mine.records)}, "
                    f"committed is {show(known.committed)}"
                )

    def _counts_no_gone_disk(self, seen: list[Seen], old: Seen, mine: Seen) -> None:
        """A disk that was replaced acknowledges nothing more, whoever has its voter's id (D19)."""
        if mine.counted == old.counted or mine.epoch != old.epoch:
            return
        before = {(id, directory): end for id, directory, end in old.counted}
        there = {each.key.id: each.key.directory_id for each in seen}
        for id, directory, end in mine.counted:
            if directory in (bytes(16), there[id]):
                continue
            self.looked["gone disk counted"] += 1
            if end not in (-1, before.get((id, directory), end)):
                raise Violation(f"D19: {mine.key.id} counts {end} for a disk of {id} that is gone")

    def _acknowledged(self, known: Known, seen: list[Seen]) -> None:
        """What a leader counts is on that voter's disk, unless a later leader cut it (D3, D16)."""
        disks = {each.key.id: each for each in seen}
        for leader in seen:
            for id, directory, end in leader.counted:
                voter = disks[id]
                other = directory not in (bytes(16), voter.key.directory_id)
                if end <= 0 or other or voter.epoch > leader.epoch:
                    continue
                if known.is_hurt(ReplicaKey(id, directory), end, leader.epoch):
                    continue
                self.looked["acknowledged"] += 1
                if self.is_sure(id) and not holds(voter, leader.records, end):
                    raise Violation(
                        f"D3: {leader.key.id} counts {end} records of {id}, on whose disk is "
                        f"{show(voter.records[: voter.flushed])}"
                    )

    def is_sure(self, id: int) -> bool:
        """Return whether what this voter acknowledges survives its own power cut."""
        setting = self.turns.setting
        return setting.volatile or id not in setting.in_memory

    def _done(self, known: Known, seen: list[Seen], mine: Seen, offset: int) -> Known:
        if offset >= len(known.committed):
            raise Violation(f"D17: {mine.key.id} calls a change done that is not committed")
        return known

    def _removed(
        self, known: Known, seen: list[Seen], mine: Seen, offset: int, after: VoterSet
    ) -> Known:
        """A removal must leave a majority with the previous voter set, or with a later epoch."""
        name, end = mine.key.id, offset + 1
        there = [each.key.id for each in seen if is_voter(after, each) and (
            each.key.id == name or each.epoch > mine.epoch or holds(each, mine.records, end)
        )]  # fmt: skip
        if len({*there, *known.hurt_of(after, end)}) < majority(after):
            raise Violation(f"D17: {name} leaves {after.ids}, of which only {there} follow")
        return known

    def _handed(self, known: Known, seen: list[Seen], mine: Seen, id: int, end: int) -> Known:
        """A leader that handed over as it was asked did so to one that has the whole log."""
        voter = next(each for each in seen if each.key.id == id)
        named = mine.voters.key(id) if id in mine.voters else ReplicaKey(id, bytes(16))
        lost = known.is_hurt(named, end, mine.epoch) or not self.is_sure(id)
        if voter.epoch <= mine.epoch and not lost and len(voter.records) < end:
            raise Violation(f"L1: {mine.key.id} hands over {end} records to {show(voter.records)}")
        return known

    def _elected(
        self, known: Known, seen: list[Seen], mine: Seen, epoch: int, life: int,
        records: tuple[Record, ...],
    ) -> Known:  # fmt: skip
        known = self._leads(known, mine, epoch, life)
        due = sum(term < epoch for term in known.terms)  # a late leader of old owes less
        if len(records) < due or not agree(records, known.committed, due):
            raise Violation(
                f"I4: {mine.key.id} leads epoch {epoch} with {show(records)}, "
                f"committed is {show(known.committed)}"
            )
        return known

    def _leads(self, known: Known, mine: Seen, epoch: int, life: int) -> Known:
        """Nobody else, and no other life of this replica, led the epoch (I1, I13)."""
        for other, id, lived in known.leaders:
            if other == epoch and (id, lived) != (mine.key.id, life):
                rule = "I1" if id != mine.key.id else "I13"
                raise Violation(f"{rule}: {mine.key.id} leads epoch {epoch} after {id}")
        leaders = tuple(sorted({*known.leaders, (epoch, mine.key.id, life)}))
        return known._replace(leaders=leaders)

    def _committed(
        self, known: Known, seen: list[Seen], mine: Seen, end: int,
        records: tuple[Record, ...], voters: VoterSet, epoch: int, role: str,
    ) -> Known:  # fmt: skip
        committed = known.committed
        if not agree(records, committed, min(end, len(committed))):
            raise Violation(f"I8: {mine.key.id} commits {show(records)}, not {show(committed)}")
        if end <= len(committed):
            return known
        self.looked["committed anew"] += 1
        if role not in ("leader", "resigned"):  # it may resign with the commit (I17)
            raise Violation(f"I6: {mine.key.id}, a {role}, commits {show(records)}")
        if records[end - 1].epoch != epoch:
            raise Violation(f"D6: {mine.key.id} commits {show(records)} in epoch {epoch}")
        for each in seen:
            owes = each.epoch > epoch and not self.began_anew(known, each)
            if each.role == "leader" and owes and not known.is_hurt(each.key, end):
                self.looked["committed late"] += 1
                if len(each.records) < end or not agree(each.records, records, end):
                    raise Violation(
                        f"I4: {mine.key.id} commits {show(records)} in epoch {epoch}, the leader "
                        f"of epoch {each.epoch} has {show(each.records)}"
                    )
        holders = [each.key.id for each in seen if is_voter(voters, each)
                   and holds(each, records, end)]  # fmt: skip
        if len({*holders, *known.hurt_of(voters, end)}) < majority(voters):
            raise Violation(f"I5: {mine.key.id} commits {show(records)}, only on {holders}")
        terms = known.terms + (epoch,) * (end - len(committed))
        fresh = (*committed, *records[len(committed) : end])
        return known._replace(committed=fresh, terms=terms)

    def _read(self, known: Known, seen: list[Seen], mine: Seen, asked: int, offset: int) -> Known:
        if not asked <= offset <= len(known.committed):
            raise Violation(f"a stale read: {asked} were committed, {mine.key.id} reads {offset}")
        return known

    def _snapshot(
        self, known: Known, seen: list[Seen], mine: Seen, snapshot_id: Any, content: Any
    ) -> Known:
        for other, said in known.snapshots:
            if other == snapshot_id and said != content:
                raise Violation(f"I8: two snapshots {snapshot_id}")
        snapshots = dict(known.snapshots) | {snapshot_id: content}
        if snapshot_id.offset > len(known.committed):
            raise Violation(f"I15: {mine.key.id} has a snapshot {snapshot_id} of what is not sure")
        below = known.committed[: snapshot_id.offset]
        voters = [each.control for each in below if isinstance(each.control, KRaftVoters)]
        said = [each for each in content if isinstance(each, KRaftVoters)]
        if voters and said != voters[-1:]:
            raise Violation(
                f"I8: {mine.key.id} has a snapshot {snapshot_id} of {said}, not {voters[-1:]}"
            )
        return known._replace(snapshots=tuple(sorted(snapshots.items())))

    def _durable(self, known: Known, seen: list[Seen]) -> None:
        """Committed records stay on a majority of disks, those that were hurt among them (I5)."""
        committed = known.committed
        if not committed:
            return
        voters = self.committed_voters(committed)
        if not voters:
            return
        end = len(committed)
        self.looked["durable"] += 1
        holders = [each.key.id for each in seen if is_voter(voters, each)
                   and holds(each, committed, end)]  # fmt: skip
        there = {*holders, *known.hurt_of(voters, end)}
        if self.turns.setting.dynamic or self.turns.setting.upgrades:
            # a later set, not committed yet, may have committed it (D16): the set before, which
            # may elect still, can do so only with one of these
            enough = len({*voters.ids} - there) < majority(voters)
        else:
            enough = len(there) >= majority(voters)
        if not enough:
            raise Violation(f"I5: committed {show(committed)} is on the disks of {holders} alone")

    def committed_voters(self, committed: tuple[Record, ...]) -> VoterSet:
        """Return the last set that is committed, an empty one where logs begin without one."""
        for record in reversed(committed):
            if isinstance(record.control, KRaftVoters):
                return record.control.voters
        return VoterSet(()) if self.turns.setting.dynamic else self.static

    def _logs_match(self, known: Known, replicas: tuple[int, ...], place: int) -> None:
        """Two logs with the same offset and epoch hold the same, and below it too (I2, I3)."""
        mine = replicas[place]
        for other in replicas:
            if other == mine or self.began_anew(known, self.turns.seen[other]):
                continue
            fine = self._matching.get((mine, other))
            if fine is None:
                self.looked["logs match"] += 1
                one, two = self.turns.seen[mine].records, self.turns.seen[other].records
                fine = self._matching[mine, other] = match(one, two)
            if not fine:
                ours, theirs = self.turns.seen[mine], self.turns.seen[other]
                raise Violation(f"I2, I3: {show(ours.records)} and {show(theirs.records)}")


def is_voter(voters: VoterSet, seen: Seen) -> bool:
    """Return whether a replica counts, by id and directory: judged without the core's own code."""
    named = [each.directory_id for each in voters if each.id == seen.key.id]
    return bool(named) and named[0] in (bytes(16), seen.key.directory_id)


def majority(voters: VoterSet) -> int:
    """Return how many voters commit: more than half."""
    return len(voters.voters) // 2 + 1


def is_last(fact: tuple[Any, ...]) -> bool:
    """Return whether a fact is judged behind the others of its turn."""
    return fact[0] in ("done", "read")


def held_end(records: tuple[Record, ...], committed: tuple[Record, ...]) -> int:
    """Return how much of what is committed a log holds."""
    end = 0
    for mine, theirs in zip(records, committed):
        if mine != theirs and GONE not in (mine, theirs):
            break
        end += 1
    return end


def holds(seen: Seen, records: tuple[Record, ...], end: int) -> bool:
    """Return whether a disk has these records below an offset."""
    return seen.sure >= end and agree(seen.records, records, end)


def match(one: tuple[Record, ...], two: tuple[Record, ...]) -> bool:
    """Return whether two logs are equal up to the last offset where their epochs agree."""
    shared = -1
    for offset, (mine, theirs) in enumerate(zip(one, two)):
        if mine != GONE and theirs != GONE and mine.epoch == theirs.epoch:
            shared = offset
    return agree(one, two, shared + 1)


def show(records: tuple[Record, ...]) -> str:
    """Return a log in words."""
    return " ".join(f"{each.value}@{each.epoch}" for each in records) or "nothing"


def last_epoch(seen: Seen) -> int:
    """Return the epoch that a log ends in, as far as it is not all in a snapshot."""
    return max((each.epoch for each in seen.records), default=0)


def reaches(seen: Seen, epoch: int) -> bool:
    """Return whether a log reaches into an epoch; one that ends in a snapshot may."""
    return bool(seen.records) and (seen.records[-1] == GONE or seen.records[-1].epoch >= epoch)


def has_its_epoch(voter: Seen, key: ReplicaKey, leader: Seen, known: Known) -> None:
    """A voter that a leader adds has once had all of its log, so records of its epoch (D17)."""
    lost = any(leader.epoch <= each.epoch for each in known.hurts_of(key))
    has = reaches(voter, leader.epoch) or lost or Cut(key, leader.epoch) in known.cut
    if voter.key == key and voter.epoch <= leader.epoch and not has:
        raise Violation(f"D17: {leader.key.id} adds {key.id}, which has nothing of its epoch")
