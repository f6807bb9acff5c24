"""Columns: which records, up to which bound, nulls, Arrow; contents are compared in test_twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow
import pytest
from crc32c import crc32c

from kraftfast import errors
from kraftfast.record import batch, columns, control, pure
from kraftfast.record.shapes import Codec, Record


def batch_of(first: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    values = [b"value %d of many, of many" % (first + i) for i in range(count)]
    return pure.encode_batch(pure.values_to_records(values, 1000 + first, first), codec=codec)


CONTROL = control.control_batch(
    [control.KRaftVersion(1)], timestamp=5, base_offset=30, leader_epoch=1
)
PARTS = [batch_of(0, 10), batch_of(10, 20, Codec.ZSTD), CONTROL, batch_of(31, 5)]
DATA = b"".join(PARTS)
ENDS = np.cumsum([len(part) for part in PARTS]).tolist()


def offsets(**choice: Any) -> list[int]:
    table = columns.decode_columns(DATA, **choice)
    values = columns.decode_values(DATA, **choice)
    assert table.values.to_pylist() == values
    assert len(table) == len(table.offsets) == len(table.timestamps) == len(table.values)
    return table.offsets.tolist()


# covers: RecordsDecodingStrategyTest.*
def test_control_batches_are_left_out_unless_asked_for() -> None:
    everything = list(range(36))
    assert offsets() == [offset for offset in everything if offset != 30]
    assert offsets(control=True) == everything


@pytest.mark.parametrize("first", [0, 1, 9, 10, 15, 29, 30, 31, 35, 36, 10**9])
def test_first_offset(first: int) -> None:
    assert offsets(first_offset=first) == [o for o in range(36) if o >= first and o != 30]


@pytest.mark.parametrize(
    ("choice", "last", "end"),
    [
        ({"records_max": 1}, 9, ENDS[0]),
        ({"records_max": 10}, 9, ENDS[0]),
        ({"records_max": 11}, 29, ENDS[1]),
        ({"records_max": 31}, 35, ENDS[3]),
        ({"bytes_max": 1}, 9, ENDS[0]),
        ({"bytes_max": len(PARTS[0])}, 29, ENDS[1]),
        ({"end": ENDS[1]}, 29, ENDS[1]),
        ({"first_offset": 20, "records_max": 1}, 29, ENDS[1]),
    ],
)
def test_bounds_take_whole_batches(choice: dict[str, Any], last: int, end: int) -> None:
    assert offsets(**choice)[-1] == last
    table = columns.decode_columns(DATA, **choice)
    assert table.position == end
    rest = columns.decode_columns(DATA, table.position)
    assert table.offsets.tolist() + rest.offsets.tolist() == offsets(
        first_offset=choice.get("first_offset", 0)
    )


@pytest.mark.parametrize("choice", [{"bytes_max": 0}, {"position": -1}, {"end": 10**9}])
def test_bounds_that_cannot_be(choice: dict[str, Any]) -> None:
    for decode in (columns.decode_columns, columns.decode_values):
        with pytest.raises(errors.InvalidOption):
            decode(DATA, **choice)


def test_nothing_at_all() -> None:
    table = columns.decode_columns(b"")
    assert (len(table), table.position, table.values.to_pylist()) == (0, 0, [])
    assert table.to_arrow().num_rows == 0
    assert columns.decode_values(b"") == []


NULLS = [Record(i, 7, key, value) for i, (key, value) in enumerate(
    [(b"k", None), (None, b"v"), (None, None), (b"", b"")] * 5
)]  # fmt: skip


def test_nulls_are_not_empty() -> None:
    table = columns.decode_columns(pure.encode_batch(NULLS))
    assert table.keys.to_pylist() == [record.key for record in NULLS]
    assert table.values.to_pylist() == [record.value for record in NULLS]
    assert (table.keys.null_count, table.values.null_count) == (10, 10)
    assert columns.decode_columns(DATA).values.valid is None
    assert columns.decode_columns(DATA, keys=False).keys is None


def test_arrow() -> None:
    data = pure.encode_batch(NULLS) + batch_of(20, 3)
    got = columns.decode_columns(data).to_arrow()
    got.validate(full=True)
    assert got.schema.names == ["offset", "timestamp", "key", "value"]
    assert got.column("offset").to_pylist() == list(range(23))
    assert got.column("timestamp").cast(pyarrow.int64()).to_pylist() == [7] * 20 + [1020] * 3
    assert got.column("key").to_pylist() == [record.key for record in NULLS] + [None] * 3
    assert got.column("value").to_pylist()[:20] == [record.value for record in NULLS]
    for more in ({"keys": False}, {"first_offset": 20}):  # a key column that is all null
        got = columns.decode_columns(data, **more).to_arrow()
        got.validate(full=True)
        assert got.column("key").null_count == got.num_rows


@pytest.mark.parametrize("decode", [columns.decode_columns, columns.decode_values])
def test_damage_is_named_with_its_place(decode: Callable[..., object]) -> None:
    bad = bytearray(DATA)
    bad[-1] ^= 1
    with pytest.raises(errors.CorruptBatch, match="CRC-32C does not match") as refused:
        decode(bytes(bad))
    assert refused.value.position == ENDS[2]
    with pytest.raises(errors.CorruptBatch, match="longer than the bytes"):
        decode(DATA[:-1])
    assert decode(DATA[:-1], partial=True)
    two = pure.encode_batch([Record(0, 0, None, b"v"), Record(1, 0, None, b"w")])
    one_said = two[:57] + b"\0\0\0\1" + two[61:]
    one_said = one_said[:17] + crc32c(one_said[21:]).to_bytes(4, "big") + one_said[21:]
    with pytest.raises(errors.CorruptBatch, match="bytes behind the last record"):
        decode(one_said)


def test_large_answers_are_decoded_without_the_gil() -> None:
    data = b"".join(batch_of(i * 1000, 1000) for i in range(20))
    assert len(data) > 1 << 18
    table = columns.decode_columns(data)
    assert table.offsets.tolist() == list(range(20_000))
    assert table.values.to_pylist() == [
        record.value for found in batch.batches(data) for record in found.records()
    ]
    disorder = pure.encode_batch([Record(offset, 0, None, b"v") for offset in (0, 1, 0, 3)])
    with pytest.raises(errors.CorruptBatch, match="record 2: offset delta") as refused:
        columns.decode_columns(data + disorder)
    assert refused.value.position == len(data)
