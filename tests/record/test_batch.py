"""Headers, views and the deep check: every fault by name, alike in the codec and its twin."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from crc32c import crc32c

from kraftfast import errors, limits
from kraftfast.record import batch, columns, control, pure, shapes
from kraftfast.record.batch import BatchView
from kraftfast.record.shapes import CONTROL, LOG_APPEND_TIME, Codec, Fault, Record

READERS = pytest.mark.parametrize("reader", [batch, pure], ids=["compiled", "pure"])

RECORDS = [
    Record(7, 1000, None, b"first"),
    Record(8, 1003, b"key", b"second", (("h", b"1"), ("null", None))),
    Record(9, 998, b"", None),
]
GOOD = pure.encode_batch(RECORDS, leader_epoch=3)
PLAIN = pure.encode_batch(pure.values_to_records([b"a", b"bc"], 1000), leader_epoch=3)


def with_field(data: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one header field replaced, and its CRC made to fit again."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def with_body(body: bytes, count: int = 1, attributes: int = 0) -> bytes:
    """A batch around these bytes of records, CRC and length right."""
    header = struct.pack(">hiqqqhii", attributes, count - 1, 5, 5, -1, -1, -1, count)
    crc = crc32c(header + body)
    return struct.pack(">qiibI", 0, 49 + len(body), 3, 2, crc) + header + body


def record(*fields: int | bytes, length: int | None = None) -> bytes:
    """A record of these fields (ints as varints), framed by its length or by another one."""
    body = bytearray(1)
    for field in fields:
        if isinstance(field, int):
            pure.put_varint(body, field)
        else:
            body += field
    framed = bytearray()
    pure.put_varint(framed, len(body) if length is None else length)
    return bytes(framed + body)


def one(value: bytes = b"v") -> bytes:
    return record(0, 0, -1, len(value), value, 0)


# --- what is read from a good batch ---


@READERS
def test_fields_of_a_batch(reader: ModuleType) -> None:
    found = reader.batch_at(b"pad" + GOOD + b"more", 3)
    assert (found.position, found.size, bytes(found.data)) == (3, len(GOOD), GOOD)
    assert (found.base_offset, found.last_offset, found.end_offset) == (7, 9, 10)
    assert (found.leader_epoch, found.record_count, found.crc_ok()) == (3, 3, True)
    assert (found.base_timestamp, found.max_timestamp) == (1000, 1003)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, -1)
    assert (found.codec, found.is_control, found.is_transactional) == (Codec.NONE, False, False)
    assert found.crc == crc32c(GOOD[21:])
    assert list(found.records()) == RECORDS


@READERS
def test_attributes(reader: ModuleType) -> None:
    data = pure.encode_batch(RECORDS, transactional=True, producer_id=9, producer_epoch=2)
    found = reader.batch_at(data)
    assert (found.is_transactional, found.producer_id, found.producer_epoch) == (True, 9, 2)
    appended = with_field(GOOD, 21, ">h", LOG_APPEND_TIME)
    assert {each.timestamp for each in reader.batch_at(appended).records()} == {1003}


@READERS
def test_a_record_keeps_bytes_that_are_no_utf8(reader: ModuleType) -> None:
    raw = record(0, 0, -1, 0, 1, 2, b"\xff\xfe", -1)
    (found,) = reader.batch_at(with_body(raw)).records()
    assert found.headers == (("\udcff\udcfe", None),)
    assert pure.encode_batch([found], leader_epoch=3)[61:] == raw


@READERS
def test_batches_in_order(reader: ModuleType) -> None:
    data = GOOD + PLAIN
    assert [found.position for found in reader.batches(data)] == [0, len(GOOD)]
    assert [found.position for found in reader.batches(data, len(GOOD))] == [len(GOOD)]
    assert [found.position for found in reader.batches(data, 0, len(GOOD))] == [0]
    assert list(reader.batches(b"")) == []


@READERS
@pytest.mark.parametrize("cut", [1, 60, 61, len(PLAIN) - 1])
def test_a_batch_that_is_cut_off(reader: ModuleType, cut: int) -> None:
    data = GOOD + PLAIN[:cut]
    assert [found.position for found in reader.batches(data, partial=True)] == [0]
    with pytest.raises(errors.CorruptBatch) as refused:
        list(reader.batches(data))
    assert refused.value.position == len(GOOD)
    with pytest.raises(errors.CorruptBatch, match="magic"):  # partial excuses nothing else
        list(reader.batches(with_field(GOOD, 16, ">b", 1), partial=True))


def test_the_iterator_knows_where_it_stopped() -> None:
    reading = batch.batches(GOOD + PLAIN + bytes(100))
    assert (next(reading).size, reading.position) == (len(GOOD), len(GOOD))
    next(reading)
    with pytest.raises(errors.CorruptBatch, match="zeros, where a batch should begin"):
        next(reading)  # the zeros of a prepared segment
    assert reading.position == len(GOOD) + len(PLAIN)


@READERS
@pytest.mark.parametrize("window", [(-1, None), (0, 10**9), (5, 4), (10**9, None)])
def test_positions_outside_the_buffer(reader: ModuleType, window: tuple[int, int | None]) -> None:
    with pytest.raises(errors.InvalidOption):
        reader.batch_at(GOOD, *window)
    with pytest.raises(errors.InvalidOption):
        list(reader.batches(GOOD, *window))


def test_a_view_keeps_its_buffer_alive() -> None:
    found = batch.batch_at(bytearray(GOOD))
    assert [each.value for each in found.records()] == [b"first", b"second", None]
    with pytest.raises(TypeError):
        batch.BatchView()


def test_stamp() -> None:
    data = bytearray(b"x" + GOOD)
    batch.stamp(data, 2**40, 2**31 - 1, 1)
    found = batch.check_batch(data, 1)
    assert (found.base_offset, found.leader_epoch) == (2**40, 2**31 - 1)
    for offset, epoch in [(-1, 1), (2**63 - 3, 1), (0, -1)]:
        with pytest.raises(errors.InvalidOption):
            batch.stamp(data, offset, epoch, 1)
    with pytest.raises(errors.CorruptBatch):
        batch.stamp(bytearray(61), 0, 0)


# --- faults ---

MAX = 2**63 - 1
HEADER_FAULTS: dict[Fault, list[bytes]] = {
    Fault.EMPTY: [bytes(100), with_field(bytes(100), 40, ">b", 1)],
    Fault.LENGTH: [
        with_field(GOOD, 8, ">i", 48),
        with_field(GOOD, 8, ">i", -1),
        with_field(GOOD, 8, ">i", -(2**31)),
        with_field(GOOD, 8, ">i", limits.BATCH_BYTES_MAX - 11),
        with_field(GOOD, 8, ">i", 2**31 - 1),
    ],
    Fault.MAGIC: [with_field(GOOD, 16, ">b", magic) for magic in (0, 1, 3, -1)],
    Fault.ATTRIBUTES: [with_field(GOOD, 21, ">h", bits) for bits in (5, 6, 7, 0x80, -(2**15))],
    Fault.COUNT: [
        with_field(GOOD, 57, ">i", -1),
        with_field(GOOD, 57, ">i", 2**31 - 1),
        with_field(GOOD, 57, ">i", 4),  # more than the offsets
        with_field(GOOD, 23, ">i", -1),
        with_field(with_field(GOOD, 23, ">i", 10), 57, ">i", 11),  # more than the bytes can hold
        with_field(with_field(GOOD, 23, ">i", 2**23), 57, ">i", limits.RECORDS_PER_BATCH_MAX + 1),
    ],
    Fault.OFFSET_BOUNDS: [with_field(GOOD, 0, ">q", -1), with_field(GOOD, 0, ">q", MAX - 2)],
    Fault.EPOCH_BOUNDS: [with_field(GOOD, 12, ">i", -2)],
    Fault.INCOMPLETE: [
        b"",
        GOOD[:60],
        GOOD[:61],
        GOOD[:-1],
        with_field(GOOD, 8, ">i", len(GOOD) - 11),
    ],
}
CHECK_FAULTS: dict[Fault, list[bytes]] = {
    Fault.COUNT: [
        with_field(with_body(b"", count=0), 23, ">i", 0),  # compaction may leave none, we do not
        with_field(GOOD, 23, ">i", 3),  # S8: a gap at the end
    ],
    Fault.CRC: [GOOD[:-1] + b"x", GOOD[:22] + b"\x10" + GOOD[23:]],
    Fault.RECORD_LENGTH: [
        with_body(record(0, 0, -1, 0, 0, length=-1)),
        with_body(record(0, 0, -1, 0, 0, length=5)),
        with_body(record(0, 0, -1, 1, b"v", 0, length=8)),
        with_body(record(0, 0, -1, 1, b"v", 0, length=2**31 - 1)),
    ],
    Fault.RECORD_FIELD: [
        with_body(b"\x80" * 10),
        with_body(b"\x8c\x00" + one()[1:]),  # a length that is not in its shortest form
        with_body(record(b"\xff" * 10)),
        with_body(record(0, b"\xff\xff\xff\xff\x1f", -1, 0, 0)),  # an offset delta of 33 bits
        with_body(record(0, 0, 3, b"abc", b"\x80\x80")),
        with_body(record(0, 0, -1, 2, b"vv", b"\x80")),
    ],
    Fault.RECORD_SIZE: [
        with_body(record(0, 0, -2, 0, 0, 0)),
        with_body(record(0, 0, 100, b"abc")),
        with_body(record(0, 0, -1, 2**31 - 1, b"abc", 0)),
        with_body(record(0, 0, -1, 6, b"abc", 0)),
        with_body(record(0, 0, -1, 2, b"v")),  # by one byte
        with_body(record(0, 0, 3, b"ke")),
    ],
    Fault.RECORD_HEADERS: [
        with_body(record(0, 0, -1, 1, b"v", -1)),
        with_body(record(0, 0, -1, 1, b"v", 2**31 - 1)),
        with_body(record(0, 0, -1, 1, b"v", limits.HEADERS_PER_RECORD_MAX + 1)),
        with_body(record(0, 0, -1, 1, b"v", 0, b"more")),
        with_body(record(0, 0, -1, 1, b"v", 1, -1, 0)),  # a header without a key
        with_body(record(0, 0, -1, 1, b"v", 1, 1, b"k", 9, b"v")),
        with_body(record(0, 0, -1, 1, b"v", 1, 1, b"k", -1, b"more")),
        with_body(record(0, 0, -1, 1, b"v", 2, 1, b"k", -1)),
    ],
    Fault.RECORD_OFFSET: [
        with_body(record(0, 1, -1, 1, b"v", 0)),
        with_body(record(0, -1, -1, 1, b"v", 0)),
        with_body(one() + record(0, 2, -1, 1, b"v", 0), count=2),
        with_body(one() + one(), count=2),
    ],
    Fault.RECORD_TIMESTAMP: [
        with_body(record(MAX, 0, -1, 1, b"v", 0)),
        with_field(with_body(record(-(2**63), 0, -1, 1, b"v", 0)), 27, ">q", -1),
    ],
    Fault.CONTROL_KEY: [
        with_body(one(), attributes=CONTROL),
        with_body(record(0, 0, 3, b"\0\0\0", 1, b"v", 0), attributes=CONTROL),
        with_body(record(0, 0, 4, b"\xff\0\0\2", 1, b"v", 0), attributes=CONTROL),
    ],
    Fault.TRAILING: [with_body(one() + b"\0"), with_body(one() + one())],
}
CONTROL_BATCH = control.control_batch([control.KRaftVersion(1)], timestamp=5, leader_epoch=3)
RAFT_FAULTS: dict[Fault, list[bytes]] = {
    Fault.COMPRESSED: [with_field(PLAIN, 21, ">h", int(Codec.ZSTD))],
    Fault.RECORD_HAS_TIMESTAMP_DELTA: [with_body(record(1, 0, -1, 1, b"v", 0))],
    Fault.RECORD_HAS_HEADERS: [with_body(record(0, 0, -1, 1, b"v", 1, 1, b"k", -1))],
    Fault.RECORD_HAS_KEY: [
        with_body(record(0, 0, 0, 1, b"v", 0)),
        with_body(record(0, 0, 1, b"k", 1, b"v", 0)),
    ],
    Fault.RECORD_NO_VALUE: [with_body(one(b"")), with_body(record(0, 0, -1, -1, 0))],
    Fault.CONTROL_EMPTY: [
        with_body(record(0, 0, 4, b"\0\0\0\5", 0, 0), attributes=CONTROL),
        with_body(record(0, 0, 4, b"\0\0\0\5", -1, 0), attributes=CONTROL),
    ],
    Fault.CONTROL_UNKNOWN: [
        with_body(record(0, 0, 4, struct.pack(">hh", 0, kind), 1, b"v", 0), attributes=CONTROL)
        for kind in (0, 1, 7, -1)
    ],
}


def cases(faults: dict[Fault, list[bytes]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    pairs = [(fault, data) for fault, many in faults.items() for data in many]
    names = [f"{fault.name}-{i}" for i, (fault, _) in enumerate(pairs)]
    return pytest.mark.parametrize(("fault", "data"), pairs, ids=names)


def assert_refused(call: Callable[[], object], fault: Fault, position: int) -> None:
    kind = errors.RecordsRefused if fault >= Fault.COMPRESSED else errors.CorruptBatch
    with pytest.raises(kind) as refused:
        call()
    assert refused.value.reason == shapes.FAULT_TEXTS[fault]
    assert refused.value.position == position
    assert f"batch at byte {position}" in str(refused.value)


@READERS
@cases(HEADER_FAULTS)
def test_header_faults(reader: ModuleType, fault: Fault, data: bytes) -> None:
    assert_refused(lambda: reader.batch_at(b"padding" + data, 7), fault, 7)
    assert_refused(lambda: reader.check_batch(b"padding" + data, 7), fault, 7)


@READERS
@cases(CHECK_FAULTS)
def test_faults_that_the_deep_check_finds(reader: ModuleType, fault: Fault, data: bytes) -> None:
    assert reader.batch_at(data).size == len(data)
    assert_refused(lambda: reader.check_batch(b"pad" + data, 3), fault, 3)
    assert_refused(lambda: reader.check_batch(data, records="kafka-raft"), fault, 0)


# covers: testCrcValidation
@READERS
@cases(
    {
        fault: [data for data in many if data[57:61] == b"\0\0\0\1"]  # records may have gaps
        for fault, many in CHECK_FAULTS.items()
        if Fault.RECORD_LENGTH <= fault <= Fault.TRAILING and fault != Fault.CONTROL_KEY
    }
)
def test_faults_that_every_reader_finds(reader: ModuleType, fault: Fault, data: bytes) -> None:
    assert_refused(lambda: list(reader.batch_at(data).records()), fault, 0)
    assert_refused(lambda: columns.decode_columns(data), fault, 0)
    assert_refused(lambda: columns.decode_values(data), fault, 0)


@READERS
@cases(RAFT_FAULTS)
def test_what_kafkas_raft_reader_refuses(reader: ModuleType, fault: Fault, data: bytes) -> None:
    if fault != Fault.COMPRESSED:  # that one only says that it is
        reader.check_batch(data)
    assert_refused(lambda: reader.check_batch(data, records="kafka-raft"), fault, 0)


@READERS
def test_rules(reader: ModuleType) -> None:
    for data in (PLAIN, CONTROL_BATCH):
        reader.check_batch(data, records="kafka-raft")
    refused = Fault.CONTROL_BATCH
    assert_refused(lambda: reader.check_batch(CONTROL_BATCH, control=False), refused, 0)
    with pytest.raises(errors.InvalidOption, match="known are any, kafka-raft"):
        reader.check_batch(PLAIN, records="strict")


def test_every_fault_is_tried() -> None:
    tried = {*HEADER_FAULTS, *CHECK_FAULTS, *RAFT_FAULTS, Fault.CONTROL_BATCH}
    of_logs = {Fault.OFFSET, Fault.EPOCH, Fault.UNREADABLE, Fault.STALE, Fault.RECORDS}
    assert tried == set(Fault) - {Fault.OK} - of_logs


def test_the_faults_are_those_of_the_kernel() -> None:
    source = (Path(__file__).parents[2] / "cext/batch_header.h").read_text()
    (listed,) = re.findall(r"^enum \{(.*?)\};", source, re.MULTILINE | re.DOTALL)
    names = re.findall(r"KF_(?:BATCH_)?(\w+)", re.sub(r"/\*.*?\*/", "", listed, flags=re.DOTALL))
    assert names == [fault.name for fault in Fault]
    assert [*Fault] == [*range(len(Fault))]


@READERS
def test_the_number_of_a_bad_record(reader: ModuleType) -> None:
    data = with_body(one() + record(0, 1, -1, 1, b"v", 0) + one(), count=3)
    with pytest.raises(errors.CorruptBatch, match="batch at byte 0, record 2: offset delta"):
        reader.check_batch(data)


@READERS
def test_records_may_have_gaps_but_no_disorder(reader: ModuleType) -> None:
    """What a compacted topic holds is read; the deep check is for what a quorum writes."""
    gap = with_field(with_body(record(0, 3, -1, 1, b"v", 0)), 23, ">i", 8)
    (found,) = reader.batch_at(gap).records()
    assert found.offset == 3
    beyond = with_body(record(0, 3, -1, 1, b"v", 0))
    assert_refused(lambda: list(reader.batch_at(beyond).records()), Fault.RECORD_OFFSET, 0)
    twice = with_body(one() + one(), count=2)
    assert_refused(lambda: list(reader.batch_at(twice).records()), Fault.RECORD_OFFSET, 0)


def test_check_batches_leaves_nothing_over() -> None:
    assert [found.position for found in batch.check_batches(GOOD + PLAIN)] == [0, len(GOOD)]
    assert batch.check_batches(b"") == []
    with pytest.raises(errors.CorruptBatch) as refused:
        batch.check_batches(GOOD + PLAIN + b"x")
    assert refused.value.position == len(GOOD) + len(PLAIN)


class Bare(BatchView):
    """A view that no function of ours made, as one that is faked in a user's test."""

    def __init__(self) -> None:
        """Take no batch."""


@pytest.mark.parametrize("view", [BatchView.__new__(BatchView), Bare()])
def test_a_view_without_a_batch_is_refused(view: BatchView) -> None:
    """Found by a reviewer: the interpreter ended by SIGSEGV."""
    for look in (lambda: view.data, view.crc_ok, view.check, lambda: list(view.records())):
        with pytest.raises(TypeError, match="holds no batch"):
            look()
    assert view.size == 0
