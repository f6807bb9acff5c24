"""What a follower is sent is checked, and what it asks for again as a start would (D10, I14)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import CorruptLog
from kraftfast.log.reading import served as served_module
from kraftfast.log.reading.served import Served, check_stored_batches
from kraftfast.log.snapshots.log_start import delete_before
from tests.damaging import flip
from tests.log.kit import KIB, Home, append, batch, snapshot

HEADER_BYTES = 61
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


def neighbours(log: Any) -> Iterator[tuple[Any, int, int]]:
    """Segment, and the offsets of a batch in it and of the next one, if that is there, too."""
    for offset in offsets(log)[:-1]:
        segment = log.segment_of(offset)
        if log.segment_of(offset + 3) is segment:
            yield segment, offset, offset + 3


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
    check_stored_batches(log, segment, 0, segment.position, segment.base_offset)
    for offset in offsets(log):
        served = Served()
        assert served.locate(log, offset, 1 << 20, -1) == served.locate(log, offset, 1 << 20, -1)


@pytest.mark.parametrize("at, why", FIELDS.values(), ids=FIELDS.keys())
def test_damage_is_told_with_its_place(home: Home, at: int, why: str) -> None:
    log = home.log
    for offset in offsets(log)[1:-1]:
        segment = log.segment_of(offset)
        position = segment.place_of(offset)[0]
        with flipped(segment.file.path, position + at):
            served = Served()
            with pytest.raises(CorruptLog, match=why) as told:
                for _again in range(2):
                    served.locate(log, offset, 10 * KIB, -1)
        found = told.value
        assert (found.path, found.offset) == (segment.file.path, offset)
        # With a lower offset it ends before the one that is asked for: the next is in its place.
        places = (position, segment.place_of(offset + 3)[0]) if at == 7 else (position,)
        assert found.position in places


@pytest.mark.parametrize("size", [HEADER_BYTES, 4 * KIB], ids=["header", "page"])
def test_zeros_are_damage(home: Home, size: int) -> None:
    """A page that was never written: it looked like the end of the log, for ever."""
    log = home.log
    for offset in offsets(log)[1:-3]:
        segment = log.segment_of(offset)
        position = segment.place_of(offset)[0]
        with changed(segment.file.path, position, bytes(size)):
            for asked in (offset, max(offset - 3, segment.base_offset)):
                served = Served()
                with pytest.raises(CorruptLog, match="zeros, where a batch should begin") as told:
                    for _again in range(3):
                        found = served.locate(log, asked, 64 * KIB, -1)
                        assert found is not None and asked < offset
                        asked += 3  # what is sound before it was sent
                assert (told.value.position, told.value.offset) == (position, offset)


@pytest.mark.parametrize("name", ["offset", "a lower offset", "a higher epoch", "another epoch of"])
def test_what_lies_outside_the_crc_is_checked_before_it_is_sent(home: Home, name: str) -> None:
    """A follower would take a batch of another epoch (I2)."""
    at = next(at for each, (at, _) in FIELDS.items() if each.startswith(name))
    log = home.log
    for offset in offsets(log)[1:-1]:
        segment = log.segment_of(offset)
        with flipped(segment.file.path, segment.place_of(offset)[0] + at):
            for end_offset in (-1, log.end_offset):
                with pytest.raises(CorruptLog):
                    Served().locate(log, offset, 10 * KIB, end_offset)


@pytest.mark.parametrize("bit", [1, 2, 4])
def test_a_batch_with_another_offset_stands_for_no_other(home: Home, bit: int) -> None:
    """With a higher offset it seems to hold those of the next one, for which it was sent for ever:
    a follower rejected it, and no event reported the damage (L5).
    """
    log = home.log
    for segment, damaged, asked in neighbours(log):
        position, sound = segment.place_of(damaged)[0], segment.place_of(asked)[0]
        with changed(segment.file.path, position + 7, bytes([(damaged ^ bit) & 255])):
            served = Served()
            for _again in range(2):
                found = served.locate(log, asked, 10 * KIB, -1)
                assert found is not None and found[:2] == (segment, sound)
            for offset in range(damaged, asked):
                with pytest.raises(CorruptLog) as told:
                    Served().locate(log, offset, 10 * KIB, -1)
                assert (told.value.position, told.value.offset) == (position, damaged)


@pytest.mark.parametrize("at", [0, 7, 8, 11, 16, 22, 26, 57, 60, "zeros"])
def test_what_is_sound_behind_damage_is_sent(home: Home, at: int | str) -> None:
    """L5: another log has what is damaged, and is damaged elsewhere: between them they have all."""
    log = home.log
    for segment, damaged, asked in neighbours(log):
        position, sound = segment.place_of(damaged)[0], segment.place_of(asked)[0]
        before = bytes(segment.file.view(position, position + HEADER_BYTES))
        data = bytes(HEADER_BYTES)
        if isinstance(at, int):
            data = before[:at] + bytes([before[at] ^ 128]) + before[at + 1 :]
        with changed(segment.file.path, position, data):
            for _again in range(2):
                found = Served().locate(log, asked, 10 * KIB, -1)
                assert found is not None and found[:2] == (segment, sound)


def test_a_batch_in_a_record_of_a_damaged_one_is_not_sent(tmp_path: Path) -> None:
    """It has the offset that is asked for, and its CRC holds."""
    home = Home(tmp_path / "1")
    log = home.open()
    value = batch([b"not this"], base_offset=1, epoch=1)
    append(log, batch([value], epoch=1), 1)
    for _ in range(2):
        append(log, batch([b"this"], epoch=1), 1)
    segment = log.active
    sound = segment.place_of(1)[0]
    flip(segment.file.path, 16)
    found = Served().locate(log, 1, 10, -1)
    assert found is not None and found[1] == sound
    home.kill()


@pytest.mark.parametrize("at", [12, 15, 70])
def test_what_is_sound_in_front_of_damage_is_sent(home: Home, at: int) -> None:
    log = home.log
    segment = log.segments[1]
    first, second, damaged = (segment.base_offset + 3 * each for each in range(3))
    with flipped(segment.file.path, segment.place_of(damaged)[0] + at):
        served = Served()
        if at == 70:
            served.locate(log, first, 64 * KIB, -1)
        assert served.locate(log, first, 64 * KIB, -1) == (segment, 0, segment.place_of(damaged)[0])
        assert served.locate(log, second, 10, -1) is not None
        with pytest.raises(CorruptLog):
            for _again in range(2):
                served.locate(log, damaged, 64 * KIB, -1)


def test_of_a_segment_only_what_is_near_is_looked_at(home: Home) -> None:
    """A gigabyte would stop a leader for as long as followers wait for it (L1)."""
    log = home.log
    segment = log.segments[1]
    early, late = segment.base_offset, segment.end_offset - 6
    with flipped(segment.file.path, segment.place_of(early)[0] + 70):
        with changed(segment.file.path, segment.place_of(late)[0], bytes(HEADER_BYTES)):
            with pytest.raises(CorruptLog) as told:
                Served().locate(log, late, 64 * KIB, -1)
    assert told.value.offset == late


def test_behind_an_indexed_batch_without_a_header_only_what_is_near_is_looked_at(
    home: Home,
) -> None:
    log = home.log
    segment = log.segments[1]
    early, asked = segment.base_offset, segment.end_offset - 1
    indexed = segment.indexed_place(asked)[0]
    assert indexed > segment.place_of(early + 3)[0]
    with flipped(segment.file.path, segment.place_of(early)[0] + 70):
        with changed(segment.file.path, indexed, bytes(HEADER_BYTES)):
            with pytest.raises(CorruptLog) as told:
                Served().locate(log, asked, 64 * KIB, -1)
    assert told.value.position == indexed


def test_what_was_appended_since_is_sent_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that keeps up costs no look at what it is sent."""
    log, served = home.log, Served()
    looked: list[int] = []
    whole = served_module.check_stored_batches

    def look(log: Any, segment: Any, position: int, length: int, offset: int, crc: bool) -> int:
        looked.append(offset)
        return whole(log, segment, position, length, offset, crc)

    monkeypatch.setattr(served_module, "check_stored_batches", look)
    asked = log.active.base_offset
    served.locate(log, asked, 1 << 20, -1)
    for _ in range(3):
        offset = log.end_offset
        for _more in range(2):
            append(log, batch([b"x"] * 3, epoch=7), 7)
        assert served.locate(log, offset, 10, -1) is not None  # one batch of the two
        assert served.locate(log, offset + 3, 1 << 20, -1) is not None
        looked.append(-1)
    assert looked == [asked, offset - 9, -1, offset - 3, -1, offset + 3, -1]


@contextmanager
def flipped(path: str, position: int) -> Iterator[None]:
    """Change a bit of a file, and change it back."""
    flip(path, position)
    yield
    flip(path, position)


@contextmanager
def changed(path: str, position: int, data: bytes) -> Iterator[None]:
    """Write other bytes into a file, and those that were there again."""
    with open(path, "r+b") as file:
        before = os.pread(file.fileno(), len(data), position)
        os.pwrite(file.fileno(), data, position)
        yield
        os.pwrite(file.fileno(), before, position)
