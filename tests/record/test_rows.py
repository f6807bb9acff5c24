"""Rows and headers against the plain-Python twin, record by record and batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast import errors
from kraftfast.record import control, headers, pure, rows
from kraftfast.record.shapes import CONTROL, FAULT_TEXTS, Codec, Fault, Record
from kraftfast.spark.reading import pure_readers

BYTES = st.none() | st.binary(max_size=40)
CUT_OFF = FAULT_TEXTS[Fault.INCOMPLETE]
STAMPS = st.integers(0, 10**12)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches that follow each other, of every codec that is written, some of a producer's."""
    offset, found = draw(st.integers(0, 50)), []
    for epoch in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 5))
        records = [
            Record(offset + i, draw(STAMPS), draw(BYTES), draw(BYTES), draw(HEADERS))
            for i in range(count)
        ]
        fields = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 2**31 - 2}
        codec = draw(st.sampled_from([Codec.NONE, Codec.ZSTD]))
        found.append(
            pure.encode_batch(
                records, leader_epoch=epoch, codec=codec, **(fields if draw(st.booleans()) else {})
            )
        )
        offset += count
    return b"".join(found)


def listed(found: rows.Rows) -> list[tuple[object, ...]]:
    """Every row as one tuple."""
    assert found.keys is not None and found.values is not None
    names: list[list[tuple[str, bytes | None]]] = [[] for _ in range(len(found))]
    if found.header_ends is not None:
        assert found.header_keys is not None and found.header_values is not None
        pairs = list(zip(found.header_keys.to_pylist(), found.header_values.to_pylist()))
        begin = 0
        for i, end in enumerate(found.header_ends.tolist()):
            names[i] = [((key or b"").decode(), value) for key, value in pairs[begin:end]]
            begin = end
    shared = [found.spread(name).tolist() for name in ("epoch", "producer_id", "producer_epoch")]
    return list(
        zip(
            found.offsets.tolist(), found.timestamps.tolist(), found.keys.to_pylist(),
            found.values.to_pylist(), [tuple(each) for each in names],
            found.sequences().tolist(), *shared,
        )
    )  # fmt: skip


