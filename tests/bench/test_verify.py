"""Replicas compared while retention goes on, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraftfast.bench import same_logs
from kraftfast.bench.loads.inputs import InputRows
from kraftfast.log.reading.reader import LogReader
from tests.log.kit import KIB, Home, append, batch

RECORDS, SIZE, IN_A_BATCH = 200, 1000, 4


@pytest.fixture
def paths(tmp_path: Path) -> dict[int, str]:
    """Two logs of the same records, in several segments each."""
    found = {}
    for id in (1, 2):
        home = Home(tmp_path / str(id))
        log = home.open(segment_bytes=64 * KIB, stride_bytes=32 * KIB)
        for first in range(0, RECORDS, IN_A_BATCH):
            append(log, batch(values()[first : first + IN_A_BATCH], base_offset=first), 0)
        home.close()
        found[id] = home.log_path
    return found


def values() -> list[bytes]:
    (chunk,) = InputRows(RECORDS, SIZE).chunks()
    return [row.tobytes() for row in chunk.source]


def first_segment(path: str) -> Path:
    return min(Path(path).glob("*.log"))


def drop_while_read(monkeypatch: pytest.MonkeyPatch, path: str, method: str, times: int) -> None:
    """Have retention take the first segment of a log each time that it begins to be read."""
    read, left = getattr(LogReader, method), [times]

    def begin(self: LogReader, *arguments: Any, **words: Any) -> Iterator[Any]:
        if self.log_path == path and left[0]:
            left[0] -= 1
            first_segment(path).unlink()
        return iter(read(self, *arguments, **words))

    monkeypatch.setattr(LogReader, method, begin)


def test_equal_logs_are_equal(paths: dict[int, str]) -> None:
    compared, problem = same_logs.compare_replicas(paths, RECORDS)
    assert problem == "" and compared > RECORDS * SIZE


@pytest.mark.parametrize("id", [1, 2])
def test_replicas_whose_starts_move_meanwhile(
    paths: dict[int, str], monkeypatch: pytest.MonkeyPatch, id: int
) -> None:
    drop_while_read(monkeypatch, paths[id], "spans", 2)
    compared, problem = same_logs.compare_replicas(paths, RECORDS)
    assert problem == "" and compared > 0
    assert LogReader(paths[id]).log_start_offset > 0


def test_records_whose_log_starts_later_meanwhile(
    paths: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_while_read(monkeypatch, paths[1], "columns", 2)
    checker = partial(InputRows(RECORDS, SIZE).checker, RECORDS)
    assert same_logs.compare_records(paths[1], 0, RECORDS, checker) == ""


def test_a_start_that_never_stands_still_is_told(
    paths: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_logs, "SETTLE_S", 0.0)
    drop_while_read(monkeypatch, paths[1], "spans", 1)
    assert "beyond offset" in same_logs.compare_replicas(paths, RECORDS)[1]


def test_one_byte_that_differs_is_found(paths: dict[int, str]) -> None:
    file = first_segment(paths[2])
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)
    assert "differ in the batch at offset 0" in same_logs.compare_replicas(paths, RECORDS)[1]
    assert "CRC" in same_logs.compare_records(
        paths[2], 0, RECORDS, partial(InputRows(RECORDS, SIZE).checker, RECORDS)
    )
