"""What a follower asks for a second time is checked, as a start would check it (D10, I15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import CorruptLog
from kraftfast.log.log_start import delete_before
from kraftfast.log.reading.served import Served, check_batches
from tests.damaging import flip
from tests.log.kit import KIB, Home, append, batch, snapshot

FIELDS = {
    "offset": (6, "base offset does not follow"),
    "a lower offset": (7, "base offset does not follow"),
    "length": (8, "batch length out of bounds"),
    "a higher epoch": (12, "leader epoch does not follow"),
    "another epoch of this log": (15, "leader epoch does not follow"),
    "magic": (16, "magic is not 2"),
    "CRC": (17, "CRC-32C does not match"),
    "attributes": (22, "CRC-32C does not match"),
    "record count": (60, "record count"),
    "a record": (70, "CRC-32C does not match"),
}
"""Bytes of a batch, and what is found where one is damaged."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A log of batches of three records in epochs 1, 2, 6 and 7, in some segments."""
    made = Home(tmp_path / "1")
    log = made.open()
    for number in range(60):
        epoch = (1, 2, 6, 7)[number // 15]
        append(log, batch([bytes([number]) * KIB] * 3, epoch=epoch), epoch)
    log.flush()
    yield made
    made.kill()


def offsets(log: Any) -> range:
    """The offsets at which batches begin."""
    return range(log.log_start_offset, log.end_offset, 3)


def test_what_is_asked_for_again_is_sent_again(home: Home) -> None:
    log = home.log
    assert len(log.segments) > 2 and len(log.epochs) == 4
    for bytes_max in (0, 10 * KIB, 1 << 20):
        for offset in range(log.end_offset):  # consumers begin inside a batch, too
            for end_offset in (-1, log.end_offset, offset + 2):
                served = Served()
                first = served.locate(log, offset, bytes_max, end_offset)
                assert served.locate(log, offset, bytes_max, end_offset) == first
                assert first is not None or end_offset == offset + 2
    assert Served().locate(log, log.end_offset, 1 << 20, -1) is None


def test_a_log_that_begins_later_is_sent_again(home: Home) -> None:
    """Its first segment holds batches below it, and of epochs that the checkpoint has no more."""
    log = home.log
    snapshot(home, 24 * 3, 2)
    delete_before(log, 24 * 3)
    assert log.log_start_offset == 72 and log.segments[0].base_offset < 72
    segment = log.segments[0]
    check_batches(log, segment, 0, segment.position, segment.base_offset)
    for offset in offsets(log):
        served = Served()
        assert served.locate(log, offset, 1 << 20, -1) == served.locate(log, offset, 1 << 20, -1)


@pytest.mark.parametrize("at, why", FIELDS.values(), ids=FIELDS.keys())
def test_damage_is_told_with_its_place(home: Home, at: int, why: str) -> None:
    log = home.log
    for offset in offsets(log)[1:-1]:
        segment = log.segment_of(offset)
        position = segment.position_of(offset)
        with flipped(segment.file.path, position + at):
            served = Served()
            with pytest.raises(CorruptLog, match=why) as told:
                for _again in range(2):
                    served.locate(log, offset, 10 * KIB, -1)
        found = told.value
        assert (found.path, found.offset) == (segment.file.path, offset)
        # With a lower offset it ends before the one that is asked for: the next is in its place.
        places = (position, segment.position_of(offset + 3)) if at == 7 else (position,)
        assert found.position in places


@contextmanager
def flipped(path: str, position: int) -> Iterator[None]:
    """Change a bit of a file, and change it back."""
    flip(path, position)
    yield
    flip(path, position)
