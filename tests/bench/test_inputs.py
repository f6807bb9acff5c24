"""Inputs of demo and bench, and how they are known again."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftfast.bench.loads import measurement
from kraftfast.bench.loads.inputs import BLOCK_RECORDS, Fingerprints, InputRows, Lines, read_lines
from kraftfast.errors import InputError, InvalidOption, RecordTooLarge
from kraftfast.node.processes.tuning import BOUNDS


def values(chunk: Any) -> list[bytes]:
    if chunk.offsets is None:
        return [row.tobytes() for row in chunk.source]
    offsets = chunk.offsets.tolist()
    return [bytes(chunk.source[a:b]) for a, b in zip(offsets, offsets[1:])]


def columns(items: list[bytes], pad: int = 0, nulls: int = 0) -> Any:
    """What a consumer hands over for these values; ``pad`` bytes lie before the first."""
    offsets = np.cumsum([pad, *map(len, items)]).astype(np.int32)
    data = np.frombuffer(b"?" * pad + b"".join(items), dtype=np.uint8)
    column = SimpleNamespace(offsets=offsets, data=data, null_count=nulls)
    return type("Columns", (), {"values": column, "__len__": lambda self: len(items)})()


def check(checker: Any, items: list[bytes], cut: int = 7) -> str:
    for at in range(0, len(items), cut):
        checker.take(columns(items[at : at + cut], pad=at % 3))
    return str(checker.finish())


@given(st.binary(max_size=300), st.integers(1, 40))
def test_lines_are_those_of_split(data: bytes, piece: int) -> None:
    class Slow(io.RawIOBase):
        source = io.BytesIO(data)

        def read(self, _size: int = -1) -> bytes:
            return self.source.read(piece)

    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()  # a file that ends with a line feed has no line behind it
    chunks = list(read_lines(Slow(), "input"))
    assert [value for chunk in chunks for value in values(chunk)] == expected
    assert all(chunk.count == len(values(chunk)) for chunk in chunks)
    assert sum(chunk.value_bytes for chunk in chunks) == sum(map(len, expected))


@pytest.mark.parametrize("last", [b"", b"\n", b"\nnext\n"])
def test_a_line_too_long_is_named(last: bytes) -> None:
    data = io.BytesIO(b"fits\n" + b"x" * 11 + last)
    with pytest.raises(RecordTooLarge, match="line 2 of input has 11 bytes"):
        list(read_lines(data, "input", record_bytes_max=10))
    read = read_lines(io.BytesIO(data.getvalue()), "input", record_bytes_max=11)
    assert [value for chunk in read for value in values(chunk)][:2] == [b"fits", b"x" * 11]


def test_an_endless_line_is_not_held() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, _size: int = -1) -> bytes:
            self.given += 100
            return b"x" * 100

    source = Endless()
    with pytest.raises(RecordTooLarge, match="line 1"):
        list(read_lines(source, "input", record_bytes_max=1000))
    assert source.given <= 1200


def test_a_file_is_read_twice_and_known_again(tmp_path: Path) -> None:
    file = tmp_path / "input"
    items = [b"", b"a", b"bc" * 50, b"", b"last"]
    file.write_bytes(b"\n".join(items))
    lines = Lines(str(file))
    assert (lines.count, lines.value_bytes) == (5, sum(map(len, items)))
    assert [value for chunk in lines.chunks() for value in values(chunk)] == items
    assert check(lines.checker(), items, cut=2) == ""


def damage(items: list[bytes]) -> dict[str, list[bytes]]:
    return {
        "lost": items[:3] + items[4:],
        "twice": items[:3] + items[2:],
        "swapped": [items[1], items[0], *items[2:]],
        "changed": [*items[:-1], items[-1][:-1] + b"!"],
        "cut elsewhere": [items[0] + items[1][:1], items[1][1:], *items[2:]],
        "last one lost": items[:-1],
        "nothing": [],
    }


@pytest.mark.parametrize("name", damage([b"ab"] * 5))
def test_what_came_back_wrong_is_noticed(name: str, tmp_path: Path) -> None:
    items = [b"%d value" % number for number in range(20)]
    file = tmp_path / "input"
    file.write_bytes(b"\n".join(items))
    assert check(Lines(str(file)).checker(), damage(items)[name])
    rows = InputRows(20, 11, numbered=True)
    items = [value for chunk in rows.chunks() for value in values(chunk)]
    assert check(rows.checker(), items) == ""
    assert check(rows.checker(), damage(items)[name])


def test_null_values_are_not_lines(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"\n\n")
    checker = Lines(str(file)).checker()
    checker.take(columns([b"", b""], nulls=1))
    assert "without a value" in checker.finish()


def test_the_block_that_differs_is_named() -> None:
    expected, found = Fingerprints(), Fingerprints()
    offsets = np.arange(2 * BLOCK_RECORDS + 1)
    data = bytearray(2 * BLOCK_RECORDS)
    expected.add(data, offsets)
    data[BLOCK_RECORDS + 5] = 1
    for half in (offsets[: BLOCK_RECORDS // 2 + 1], offsets[BLOCK_RECORDS // 2 :]):
        found.add(data, half)  # pieces do not matter
    expected.finish(), found.finish()
    assert [a == b for a, b in zip(expected.hashes, found.hashes)] == [True, False]


def test_stdin_is_read_once(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    items = [b"record %d" % number for number in range(1000)]

    def write() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(b"\n".join(items))

    thread = threading.Thread(target=write)
    thread.start()
    lines = Lines("-", os.fdopen(reader, "rb", buffering=0))
    assert lines.count is None
    assert [value for chunk in lines.chunks() for value in values(chunk)] == items
    thread.join()
    assert check(lines.checker(), items) == ""
    assert check(lines.checker(), items[:-1]) != ""


def test_inputs_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="is empty"):
        Lines(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="No such file"):
        Lines(str(tmp_path / "none"))
    with pytest.raises(InputError, match="Is a directory"):
        Lines(str(tmp_path))


def test_a_file_that_grows_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"a\nb\n")
    lines = Lines(str(file))
    file.write_bytes(b"a\nb\nc\n")
    with pytest.raises(InputError, match="changed while it was read"):
        list(lines.chunks())


@pytest.mark.parametrize("size", [1, 7, 8, 100])
def test_rows_differ_where_they_can(size: int) -> None:
    rows = InputRows(1000, size, numbered=True)
    items = [value for chunk in rows.chunks() for value in values(chunk)]
    assert len(items) == 1000 and {len(item) for item in items} == {size}
    assert check(rows.checker(), items, cut=33) == ""
    if size >= 8:
        assert len(set(items)) == 1000


def test_rows_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftfast.bench.loads.inputs.ROWS_BYTES", 50)
    rows = InputRows(12, 10, numbered=True)
    assert [chunk.count for chunk in rows.chunks()] == [5, 5, 2]
    items = [value for chunk in rows.chunks() for value in values(chunk)]
    assert len(set(items)) == 12
    assert check(rows.checker(), items, cut=4) == ""
    endless = InputRows(None, 10)
    chunks = endless.chunks()
    items = [value for _ in range(3) for value in values(next(chunks))]
    assert check(endless.checker(15), items, cut=4) == ""
    assert check(endless.checker(15), items[1:] + items[:1], cut=4) != ""


@pytest.mark.parametrize("count, size", [(0, 100), (1, 0), (1, 9 * 1024 * 1024)])
def test_rows_that_cannot_be(count: int, size: int) -> None:
    with pytest.raises(InvalidOption):
        InputRows(count, size)


@pytest.mark.parametrize("mode", ["throughput", "latency"])
def test_no_more_is_prepared_than_a_quorum_takes(mode: str) -> None:
    """2 GiB of --total began with a refusal of a setting that no one had given."""
    asked = {"prepare": None, "count": 1 << 40, "record_size": 100}
    assert measurement.prepared(mode, asked) == BOUNDS["prepare_bytes"][1]
    assert measurement.prepared(mode, asked | {"prepare": 2047}) == 2047 << 20
    with pytest.raises(InvalidOption, match="^--prepare is at most 2047 MiB, not 2048$"):
        measurement.prepared(mode, asked | {"prepare": 2048})
