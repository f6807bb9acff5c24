"""The log: batches in, places out, flushes, cuts, rolls; and all of it against a list."""

from __future__ import annotations

import random
import struct
from bisect import bisect_left
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraftfast import limits
from kraftfast.errors import FlushFailed
from kraftfast.log.snapshots.log_start import delete_before
from kraftfast.record.batch import batch_at, batches
from tests.log.crash_disk import CrashDisk
from tests.log.kit import KIB, Home, append, batch, batch_of_size, content, fill, snapshot


@pytest.fixture
def home() -> Home:
    return Home("/replica", CrashDisk())


def restamped(data: bytes, **fields: int) -> bytes:
    """A batch with other header fields and the CRC that fits them."""
    places = {
        "base_offset": ">q0", "length": ">i8", "epoch": ">i12", "magic": ">b16",
        "attributes": ">h21",
        "last_offset_delta": ">i23", "count": ">i57",
    }  # fmt: skip
    made = bytearray(data)
    for name, value in fields.items():
        form, at = places[name][:2], int(places[name][2:])
        struct.pack_into(form, made, at, value)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


# --- what is taken and what is not ---


def test_a_leader_stamps_and_everything_else_is_kept(home: Home) -> None:
    log = home.open()
    one, two = batch([b"a", b"b"]), batch([b"c"])
    assert log.append(one, 3) and log.append(two, 5)
    stored = content(log)
    assert stored == restamped(one, epoch=3) + restamped(two, base_offset=2, epoch=5)
    assert (log.end_offset, log.last_epoch, log.epochs) == (3, 5, [(3, 0), (5, 2)])
    assert log.bytes_appended == len(stored) and log.fault == 0


GOOD = batch([b"one", b"two"])
BAD = {
    "nothing": b"",
    "a part of a header": GOOD[:60],
    "a part of a batch": GOOD[:-1],
    "two batches": GOOD * 2,
    "zeros": bytes(len(GOOD)),
    "another magic": restamped(GOOD, magic=1),
    "an unknown attribute": restamped(GOOD, attributes=0x80),
    "a control batch": restamped(GOOD, attributes=0x20),
    "a length below the header": restamped(GOOD, length=48),
    "a negative length": restamped(GOOD, length=-1),
    "a length beyond the bound": restamped(GOOD, length=limits.BATCH_BYTES_MAX),
    "no records": restamped(GOOD, count=0, last_offset_delta=-1),
    "a count that its bytes cannot hold": restamped(GOOD, count=1000, last_offset_delta=999),
    "a count beside the offsets": restamped(GOOD, count=2, last_offset_delta=2),
    "endless records, compressed": restamped(
        GOOD, attributes=1, count=2**31 - 1, last_offset_delta=2**31 - 2
    ),
    "a flipped bit": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
}


# covers: testEmptyAppendNotAllowed, KafkaRaftLogTest.testInvalidMemoryRecords
# covers: KafkaRaftClientFetchTest.testInvalidMemoryRecords, testMaxBatchSize
@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_is_not_taken_and_leaves_nothing(home: Home, name: str) -> None:
    log = home.open()
    fill(log, 2)
    before = content(log)
    with pytest.raises(ValueError):
        log.append(BAD[name], 1)
    assert log.copy(BAD[name] if name != "two batches" else BAD[name][:5], 1) == 0
    assert content(log) == before and log.end_offset == 2
    tail = bytes(log.active.file.view(log.active.position, log.active.prepared))
    assert tail == bytes(len(tail)), "what was copied is zeroed (D20)"
    assert log.append(GOOD, 1)


def test_the_leaders_own_control_batches(home: Home) -> None:
    log = home.open()
    with pytest.raises(ValueError):
        log.append(GOOD, 1, control=True)
    assert log.append(restamped(GOOD, attributes=0x20), 1, control=True)


# covers: testUnexpectedAppendOffset, testAppendRecordsWithHigherLeaderEpoch
# covers: testReplicationOfHigherPartitionLeaderEpoch
def test_a_follower_takes_what_follows_and_stops_at_the_first_that_does_not(home: Home) -> None:
    log = home.open()
    good = [batch([b"x"], base_offset=i, epoch=2) for i in range(6)]
    for wrong, taken, damaged in (
        (batch([b"x"], base_offset=4, epoch=2), 3, True),  # a gap
        (batch([b"x"], base_offset=2, epoch=2), 3, True),  # a repetition
        (batch([b"x"], base_offset=3, epoch=1), 3, True),  # an epoch back
        (batch([b"x"], base_offset=3, epoch=5), 3, True),  # an epoch ahead of the follower's own
        (good[3][:-2], 3, False),  # the end of an answer
        (good[3][:20], 3, False),
        (good[3][:-1] + b"!", 3, True),
    ):
        log = home.open() if home.recovered is None else log
        assert log.copy(b"".join(good[:3]) + wrong, 4) == taken * len(good[0])
        assert (log.damaged(), log.cut_off()) == (damaged, not damaged), log.fault_text()
        assert log.end_offset == 3
        log.truncate(0)
    assert log.copy(b"".join(good), 2) == len(b"".join(good)) and not log.damaged()
    assert log.copy(b"", 2) == 0


