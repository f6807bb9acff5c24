"""Bytes that another process changes while they are read: an answer or a refusal, nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftfast import errors
from kraftfast.log import scan
from kraftfast.record import compression, pure, rows
from kraftfast.record.batch import batch_at
from kraftfast.record.shapes import Codec, Record

COUNT = 40


def few_headers() -> bytes:
    """Large values, one header in each record."""
    return pure.encode_batch([Record(i, 0, None, b"v" * 400, (("h", b"x"),)) for i in range(COUNT)])


def many_headers(size: int) -> bytes:
    """The same count and size, and as many headers as fit."""
    each = 180
    found = [Record(i, 0, None, b"", tuple(("", b"") for _ in range(each))) for i in range(COUNT)]
    short = size - len(pure.encode_batch(found))
    found[-1] = Record(COUNT - 1, 0, None, b"p" * (short - 1), found[-1].headers)
    data = pure.encode_batch(found)
    assert len(data) == size
    return data


class Between:
    """Changes the bytes between the two passes of ``decode_rows``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, data: bytearray, change: Any) -> None:
        made = rows.Rows

        def between(*args: Any) -> Any:
            change(data)
            return made(*args)

        monkeypatch.setattr(rows, "Rows", between)


def test_headers_that_multiply_between_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(few_headers())
    other = many_headers(len(data))

    def change(data: bytearray) -> None:
        data[:] = other

    Between(monkeypatch, data, change)
    with pytest.raises(errors.CorruptBatch):
        rows.decode_rows(data)


def test_headers_that_vanish_between_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    other = few_headers()
    data = bytearray(many_headers(len(other)))

    def change(data: bytearray) -> None:
        data[:] = other

    Between(monkeypatch, data, change)
    with pytest.raises(errors.CorruptBatch):
        rows.decode_rows(data)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.integers(61, 600), st.sampled_from([0, 1, 2, 3, 127, 128, 255])),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_any_bytes_that_change_between_two_passes(changes: list[tuple[int, int]]) -> None:
    records = [Record(i, 0, b"k", b"v" * 9, (("a", b"b"), ("c", None))) for i in range(20)]
    data = bytearray(pure.encode_batch(records))

    def change(data: bytearray) -> None:
        for at, byte in changes:
            data[at % len(data)] = byte

    with pytest.MonkeyPatch.context() as patched:
        Between(patched, data, change)
        try:
            found = rows.decode_rows(data)
        except errors.CorruptBatch:
            return
        assert found.header_ends is not None and found.header_keys is not None
        assert len(found.header_keys) == found.header_ends[-1]


def test_a_compressed_block_is_copied_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A declared size that is judged must be the one that is then used."""
    packed = pure.encode_batch([Record(0, 0, None, b"v" * 900, ())], codec=Codec.ZSTD)
    data = bytearray(packed)
    decompress = compression.decompress

    def change_first(codec: int, block: memoryview) -> bytes:
        data[61:] = bytes(len(data) - 61)
        return decompress(codec, block)

    monkeypatch.setattr(compression, "decompress", change_first)
    assert [record.value for record in batch_at(data).records()] == [b"v" * 900]


def test_a_walk_checks_the_batch_that_it_judged() -> None:
    """Framing and CRC are of one header: nothing is parsed a second time."""
    data = pure.encode_batch([Record(5, 0, None, b"v", ())], leader_epoch=3)
    assert scan.walk(data, 0, len(data), 5, 3, verify_crc=True)[:3] == (len(data), 6, 3)
    broken = data[:-1] + bytes([data[-1] ^ 1])
    position, *_, fault = scan.walk(broken, 0, len(data), 5, 3, verify_crc=True)
    assert position == 0 and scan.fault_text(fault) == "CRC-32C does not match"
