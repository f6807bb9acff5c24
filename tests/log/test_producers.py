"""Idempotent producers as the log knows them: against a plain model that replays the log."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast import limits
from kraftfast.errors import CorruptBatch, ErrorCode
from kraftfast.log.idempotence.producer_records import (
    NAME_TAG,
    ProducerName,
    from_tags,
    name_batch,
    to_tags,
)
from kraftfast.log.idempotence.producers import Producers
from kraftfast.record.control import SnapshotFooter, control_batch
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from tests.log import kit
from tests.log.producer_model import SPACE, Appended, Known, Named, judge, one_by_one, replay

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
PRODUCERS_MAX = 3


def data_batch(id: int, epoch: int, sequence: int, records: int = 1, size: int = 5) -> bytes:
    """A batch as an idempotent producer sends it."""
    made = [Record(i, kit.TIMESTAMP, None, b"v" * size) for i in range(records)]
    return encode_batch(made, producer_id=id, producer_epoch=epoch, base_sequence=sequence)


def try_append(log: Any, data: bytes, epoch: int = 1, control: bool = False) -> ErrorCode:
    """Append as the leader does, waiting for room; Kafka's code where it is refused."""
    done: list[bool] = []
    kit.tend_until(
        log, lambda: done.append(log.append(data, epoch, control)) or done[-1] or log.refusal
    )
    return ErrorCode(log.refusal)


class Twin:
    """A log, and beside it everything that it holds of producers."""

    def __init__(self, home: kit.Home, **options: Any) -> None:
        self.home, self.options = home, {"producers_max": PRODUCERS_MAX, **options}
        self.log = home.open(**self.options)
        self.entries: list[Appended | Named] = []
        self.begun = self.log.log_start_offset

    @property
    def known(self) -> dict[int, Known]:
        return replay(self.entries, self.options["producers_max"])

    def append(self, id: int, epoch: int, sequence: int, records: int = 1, size: int = 5) -> Any:
        """Append one batch; what the log answers is what the model says."""
        batch = Appended(id, epoch, sequence, records)
        error, offsets, remembered = judge(self.known, batch)
        end_offset = self.log.end_offset
        assert try_append(self.log, data_batch(id, epoch, sequence, records, size)) == error
        producers = self.log.producers
        if error is NONE:
            self.entries.append(batch._replace(offset=end_offset))
            end_offset += records
        elif error is DUPLICATE:
            told = producers.original_offset
            assert told >= 0 or not remembered
            assert told < 0 or offsets == list(range(told, told + records))
            assert producers.original_end > max(offsets)
        assert self.log.end_offset == end_offset
        return error

    def name(self, name: str, id: int, epoch: int, resumes: bool) -> None:
        offset = self.log.end_offset
        record = ProducerName(id, epoch, resumes, name)
        data = name_batch(record, timestamp=kit.TIMESTAMP, leader_epoch=1)
        assert try_append(self.log, data, control=True) is NONE
        self.entries.append(Named(id, epoch, resumes, name, offset))

    def cut(self, end_offset: int) -> None:
        self.log.truncate(end_offset)
        self.entries = [each for each in self.entries if each.offset < end_offset]

    def reopen(self, clean: bool) -> None:
        self.home.close() if clean else self.home.kill()
        self.log = self.home.open(**self.options)

    def check(self) -> None:
        """The log knows what the model does, and its encoded state says the same."""
        again = Producers(self.options["producers_max"])
        again.load(0, self.log.producers.encode())
        for producers in (self.log.producers, again):
            assert len(producers) == len(self.known)
            assert one_by_one(producers.forgotten) == self.known.forgotten
            assert self.known.name_lost < producers.names_since or self.known.name_lost < 0
            for known in self.known.values():
                self.check_one(producers.get(known.id), known)
                if known.name is not None:
                    assert producers.named(known.name) is producers.get(known.id)
        assert again.encode() == self.log.producers.encode()

    def check_one(self, found: Any, known: Known) -> None:
        assert (found.id, found.epoch, found.name) == (known.id, known.epoch, known.name)
        assert found.touched_offset == known.touched
        assert found.records == sum(each.records for each in known.batches)
        assert (found.last_sequence + 1) % SPACE == known.next_sequence
        assert found.last_offset == (known.batches[-1].end - 1 if known.batches else -1)
        held = {
            (sequence + i) % SPACE: offset + i
            for offset, sequence, records in found.remembered()
            for i in range(records)
        }
        for batch in known.batches[-limits.PRODUCER_BATCHES :]:
            assert [held[(batch.sequence + i) % SPACE] for i in range(batch.records)] == list(
                range(batch.offset, batch.end)
            )
        assert len(found.remembered()) <= limits.PRODUCER_BATCHES