def test_a_full_log_takes_nothing_more_until_there_is_room(home: Home) -> None:
    log = home.open()
    count = 0
    while log.append(batch_of_size(1000), 1):
        count += 1
    assert log.end_offset == count == 32 and log.fault == 0
    answer = b"".join(batch_of_size(1000, base_offset=count + i, epoch=1) for i in range(3))
    assert log.copy(answer, 1) == 0 and not log.damaged() and not log.cut_off()
    append(log, batch_of_size(1000))


def test_relative_offsets_roll_in_time(home: Home) -> None:
    """Offsets outrun 31 bits long before bytes do: compressed batches of millions of records."""
    log = home.open()
    huge = limits.RECORDS_PER_BATCH_MAX
    dense = restamped(GOOD, attributes=4, count=huge, last_offset_delta=huge - 1)
    for _ in range(1100):
        append(log, dense)
    spans = [segment.end_offset - segment.base_offset for segment in log.segments]
    assert max(spans) <= 2**31 and len(spans) == 3 and sum(spans) == 1100 * huge
    home.kill()
    assert home.open().end_offset == 1100 * huge


# --- places ---


# covers: at-least-one-batch, testReadRecords
def test_places_of_whole_batches(home: Home) -> None:
    log = home.open()
    fill(log, 150, 1000)
    assert len(log.segments) == 3
    ends = [segment.end_offset for segment in log.segments]
    for offset in (-1, 150, 151):
        assert log.locate(offset, 10_000) is None
    for offset in range(150):
        end = next(end for end in ends if offset < end)
        for bytes_max, most in ((0, 1), (999, 1), (2500, 2), (10**9, 1000)):
            segment, position, length = log.locate(offset, bytes_max)
            count = min(most, end - offset)
            found = list(batches(bytes(segment.file.view(position, position + length))))
            assert [one.base_offset for one in found] == list(range(offset, offset + count))
        found = log.locate(offset, 10**9, offset + 1)
        assert found is not None and found[2] == 1000
        assert log.locate(offset, 10**9, offset) is None, "nothing beyond the bound"
    assert log.segment_of(150) is log.active


# --- flushes ---


def test_many_segments_take_more_than_one_flush(home: Home) -> None:
    log = home.open(segment_bytes=4 * KIB, stride_bytes=4 * KIB)
    fill(log, 60, 1300)
    assert len(log.segments) == 20
    reached = []
    for _ in range(2):
        log.begin_flush()
        log.sync_files()
        reached.append(log.end_flush())
    assert reached == [21, 45], "the oldest first, eight in a job, the names among them"
    assert log.flush() == 60, "all that is left"
    home.kill()
    assert home.open(segment_bytes=4 * KIB, stride_bytes=4 * KIB).flushed_end_offset == 60


def test_a_flush_says_all_that_is_on_disk(home: Home) -> None:
    log = home.open()
    fill(log, 10)
    assert log.flushed_end_offset == 0
    assert log.begin_flush() == 10
    fill(log, 5)
    log.sync_files()
    assert log.end_flush() == 10, "not what came meanwhile (D1)"
    assert log.flush() == 15
    log.truncate(12)
    assert log.flushed_end_offset == 12
    home.close()
    assert home.open().flushed_end_offset == 12


def test_after_a_cut_of_unflushed_records_the_next_flush_says_so(home: Home) -> None:
    log = home.open()
    fill(log, 100, 1500)
    log.truncate(70)
    assert log.flushed_end_offset == 0 and log.flush() == 70


# --- everything against a list ---