def expected(data: bytes, first: int, end: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for batch in pure.batches(data):
        for record in batch.records():
            if not first <= record.offset < end:
                continue
            number = record.offset - batch.base_offset
            sequence = -1 if batch.base_sequence < 0 else (batch.base_sequence + number) % 2**31
            found.append(
                (*record, sequence, batch.leader_epoch, batch.producer_id, batch.producer_epoch)
            )
    return found


@settings(max_examples=60, deadline=None)
@given(logs(), st.integers(0, 70), st.integers(0, 70))
def test_rows_are_what_the_twin_reads(data: bytes, first: int, end: int) -> None:
    assert listed(rows.decode_rows(data)) == expected(data, 0, 10**9)
    some = rows.decode_rows(data, first_offset=first, end_offset=end)
    assert listed(some) == expected(data, first, end)
    bare = rows.decode_rows(data, contents=False)
    assert bare.keys is bare.values is bare.header_ends is None
    assert bare.offsets.tolist() == [row[0] for row in expected(data, 0, 10**9)]


@settings(max_examples=60, deadline=None)
@given(logs(), st.integers(0, 30))
def test_headers_are_what_the_twin_reads(data: bytes, zeros: int) -> None:
    found = headers.decode_headers(data + bytes(zeros), verify_crc=True)
    assert (found.position, found.fault) == (len(data), "")
    names = ("base_offset", "end_offset", "epoch", "count", "size", "crc", "attributes")
    position = 0
    for row, batch in zip(found.rows, pure.batches(data), strict=True):
        read = (batch.base_offset, batch.end_offset, batch.leader_epoch, batch.record_count,
                batch.size, batch.crc, batch.attributes)  # fmt: skip
        assert tuple(row[name] for name in names) == read
        assert row["position"] == position and row["crc_ok"]
        position += batch.size


def three() -> list[bytes]:
    values = [[b"a", b"b"], [b"c"], [b"d", b"e"]]
    batches, offset = [], 0
    for each in values:
        batches.append(pure.encode_batch(pure.values_to_records(each, 5, offset), leader_epoch=1))
        offset += len(each)
    return batches


def test_a_batch_whose_crc_fails_is_told_of_and_passed_over() -> None:
    one, two, three_ = three()
    damaged = one + two[:-2] + bytes([two[-2] ^ 1]) + two[-1:] + three_
    found = headers.decode_headers(damaged, verify_crc=True)
    assert found.rows["crc_ok"].tolist() == [True, False, True]
    assert headers.decode_headers(damaged).rows["crc_ok"].all()
    with pytest.raises(errors.CorruptBatch) as caught:
        rows.decode_rows(damaged)
    assert caught.value.position == len(one)
    assert len(rows.decode_rows(damaged, verify_crc=False)) == 5
    assert rows.decode_rows(damaged, end_offset=2).offsets.tolist() == [0, 1]


def test_a_walk_stops_at_what_is_no_header() -> None:
    one, two, _ = three()
    found = headers.decode_headers(one + two[:30])
    assert (len(found.rows), found.position) == (1, len(one))
    assert found.fault == CUT_OFF
    found = headers.decode_headers(one + two, batches_max=1)
    assert (len(found.rows), found.position, found.fault) == (1, len(one), "")
    assert headers.decode_headers(b"").rows.dtype == headers.HEADER
    for bounds in ({"position": 1}, {"end": 9}, {"batches_max": 0}):
        with pytest.raises(errors.InvalidOption):
            headers.decode_headers(b"", **bounds)


def headers_in(path: Path, end: int, read: Any = headers.read_headers, **more: Any) -> Any:
    with path.open("rb") as file:
        found = read(file.fileno(), 0, end, **more)
    return found.rows.tolist(), found.position, found.fault


@pytest.mark.parametrize("read", [headers.read_headers, pure_readers.read_headers])
def test_headers_of_a_file_are_those_of_its_bytes(tmp_path: Path, read: Any) -> None:
    sizes, batches, offset = [20_000, 100, 400_000, 16_384, 50, *[7] * 99], [], 0
    for size in sizes:
        values = pure.values_to_records([bytes(size)], 5, offset)
        batches.append(pure.encode_batch(values, leader_epoch=1))
        offset += 1
    data = b"".join(batches)
    path = tmp_path / "a.log"
    for end, zeros in ((None, 0), (None, 600_000), (len(data) - 1, 0), (len(batches[0]) + 30, 0)):
        path.write_bytes(data + bytes(zeros))
        stop = len(data) + zeros if end is None else end
        for more in ({}, {"verify_crc": True}, {"batches_max": 1}, {"batches_max": 3}):
            whole = headers.decode_headers(data + bytes(zeros), end=end, **more)
            wanted = whole.rows.tolist(), whole.position, whole.fault
            assert headers_in(path, stop, read, **more) == wanted
    (*_, position, fault) = headers_in(path, len(data), read, until_offset=3)
    assert (position, fault) == (sum(len(each) for each in batches[:3]), "")
    damaged = bytearray(data)
    damaged[len(batches[0]) + len(batches[1]) + 300_000] ^= 1
    path.write_bytes(damaged)
    rows, _, _ = headers_in(path, len(data), read, verify_crc=True)
    assert [row[-1] for row in rows] == [number != 2 for number in range(len(sizes))]


@pytest.mark.parametrize("read", [headers.read_headers, pure_readers.read_headers])
def test_headers_of_a_file_that_is_cut_short_end_in_a_batch_that_is_cut_off(
    tmp_path: Path, read: Any
) -> None:
    batch = pure.encode_batch(pure.values_to_records([bytes(30_000)], 5, 0), leader_epoch=1)
    path = tmp_path / "a.log"
    for size in (0, 60, 61, 20_000, len(batch) - 1):
        path.write_bytes(batch[:size])
        rows, position, fault = headers_in(path, len(batch), read, verify_crc=True)
        assert (rows, position, fault) == ([], 0, CUT_OFF), size
    path.write_bytes(batch)
    rows, position, fault = headers_in(path, 2 * len(batch), read)
    assert (len(rows), position, fault) == (1, len(batch), CUT_OFF)
    path.write_bytes(bytes(100))
    assert headers_in(path, 100_000, read)[1] == 0
    with pytest.raises(errors.InvalidOption):
        headers_in(path, 0, read, batches_max=0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read(-1, 0, 100)


def test_control_batches_are_left_out_unless_asked_for() -> None:
    data = control.control_batch(
        [control.KRaftVersion(1)], timestamp=5, base_offset=0, leader_epoch=1
    ) + pure.encode_batch(pure.values_to_records([b"x"], 5, 1), leader_epoch=1)
    assert rows.decode_rows(data).offsets.tolist() == [1]
    found = rows.decode_rows(data, control=True)
    assert found.offsets.tolist() == [0, 1]
    assert (found.spread("attributes") & CONTROL != 0).tolist() == [True, False]


def test_records_max_takes_whole_batches() -> None:
    data = b"".join(three())
    found = rows.decode_rows(data, records_max=1)
    assert found.offsets.tolist() == [0, 1]
    rest = rows.decode_rows(data, found.position)
    assert np.concatenate([found.offsets, rest.offsets]).tolist() == list(range(5))