@contextmanager
def a_twin(path: Path, **options: Any) -> Iterator[Twin]:
    home = kit.Home(path / "1")
    twin = Twin(home, **options)
    try:
        yield twin
    finally:
        home.kill()


# --- single rules -----------------------------------------------------------------------------


def test_a_batch_comes_once(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        assert twin.append(7, 0, 0, 3) is NONE
        assert twin.append(7, 0, 3, 2) is NONE
        assert twin.append(7, 0, 0, 3) is DUPLICATE
        assert (twin.log.producers.original_offset, twin.log.producers.original_end) == (0, 3)
        assert twin.append(7, 0, 3, 2) is DUPLICATE
        assert (twin.log.producers.original_offset, twin.log.producers.original_end) == (3, 5)
        assert twin.append(7, 0, 5) is NONE


def test_a_gap_and_half_a_duplicate_are_refused(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        twin.append(7, 0, 0, 3)
        assert twin.append(7, 0, 4) is OUT_OF_ORDER
        assert twin.append(7, 0, 2, 2) is OUT_OF_ORDER
        assert twin.append(7, 0, SPACE - 1, 2) is OUT_OF_ORDER, "before its first one"
        twin.check()


def test_an_unknown_producer_begins_with_0(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        assert twin.append(7, 0, 1) is UNKNOWN
        assert twin.append(7, 3, 0) is NONE
        twin.check()


def test_a_new_epoch_begins_with_0_and_fences_the_old(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        twin.append(7, 0, 0, 3)
        assert twin.append(7, 1, 3) is OUT_OF_ORDER
        assert twin.append(7, 1, 0) is NONE
        assert twin.append(7, 0, 3) is FENCED
        assert twin.append(7, 0, 0, 3) is FENCED, "a duplicate too: who knows what it is by now"
        twin.check()


@pytest.mark.parametrize("fields", [(7, 0, -1), (7, -1, 0), (-2, 0, 0)])
def test_half_a_producer_is_refused(tmp_path: Path, fields: tuple[int, int, int]) -> None:
    with a_twin(tmp_path) as twin:
        assert try_append(twin.log, data_batch(*fields)) is ErrorCode.INVALID_RECORD
        assert twin.log.end_offset == 0 and len(twin.log.producers) == 0


def test_sequences_go_round(tmp_path: Path) -> None:
    """2^31 records later comes 0. What stands in a copied log is so, whatever came before."""
    with a_twin(tmp_path) as twin:
        first = data_batch(7, 0, SPACE - 3, 2)
        assert twin.log.copy(stamped(first, 0), 1)
        twin.entries.append(Appended(7, 0, SPACE - 3, 2, 0))
        assert twin.append(7, 0, SPACE - 1, 3) is NONE
        assert twin.append(7, 0, 2) is NONE
        assert twin.append(7, 0, SPACE - 1, 3) is DUPLICATE
        assert twin.log.producers.original_offset == 2
        twin.check()


def stamped(data: bytes, offset: int, epoch: int = 1) -> bytes:
    return struct.pack(">q", offset) + data[8:12] + struct.pack(">i", epoch) + data[16:]


def test_older_than_what_is_remembered_is_still_a_duplicate(tmp_path: Path) -> None:
    """Kafka refuses the sixth last batch; a client that replays more must not fail, nor double."""
    with a_twin(tmp_path) as twin:
        for sequence in range(100):
            twin.append(7, 0, sequence)
            twin.append(8, 0, sequence)  # between them: nothing melts together
        producers = twin.log.producers
        assert len(producers.get(7).remembered()) == limits.PRODUCER_BATCHES
        for sequence in range(100):
            assert twin.append(7, 0, sequence) is DUPLICATE
            kept = sequence >= 100 - limits.PRODUCER_BATCHES
            assert producers.original_offset == (2 * sequence if kept else -1)
            assert producers.original_end > 2 * sequence
        twin.check()


def test_batches_that_follow_each_other_melt_together(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        for sequence in range(0, 3000, 3):
            twin.append(7, 0, sequence, 3)
        assert twin.log.producers.get(7).remembered() == [(0, 0, 3000)]
        twin.check()


def test_the_least_recent_producer_goes(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        for id in (1, 2, 3):
            twin.append(id, 0, 0)
        twin.append(1, 0, 1)
        twin.append(4, 0, 0)  # 2 is the one that was silent longest
        assert twin.append(2, 0, 1) is UNKNOWN
        assert twin.append(1, 0, 2) is NONE
        twin.check()


def test_a_name_keeps_its_id_and_fences(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        twin.name("loader", 7, 0, False)
        twin.append(7, 0, 0, 3)
        twin.name("loader", 7, 1, True)
        assert twin.append(7, 0, 3) is FENCED
        assert twin.append(7, 1, 0, 3) is DUPLICATE, "its sequences go on"
        assert twin.append(7, 1, 3) is NONE
        twin.name("loader", 7, 2, False)
        assert twin.append(7, 2, 4) is OUT_OF_ORDER
        assert twin.append(7, 2, 0) is NONE
        twin.name("loader", 9, 0, True)  # its epochs ran out
        assert twin.append(7, 2, 1) is UNKNOWN
        assert twin.log.producers.named("loader").id == 9
        assert twin.append(9, 0, 0) is DUPLICATE
        assert twin.append(9, 0, 1) is NONE
        twin.check()


def test_who_has_no_name_goes_first(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        twin.name("a", 1, 0, True)
        for id in (2, 3, 4, 5):
            twin.append(id, 0, 0)
        assert twin.append(2, 0, 1) is UNKNOWN
        twin.name("b", 8, 0, True)
        twin.name("c", 9, 0, True)  # nobody is left who has none
        assert twin.append(6, 0, 0) is NONE
        assert twin.log.producers.named("a") is None
        twin.check()


def test_what_is_no_name_is_skipped(tmp_path: Path) -> None:
    """A control record of anybody's cannot stop a replica."""
    with a_twin(tmp_path) as twin:
        for value in (
            b"",
            b"x",
            struct.pack(">qh?", -1, 0, False) + b"a",
            bytes(11),
            struct.pack(">qh?", 1, 0, False) + b"\xff",
            bytes(11) + b"n" * 256,
        ):
            footer = SnapshotFooter(((NAME_TAG, value),))
            data = control_batch([footer], timestamp=0, leader_epoch=1)
            assert try_append(twin.log, data, control=True) is NONE
        assert len(twin.log.producers) == 0


# --- cuts, restarts, snapshots ------------------------------------------------------------------


def test_a_cut_undoes_what_was_appended(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        twin.append(7, 0, 0, 3)
        twin.append(7, 0, 3, 2)
        twin.name("loader", 8, 0, False)
        twin.cut(3)
        assert twin.log.producers.named("loader") is None
        assert twin.append(7, 0, 5) is OUT_OF_ORDER
        assert twin.append(7, 0, 3, 2) is NONE, "the same batch, and now for good"
        twin.check()


def test_a_cut_brings_back_who_had_gone(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        for id in (1, 2, 3, 4):
            twin.append(id, 0, 0)
        twin.cut(3)
        assert twin.append(1, 0, 1) is NONE
        twin.check()


def test_a_cut_over_many_segments(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        for sequence in range(40):
            twin.append(7, 0, sequence, 1, 20_000)
        assert len(twin.log.segments) > 8
        for end_offset in (39, 30, 17, 2, 0):
            twin.cut(end_offset)
            twin.check()
            twin.append(8, 0, 0)
            twin.check()
            twin.cut(end_offset)


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_them_again(tmp_path: Path, clean: bool) -> None:
    with a_twin(tmp_path) as twin:
        for sequence in range(30):
            twin.append(7 + sequence % 2, 0, sequence // 2, 1, 9000)
        twin.name("loader", 8, 1, True)
        twin.reopen(clean)
        twin.check()
        twin.cut(11)
        twin.check()


def test_a_follower_knows_what_its_leader_does(tmp_path: Path) -> None:
    with a_twin(tmp_path / "a") as leader, a_twin(tmp_path / "b") as follower:
        for sequence in range(20):
            leader.append(sequence % 5, 0, sequence // 5)
        leader.name("loader", 3, 1, True)
        assert follower.log.copy(kit.content(leader.log), 1) == len(kit.content(leader.log))
        assert follower.log.producers.encode() == leader.log.producers.encode()


def test_a_snapshot_carries_the_state_as_of_its_end(tmp_path: Path) -> None:
    with a_twin(tmp_path / "a") as twin, a_twin(tmp_path / "b") as later:
        for sequence in range(30):
            twin.append(7 + sequence % 2, 0, sequence // 2, 1, 9000)
        twin.name("loader", 9, 0, False)
        for end_offset in (20, 3, 28, 0):
            state = twin.log.producers.freeze(end_offset, twin.log.segments)
            assert state == replay_state(twin.entries, end_offset)
        state = twin.log.producers.freeze(20, twin.log.segments)
        twin.cut(25)
        twin.check()
        later.log.producers.load(0, from_tags(to_tags(state)))
        assert later.log.producers.encode() == state


def test_what_one_snapshot_read_the_next_one_does_not_read_again(tmp_path: Path) -> None:
    """The loop waits while headers are read: a segment may have a million of them."""
    with a_twin(tmp_path) as twin:
        for sequence in range(300):
            twin.append(7 + sequence % 2, 0, sequence // 2)
        producers, segments = twin.log.producers, twin.log.segments
        producers.freeze(200, segments)
        segment, position, _ = twin.log.locate(200, 1)
        assert segment.base_offset == 0 and len(segments) == 1
        read = os.pread(segment.file.fd, position - 8192, 0)  # its index leads to what is behind
        os.pwrite(segment.file.fd, bytes(len(read)), 0)
        assert producers.freeze(280, segments) == replay_state(twin.entries, 280)
        assert producers.freeze(200, segments) == replay_state(twin.entries, 200)
        os.pwrite(segment.file.fd, read, 0)
        twin.cut(250)
        twin.check()
        assert producers.freeze(250, segments) == replay_state(twin.entries, 250)


def replay_state(entries: list[Any], end_offset: int) -> bytes:
    """The encoded state of a log that ends there, made the long way."""
    found = replay([e for e in entries if e.offset < end_offset], PRODUCERS_MAX)
    return _encoded(found) if found else b""


def _encoded(found: dict[int, Known]) -> bytes:
    """The format, written out a second time."""

    def number(value: int) -> bytes:
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    ordered = sorted(found.values(), key=lambda each: each.touched)
    parts, before = [number(1), number(len(ordered))], 0
    for each in ordered:
        name = (each.name or "").encode()
        parts += [number(each.id), number(each.epoch), number(each.touched - before)]
        parts += [number(len(name)), name]
        before, held = each.touched, each.batches[-limits.PRODUCER_BATCHES :]
        parts.append(number(sum(batch.records for batch in each.batches)))
        if held:
            parts += [number((each.next_sequence - 1) % SPACE)]
            parts += [number(each.touched - held[-1].end + 1), number(len(held))]
            follower = held[-1].end
            for batch in reversed(held):
                parts += [number(batch.records), number(follower - batch.end)]
                follower = batch.offset
    return b"".join(parts)


def test_loaded_state_makes_skipped_batches_count_once(tmp_path: Path) -> None:
    """A log that reaches back behind its snapshot: only what comes after it is noted."""
    with a_twin(tmp_path / "a") as twin:
        for sequence in range(10):
            twin.append(7, 0, sequence)
        state = twin.log.producers.freeze(6, twin.log.segments)
        found = Producers(PRODUCERS_MAX)
        found.load(6, state)
        for segment in twin.log.segments:
            found.replay(segment, segment.base_offset, 10)
        assert found.encode() == twin.log.producers.encode()


def test_the_largest_state_fits_a_footer() -> None:
    """Whatever 4096 producers did: 64 stretches each, far apart, with the longest names."""
    worst = {}
    for number in range(limits.PRODUCERS_MAX):
        base = 2**61 + number * 2**46
        held = [Appended(0, 0, i, 1, base + i * 2**39) for i in range(limits.PRODUCER_BATCHES)]
        name = f"{number:04}".ljust(limits.PRODUCER_NAME_BYTES_MAX, "n")
        known = Known(2**63 - 1 - number, 32767, name, held[-1].end - 1, held)
        worst[known.id] = known
    state = _encoded(worst)
    producers = Producers(limits.PRODUCERS_MAX)
    producers.load(0, state)
    assert producers.encode() == state
    footer = SnapshotFooter(to_tags(state))
    assert len(control_batch([footer], timestamp=0, leader_epoch=1)) < limits.BATCH_BYTES_MAX
    assert from_tags((*to_tags(state), (3, b"x"), (10003, b"y"))) == state


@given(st.binary(max_size=60))
def test_any_bytes_are_a_state_or_corrupt(data: bytes) -> None:
    producers = Producers(4)
    try:
        producers.load(0, b"\x01" + data)
    except CorruptBatch:
        assert len(producers) == 0
    else:
        again = Producers(4)
        again.load(0, producers.encode())
        assert again.encode() == producers.encode()


# --- any course of events -----------------------------------------------------------------------

IDS = st.integers(1, 5)
STEPS = st.one_of(
    st.tuples(st.just("append"), IDS, st.integers(0, 2), st.integers(-6, 3), st.integers(1, 3)),
    st.tuples(st.just("append"), IDS, st.just(0), st.just(0), st.integers(1, 40)),
    st.tuples(st.just("name"), st.sampled_from("ab"), IDS, st.integers(0, 2), st.booleans()),
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("fill"), st.integers(1, 3)),
    st.tuples(st.just("open"), st.booleans()),
)


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=40))
def test_any_course_of_events(tmp_path_factory: Any, steps: list[Any]) -> None:
    with a_twin(tmp_path_factory.mktemp("log")) as twin:
        for what, *values in steps:
            if what == "append":
                id, epoch, relative, records = values
                known = twin.known.get(id)
                begin = known.next_sequence if known else 0
                twin.append(id, epoch, max(0, begin + relative), records)
            elif what == "name":
                name, id, epoch, resumes = values
                twin.name(name, id, epoch, resumes)
            elif what == "cut":
                places = [each.offset for each in twin.entries][-values[0] :]
                if values[0] and places:
                    twin.cut(places[0])
            elif what == "fill":
                kit.fill(twin.log, values[0], 30_000)
            else:
                twin.reopen(*values)
            twin.check()
