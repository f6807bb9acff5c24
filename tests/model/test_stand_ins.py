"""What the search has in place of log and ring does what the compiled ones do."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import effects as fx
from kraftfast.core.messages import FetchResponse
from kraftfast.errors import MalformedFrame
from kraftfast.node.translation.diverging import check_cut
from kraftfast.record.control import control_batch
from kraftfast.types import KRaftVoters, OffsetAndEpoch, ReplicaKey, VoterSet
from tests.core.disk import Message, Record, splits_batch, voter_of
from tests.core.host import Host
from tests.core.world import World
from tests.log.crash_disk import CrashDisk, cuts
from tests.log.kit import Home, append, batch
from tests.model.batches import ends_connection
from tests.ring.test_spsc import ring

SEEDS = range(12)
HOME = "/r"


def voters_of(number: int) -> KRaftVoters:
    """A voter set that tells which it is."""
    return KRaftVoters(VoterSet([voter_of(ReplicaKey(number, b"d" * 16))]))


class Both:
    """The log of the search and the compiled one, through the same operations."""

    def __init__(self, home: Home, chance: Random) -> None:
        self.home, self.chance = home, chance
        self.host = Host(World(1), 1)
        self.host.disk.quorum_state = None
        self.log: Any = home.open()
        self.epoch = 1
        self.batches = 0
        self.begun = False

    @property
    def records(self) -> list[Record]:
        return self.host.disk.records

    def made(self, epoch: int, controls: float = 0.0) -> list[Record]:
        """One batch; how likely it is one that changes the voters."""
        self.batches += 1
        if self.chance.random() < controls:
            return [Record(epoch, f"{self.batches}", voters_of(self.batches))]
        size = self.chance.choice((1, 1, 2, 3))
        number = self.batches if size > 1 else 0
        return [Record(epoch, f"{self.batches}.{i}", None, number) for i in range(size)]

    def bytes_of(self, records: list[Record], offset: int) -> bytes:
        epoch, control = records[0].epoch, records[0].control
        if control is not None:
            return control_batch((control,), timestamp=0, base_offset=offset, leader_epoch=epoch)
        values = [each.value.encode() for each in records]
        return batch(values, base_offset=offset, epoch=epoch)

    def append(self) -> None:
        """As a leader."""
        records = self.made(self.epoch)
        append(self.log, self.bytes_of(records, len(self.records)), self.epoch)
        self.records.extend(records)

    def fetched(self) -> tuple[Message, bytes, int]:
        """Batches of some epochs, of which those that fit are taken; the highest that fits."""
        epoch_max = self.epoch + self.chance.choice((0, 0, 1))
        epoch, offset, data, fetched = self.epoch, len(self.records), b"", []
        base = offset + self.chance.choice((0, 0, 0, 0, 1))  # one does not follow
        for _ in range(self.chance.randrange(1, 4)):
            epoch = max(epoch + self.chance.choice((0, 0, 0, 1, 2, -1)), 1)
            records = self.made(epoch, controls=0.2)
            data += self.bytes_of(records, base + len(fetched))
            fetched += records
        return Message(2, 1, 0, None, False, tuple(fetched), base), data, epoch_max

    def fetch(self) -> None:
        """As a follower."""
        answer, data, epoch_max = self.fetched()
        written = fx.WriteFetched(answer, epoch_max, len(self.records))
        self.host.copy_fetched(written)
        self.log.copy(data, epoch_max)
        self.epoch = max(self.epoch, self.records[-1].epoch if self.records else 0)

    def truncate(self) -> None:
        ends = [e for e in range(len(self.records) + 1) if not splits_batch(self.records, e)]
        end = self.chance.choice(ends[-4:])
        self.log.truncate(end)
        self.host.truncate_log(end)

    def begin_flush(self) -> None:
        if not self.begun:
            self.begun = True
            self.host.world.held_disks.add(1)
            self.host.begin_flush()
            self.log.begin_flush()

    def end_flush(self) -> None:
        if self.begun:
            self.begun = False
            self.log.sync_files()
            self.log.end_flush()
            self.host.finish_flush()

    def epochs(self) -> None:
        """A leader begins one."""
        self.epoch += 1

    def step(self) -> None:
        kinds = (self.append, self.append, self.fetch, self.truncate, self.begin_flush,
                 self.end_flush, self.end_flush, self.epochs)  # fmt: skip
        self.chance.choice(kinds)()
        self.compare()

    def compare(self) -> None:
        disk = self.host.disk
        assert self.log.end_offset == len(self.records)
        assert self.log.flushed_end_offset == disk.flushed
        assert [tuple(each) for each in self.log.epochs] == list(disk.trail().entries)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_power_cut_leaves(seed: int) -> None:
    """Whatever the compiled log comes to is what the other loses with some unflushed suffix."""
    disk = CrashDisk()
    home = Home(HOME, disk)
    home.persist()
    both = Both(home, Random(seed))
    for _ in range(25):
        both.step()
    for after in cuts(disk, seed):
        log = Home(HOME, after).open()
        there = deepcopy(both.host.disk)
        assert log.end_offset >= there.flushed
        there.lose_power(log.end_offset - there.flushed)
        assert log.end_offset == len(there.records)
        assert [tuple(each) for each in log.epochs] == list(there.trail().entries)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_cannot_be_read_goes_by_whole_batches(seed: int, tmp_path: Path) -> None:
    """As many records as were asked for, and the rest of the batch that they are in."""
    both = Both(Home(tmp_path / "r"), Random(seed))
    while len(both.records) < 20:
        both.append()
    whole, more = list(both.records), 0
    ends = [end for end in range(len(whole) + 1) if not splits_batch(whole, end)]
    for count in range(1, len(whole) + 1):
        disk = deepcopy(both.host.disk)
        disk.flushed = ends[-2]
        disk.lose_flushed(count)
        wanted = max((end for end in ends if end <= ends[-2] - count), default=0)
        assert disk.records == whole[:wanted] and disk.flushed == wanted
        more += wanted < ends[-2] - count
    assert more


@pytest.mark.parametrize("seed", SEEDS)
def test_where_a_diverging_offset_may_cut(seed: int, tmp_path: Path) -> None:
    """The batches that the search asks are those of the log's files."""
    both = Both(Home(tmp_path / "r"), Random(seed))
    while len(both.records) < 20:
        both.append()
    inside = 0
    for offset in range(len(both.records) + 1):
        core: Any = SimpleNamespace(truncation_offset=lambda diverging: diverging.offset)
        response = FetchResponse(diverging=OffsetAndEpoch(offset, both.epoch))
        try:
            check_cut(core, both.log, response)
            ends = False
        except MalformedFrame:
            ends = True
        assert ends_connection(core, both.host.disk, response) == ends
        assert ends == splits_batch(both.records, offset)
        inside += ends
    assert inside


@pytest.mark.parametrize("seed", SEEDS)
def test_a_channel_is_a_ring(seed: int) -> None:
    """In order, each once, and nothing of it when the link was made anew."""
    chance = Random(seed)
    channel: tuple[tuple[int, bytes], ...] = ()
    out, inbox = ring()
    for number in range(300):
        kind = chance.choice(("send", "send", "receive", "receive", "cut"))
        if kind == "send":
            message = (1 + number % 100, bytes([number % 256]) * chance.randrange(100))
            if out.send(*message):
                out.publish()
                channel = (*channel, message)
        elif kind == "receive":
            found = inbox.receive()
            inbox.publish_tail()
            assert found == (channel[0] if channel else None)
            channel = channel[1:]
        elif chance.random() < 0.1:
            (out, inbox), channel = ring(), ()
