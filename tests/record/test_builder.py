"""What Python objects can be encoded, what is refused, and what a builder does at its ends."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pyarrow
import pytest

from kraftfast import errors, limits
from kraftfast.record import batch, builder, pure
from kraftfast.record.shapes import Codec

VALUES = [b"one", b"", b"three" * 40, b"4"]
SETTINGS = builder.Settings(77)


def encoded(values: builder.Values, **more: Any) -> list[bytes | None]:
    target = bytearray(1 << 20)
    size, taken = values.encode_into(target, SETTINGS, **more)
    assert taken == len(values) - more.get("start", 0)
    found = batch.check_batch(target, end=size)
    assert found.size == size
    return [record.value for record in found.records()]


# --- sources ---


def test_lists() -> None:
    assert encoded(builder.Values(VALUES)) == VALUES
    assert encoded(builder.Values(tuple(VALUES)), start=2) == VALUES[2:]
    mixed = [b"a", bytearray(b"b"), memoryview(b"c"), None, np.frombuffer(b"d", np.uint8)]
    assert encoded(builder.Values(mixed)) == [b"a", b"b", b"c", None, b"d"]


def test_a_list_may_change_after_it_was_taken() -> None:
    source = list(VALUES)
    values = builder.Values(source)
    source.clear()
    assert encoded(values) == VALUES


@pytest.mark.parametrize("kind", ["i", "l", "q"])
def test_blobs(kind: str) -> None:
    ends = array.array(kind, np.cumsum([0, *map(len, VALUES)]).tolist())
    assert encoded(builder.Values(b"".join(VALUES), ends)) == VALUES
    shifted = array.array(kind, [end + 2 for end in ends])  # offsets need not begin at 0
    assert encoded(builder.Values(b"xx" + b"".join(VALUES), shifted)) == VALUES


def test_rows() -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(4, 3)
    expected = [row.tobytes() for row in rows]
    assert encoded(builder.Values(rows)) == expected
    assert encoded(builder.Values(rows), start=3) == expected[3:]
    assert encoded(builder.Values(rows.tobytes(), size=3)) == expected


@pytest.mark.parametrize(
    "kind", ["binary", "large_binary", "string", "large_string", "binary(3)"], ids=str
)
def test_arrow(kind: str) -> None:
    kinds = {"binary(3)": pyarrow.binary(3)}
    arrow_type = kinds.get(kind) or getattr(pyarrow, kind)()
    values = [b"abc", None, b"def", b"ghi", b"jkl", b"mno", None, b"pqr", b"stu", b"vwx"]
    source = pyarrow.array(values, pyarrow.binary(3)).cast(
        arrow_type if "binary" in kind else pyarrow.binary()
    )
    source = source.cast(arrow_type)
    assert encoded(builder.Values(source)) == values
    assert encoded(builder.Values(source[4:9])) == values[4:9]
    assert encoded(builder.Values(source.drop_null())) == [v for v in values if v is not None]
    chunks = pyarrow.chunked_array([source[:3], source[3:]])
    assert encoded(builder.Values(chunks)) == values
    empty = builder.Values(source[:0])
    assert (len(empty), empty.encode_into(bytearray(100), SETTINGS)) == (0, (0, 0))


class NotBytes:
    """Something that is no buffer."""


@pytest.mark.parametrize(
    ("source", "more"),
    [
        (["text"], {}),
        ([1], {}),
        ([b"a", NotBytes()], {}),
        (NotBytes(), {}),
        (b"blob", {}),
        (b"blob", {"size": 0}),
        (b"blob", {"size": 3}),
        (b"blob", {"size": -1}),
        (b"blob", {"offsets": np.array([0, 1], np.int16)}),
        (b"blob", {"offsets": np.array([0, 1], np.uint64)}),
        (b"blob", {"offsets": np.array([0.0, 1.0])}),
        (b"blob", {"offsets": np.array([], np.int64)}),
        (b"blob", {"offsets": np.array([[0, 1]], np.int64)}),
        (b"blob", {"offsets": np.arange(4, dtype=np.int64)[::2]}),
        (np.zeros((3, 4), np.int32), {}),
        (np.zeros((3, 4), np.uint8)[:, ::2], {}),
        (np.zeros(3, np.uint8), {}),
        (np.zeros((4, 3), np.uint8).T, {"size": 2}),
        (np.zeros((4, 3), np.uint8).T, {"offsets": np.array([0, 1])}),
        (np.zeros((3, 4), "datetime64[D]"), {}),
        (np.ma.masked_array(np.zeros((2, 2), np.uint8), mask=[[0, 1], [0, 0]]), {}),
        (np.ma.masked_array(np.zeros(4, np.uint8)), {"size": 2}),
        ("text", {"size": 1}),
        (NotBytes(), {"offsets": np.array([0, 1])}),
        (pyarrow.array([1, 2]), {}),
        (pyarrow.table({"a": [1]}), {}),
    ],
    ids=lambda case: str(type(case).__name__),
)
def test_what_is_no_column_of_values(source: Any, more: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidOption):
        builder.Values(source, **more)


@pytest.mark.parametrize("ends", [[0, 2, 1], [0, 5], [-1, 2], [3, 2**62], [2**62, 2**62 + 1]])
def test_offsets_that_leave_the_data(ends: list[int]) -> None:
    values = builder.Values(b"abcd", np.array(ends, np.int64))
    good = 1 if ends == [0, 2, 1] else 0
    target = bytearray(1000)
    if good:  # what precedes the bad one is encoded
        assert values.encode_into(target, SETTINGS)[1] == 1
    with pytest.raises(errors.InvalidOption, match=f"offsets of value {good}"):
        values.encode_into(target, SETTINGS, start=good)


# --- bounds ---


# covers: testHasRoomForUncompressed
def test_nothing_fits() -> None:
    for source in (builder.Values([b"abc"]), builder.Values(b"abc", size=3)):
        need = len(pure.encode_batch(pure.values_to_records([b"abc"], 77)))
        target = bytearray(need)
        for capacity in range(need):
            assert source.encode_into(target, SETTINGS, capacity=capacity) == (0, 0)
        assert source.encode_into(target, SETTINGS) == (need, 1)


# covers: testAppendFailedWithRecordBatchTooLargeException
def test_a_value_that_no_batch_can_hold() -> None:
    target = bytearray(limits.BATCH_BYTES_MAX + 4096)
    overhead = 61 + 4 + 2 + 1 + 1 + 4 + 1
    fits = bytes(limits.BATCH_BYTES_MAX - overhead)
    for values in ([fits], [fits + b"x"]):
        for column in (builder.Values(values), builder.Values(values[0], size=len(values[0]))):
            if values[0] is fits:
                assert column.encode_into(target, SETTINGS) == (limits.BATCH_BYTES_MAX, 1)
                batch.check_batch(target, end=limits.BATCH_BYTES_MAX)
            else:
                with pytest.raises(errors.RecordTooLarge):
                    column.encode_into(target, SETTINGS)


@pytest.mark.parametrize(
    "more",
    [
        {"start": -1},
        {"start": 5},
        {"position": -1},
        {"position": 101},
        {"capacity": -1},
        {"capacity": 101},
        {"position": 50, "capacity": 51},
        {"keys": builder.Values([b"k"])},
        {"timestamps": np.zeros(3, np.int64)},
        {"timestamps": np.zeros(8, np.int32)},
    ],
)
def test_arguments_out_of_range(more: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidOption):
        builder.Values(VALUES).encode_into(bytearray(100), SETTINGS, **more)


def test_settings() -> None:
    chosen = builder.Settings(
        5, base_offset=9, leader_epoch=2, producer_id=3, producer_epoch=4, base_sequence=6,
        transactional=True,
    )  # fmt: skip
    target = bytearray(200)
    builder.Values([b"v"]).encode_into(target, chosen)
    found = batch.batch_at(target)
    assert (found.base_offset, found.leader_epoch, found.is_transactional) == (9, 2, True)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (3, 4, 6)
    assert (found.base_timestamp, found.max_timestamp) == (5, 5)
    chosen.timestamp, chosen.base_sequence = 8, 7
    builder.Values(b"v", size=1).encode_into(target, chosen)
    found = batch.batch_at(target)
    assert (found.base_timestamp, found.base_sequence) == (8, 7)
    for wrong in ({"base_offset": -1}, {"leader_epoch": -2}, {"records": "none"}):
        with pytest.raises(errors.InvalidOption):
            builder.Settings(1, **wrong)


# --- records=kafka-raft ---

RAFT = builder.Settings(77, records="kafka-raft")


@pytest.mark.parametrize(
    "record",
    [
        {"value": b""},
        {"value": None},
        {"value": b"v", "key": b"k"},
        {"value": b"v", "key": b""},
        {"value": b"v", "headers": [("h", b"")]},
        {"value": b"v", "timestamp": 78},
    ],
    ids=str,
)
def test_records_that_kafkas_raft_reader_refuses(record: dict[str, Any]) -> None:
    target = bytearray(1000)
    open_batch = builder.BatchBuilder(target, RAFT)
    assert open_batch.append(b"first", timestamp=77)
    with pytest.raises(errors.RecordsRefused, match="record 1"):
        open_batch.append(**record)
    assert open_batch.append(b"second")
    size = open_batch.finish()
    found = batch.check_batch(target, end=size, records="kafka-raft")
    assert [each.value for each in found.records()] == [b"first", b"second"]


def test_columns_that_kafkas_raft_reader_refuses() -> None:
    target = bytearray(1000)
    for values in ([b"a", b""], [b"a", None]):
        column = builder.Values(values)
        assert column.encode_into(target, RAFT)[1] == 1
        with pytest.raises(errors.RecordsRefused):
            column.encode_into(target, RAFT, start=1)
    with pytest.raises(errors.RecordsRefused):
        builder.Values(np.zeros((3, 0), np.uint8)).encode_into(target, RAFT)
    one = builder.Values([b"a"])
    with pytest.raises(errors.RecordsRefused):
        one.encode_into(target, RAFT, keys=one)
    stamps = np.array([78], np.int64)
    assert one.encode_into(target, RAFT, timestamps=stamps)[1] == 1  # the batch's own


# --- the builder ---


def test_the_life_of_a_builder() -> None:
    target = bytearray(1000)
    open_batch = builder.BatchBuilder(target, SETTINGS, position=10, capacity=500)
    assert (open_batch.record_count, open_batch.size) == (0, 61)
    assert open_batch.append(b"v")
    assert open_batch.append(bytearray(b"w"), key=memoryview(b"k"))
    size = open_batch.size
    with pytest.raises(BufferError):
        target.clear()
    assert open_batch.finish() == size
    target += b"grown"  # the buffer is free again
    assert [r.value for r in batch.check_batch(target, 10, 10 + size).records()] == [b"v", b"w"]
    for call in (open_batch.finish, lambda: open_batch.append(b"x")):
        with pytest.raises(errors.Closed):
            call()


def test_records_with_and_without_a_timestamp() -> None:
    target = bytearray(1000)
    open_batch = builder.BatchBuilder(target, SETTINGS)
    for timestamp in (90, None, 80, None):
        assert open_batch.append(b"v", timestamp=timestamp)
    found = batch.check_batch(target, end=open_batch.finish())
    assert [record.timestamp for record in found.records()] == [90, 77, 80, 77]
    assert (found.base_timestamp, found.max_timestamp) == (90, 90)


def test_an_empty_builder_and_a_tiny_buffer() -> None:
    assert builder.BatchBuilder(bytearray(100), SETTINGS).finish() == 0
    for room in (0, 60, 61, 62):
        open_batch = builder.BatchBuilder(bytearray(room), SETTINGS)
        assert not open_batch.append(b"v")
        assert not open_batch.append(b"v", b"k", [("h", b"v" * 100)], 5)
        assert open_batch.finish() == 0


def test_what_a_builder_refuses() -> None:
    open_batch = builder.BatchBuilder(bytearray(10_000_000), SETTINGS)
    for wrong in (
        {"value": "text"},
        {"value": 5},
        {"value": b"v", "key": "text"},
        {"value": b"v", "headers": [("h", "text")]},
        {"value": b"v", "headers": [("h", b"")] * (limits.HEADERS_PER_RECORD_MAX + 1)},
    ):
        with pytest.raises(errors.InvalidOption):
            open_batch.append(**wrong)
    with pytest.raises(errors.InvalidOption, match="at most 65536 headers, not 65537"):
        open_batch.append(b"v", headers=[("h", b"")] * (limits.HEADERS_PER_RECORD_MAX + 1))
    assert open_batch.append(b"v", timestamp=-(2**62))
    with pytest.raises(errors.InvalidOption, match="too far"):
        open_batch.append(b"v", timestamp=2**63 - 1)
    assert open_batch.append(b"v", headers=[("h", b"")] * 10)
    assert open_batch.append(np.zeros(1, [("O", int)])), "a field's name is not its type"
    assert open_batch.record_count == 3


# --- compression ---


def test_compress_batch() -> None:
    target = bytearray(100_000)
    size, _ = builder.Values([b"again and again" * 50] * 20).encode_into(target, SETTINGS)
    plain = bytes(target[:size])
    packed = builder.compress_batch(plain)
    found = batch.check_batch(packed)
    assert len(packed) < size / 10
    assert found.codec == Codec.ZSTD
    assert list(found.records()) == list(batch.batch_at(plain).records())
    with pytest.raises(errors.InvalidOption, match="already"):
        builder.compress_batch(packed)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        packed = builder.compress_batch(plain, codec)
        assert len(packed) < size / 8 and batch.check_batch(packed).codec == codec
        assert list(batch.check_batch(packed).records()) == list(found.records())
    assert builder.compress_batch(plain, Codec.NONE) == plain


def test_what_does_not_get_smaller_is_left_alone() -> None:
    target = bytearray(1000)
    size, _ = builder.Values([bytes(range(60))]).encode_into(target, SETTINGS)
    assert builder.compress_batch(target[:size]) == target[:size]


def test_we_write_no_bomb() -> None:
    """S9: a batch of zeros compresses beyond the ratio at which a reader gives up."""
    target = bytearray(limits.BATCH_BYTES_MAX)
    size, _ = builder.Values([bytes(7 << 20)]).encode_into(target, SETTINGS)
    stored = builder.compress_batch(target[:size])
    assert batch.check_batch(stored).codec == Codec.NONE


def test_keys_and_headers_of_arrow_columns_are_records_as_others() -> None:
    """Slices and nulls of every kind, against the batch that is built record by record."""
    pa = pyarrow
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers: list[list[tuple[str, bytes | None]]] = [
        [], [("a", b"1"), ("", None)], [("long", b"x" * 300)], [], [("ä", b"")],
    ]  # fmt: skip
    lists = [[{"key": k, "value": v} for k, v in each] for each in headers]
    values, keys = [b"v", None, b"", b"w" * 200, b"x"], [None, b"k", b"", b"key", None]
    column = builder.Values(
        pa.array([b"before", *values], pa.binary())[1:], keys=pa.array([b"", *keys])[1:],
        headers=pa.array([[{"key": "other", "value": b""}], *lists[:3], None, lists[4]], kind)[1:],
    )  # fmt: skip
    ours, theirs = bytearray(2000), bytearray(2000)
    size, count = column.encode_into(ours, builder.Settings(timestamp=5))
    made = builder.BatchBuilder(theirs, builder.Settings(timestamp=5))
    for record in zip(values, keys, headers):
        assert made.append(*record)
    assert (size, count) == (made.finish(), 5) and ours == theirs
    for room in range(61, size):  # a record fits as a whole or not at all
        used, taken = column.encode_into(ours, builder.Settings(timestamp=5), capacity=room)
        assert used <= room and taken < 5
    many = [{"key": "k", "value": b""}] * (limits.HEADERS_PER_RECORD_MAX + 1)
    for bad in ([{"key": None, "value": b""}], [None], many):
        column = builder.Values([b"a"], headers=pa.array([bad], kind))
        with pytest.raises(errors.InvalidOption, match="headers of record 0"):
            column.encode_into(ours, builder.Settings(timestamp=5))
    for wrong in (pa.array([b"a"]), [[("a", b"")]], pa.array([[1]])):
        with pytest.raises(errors.InvalidOption, match="Arrow array of headers"):
            builder.Values([b"a"], headers=wrong)
    binary = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    with pytest.raises(errors.InvalidOption, match="keys of headers are a string, not binary"):
        builder.Values([b"a"], headers=pa.array([[{"key": b"caf\xe9", "value": b""}]], binary))
    with pytest.raises(errors.InvalidOption, match="2 keys or headers for 1 values"):
        builder.Values([b"a"], keys=[b"a", b"b"])