class Against(RuleBasedStateMachine):
    """A log beside the list of batches that it should hold."""

    @initialize()
    def begin(self) -> None:
        self.home = Home("/replica", CrashDisk())
        self.log: Any = self.home.open(segment_bytes=16 * KIB, stride_bytes=8 * KIB)
        self.stored: list[bytes] = []
        self.start = self.epoch = self.flushed = self.snapshot = 0
        self.snapshots: list[int] = []
        self.flushing: int | None = None

    def end(self) -> int:
        return self.log.end_offset

    def next_batch(self, size: int, extra: int = 0) -> bytes:
        values = [bytes(size)] + [b"e"] * extra
        return batch(values, base_offset=self.log.end_offset, epoch=self.epoch)

    @rule(size=st.sampled_from([0, 30, 900, 5000]), extra=st.integers(0, 3))
    def append(self, size: int, extra: int) -> None:
        one = self.next_batch(size, extra)
        append(self.log, restamped(one, base_offset=77, epoch=0), self.epoch)
        self.stored.append(one)

    @rule(count=st.integers(1, 4), keep=st.integers(0, 200), flip=st.booleans())
    def copy(self, count: int, keep: int, flip: bool) -> None:
        """Whole batches, then a part of one, or one with a bit flipped."""
        parts = []
        for i in range(count):
            parts.append(batch([b"copied"], base_offset=self.end() + i, epoch=self.epoch))
        answer = b"".join(parts)
        answer += bytes([answer[-1] ^ 1]) + answer[:keep] if flip else answer[:keep]
        good = parts
        if flip:
            answer = b"".join(parts[:-1]) + parts[-1][:-1] + bytes([parts[-1][-1] ^ 1])
            good = parts[:-1]
        taken = 0
        while taken < len(b"".join(good)):
            taken += self.log.copy(answer[taken:], self.epoch)
            self.log.tend(0)
        self.log.copy(answer[taken:], self.epoch)
        self.stored += good

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def tend(self) -> None:
        self.log.tend(random.Random(len(self.stored)).randint(0, 10**6))

    @rule()
    def retire(self) -> None:
        self.log.retire()

    @precondition(lambda self: self.flushing is None)
    @rule()
    def begin_flush(self) -> None:
        self.flushing = self.log.begin_flush()

    @precondition(lambda self: self.flushing is not None)
    @rule()
    def end_flush(self) -> None:
        self.log.sync_files()
        assert self.log.end_flush() == self.flushing
        self.flushed, self.flushing = self.log.flushed_end_offset, None

    @precondition(lambda self: self.flushing is None)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        least = bisect_left(self.offsets(), self.snapshot)
        keep = data.draw(st.integers(least, len(self.stored)))
        cut = self.offsets()[keep]
        self.stored = self.stored[:keep]
        self.log.truncate(cut)
        self.flushed = min(self.flushed, cut)
        self.epoch += 1

    @precondition(lambda self: self.flushing is None)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        known = self.offsets()
        ends = [each for each in known[1:] if self.snapshot < each <= self.flushed]
        if not ends:
            return
        self.snapshot = data.draw(st.sampled_from(ends))
        epoch = batch_at(self.stored[known.index(self.snapshot) - 1]).leader_epoch
        snapshot(self.home, self.snapshot, epoch)
        self.snapshots.append(self.snapshot)
        delete_before(self.log, self.snapshot)
        assert self.log.log_start_offset == self.snapshot
        start = self.log.segments[0].base_offset
        assert self.start <= start <= self.snapshot
        self.stored, self.start = self.stored[known.index(start) :], start

    @precondition(lambda self: self.flushing is None)
    @rule(orderly=st.booleans())
    def restart(self, orderly: bool) -> None:
        if orderly:
            self.home.close()
        else:
            self.home.kill()
        self.log = self.home.open(segment_bytes=16 * KIB, stride_bytes=8 * KIB)
        assert self.home.recovered.cut_bytes == 0, "nothing was torn"
        self.flushed = self.log.flushed_end_offset
        assert self.flushed == self.log.end_offset

    def offsets(self) -> list[int]:
        """Where each batch begins, and where the last one ends."""
        found = [self.start]
        for one in batches(b"".join(self.stored)):
            found.append(one.end_offset)
        return found

    @invariant()
    def same(self) -> None:
        log = self.log
        assert content(log) == b"".join(self.stored)
        assert (log.segments[0].base_offset, log.end_offset) == (self.start, self.offsets()[-1])
        kept = [each for each in self.snapshots if each >= self.start]
        assert log.log_start_offset in (kept if self.start else [0, *kept])
        assert log.log_start_offset <= log.flushed_end_offset <= log.end_offset
        assert log.flushed_end_offset >= self.flushed
        for segment in log.segments:
            assert segment.flushed_position <= segment.position <= segment.dirty_end
            assert segment.position <= segment.prepared <= segment.capacity
        epochs: list[tuple[int, int]] = []
        for one in batches(b"".join(self.stored)):
            if not epochs or epochs[-1][0] != one.leader_epoch:
                epochs.append((one.leader_epoch, one.base_offset))
        assert log.epochs == epochs
        for offset, stored in list(zip(self.offsets(), self.stored))[-3:]:
            if offset < log.log_start_offset:
                assert log.locate(offset, 0) is None
                continue
            segment, position, length = log.locate(offset, 0)
            assert bytes(segment.file.view(position, position + length)) == stored


Against.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestAgainst = Against.TestCase


def test_after_a_failed_flush_nothing_is_flushed_any_more(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    home.disk.fail_syncs_from = home.disk.syncs
    for _ in range(3):
        with pytest.raises(FlushFailed):
            log.flush()
        home.disk.fail_syncs_from = -1
    assert log.flushed_end_offset == 0 and log.failed is not None
    log.close()
