"""Damage beside what is asked for, cut or replayed: nothing forged is believed, no mark is lowered.

No CRC covers a base offset (D10), and a record may hold bytes that look like a batch (D20).
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kraftfast.core import messages as msg
from kraftfast.errors import CorruptLog, DiskFull
from kraftfast.log.log import Log
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.reading.served import Served
from kraftfast.log.small_files import marks
from kraftfast.node.translation.diverging import check_cut
from kraftfast.types import OffsetAndEpoch
from tests.core.replicas import started
from tests.damaging import flip
from tests.log.kit import Home, append, batch, fill
from tests.log.test_producers import a_twin


def flip_in(log: Log, offset: int, byte: int) -> None:
    """Change a byte of the header of the batch that begins at an offset."""
    flip(Path(log.active.file.path), log.active.place_of(offset)[0] + byte)


def flushed(path: Path) -> tuple[Home, Log]:
    """A log of 12 batches of three records, all of it on disk."""
    home = Home(path)
    log = home.open()
    for _ in range(12):
        append(log, batch([b"x" * 600] * 3, epoch=1), 1)
    log.flush()
    return home, log


def rolled(path: Path, segments: int) -> tuple[Home, Log]:
    """A log of so many segments, all of it on disk."""
    home = Home(path)
    log = home.open()
    while len(log.segments) < segments:
        append(log, batch([b"x" * 2000], epoch=1), 1)
    log.flush()
    return home, log


@pytest.mark.parametrize("byte", [8, 16, 57])
def test_a_batch_within_a_sound_record_is_never_served(tmp_path: Path, byte: int) -> None:
    """D20: the one behind it is damaged, and one that its record holds would fit in its place."""
    home = Home(tmp_path)
    log = home.open()
    fill(log, 4)
    forged = batch([b"forged"], base_offset=5, epoch=1)
    assert forged[-1] == 0, "the last byte of the record around it completes it"
    append(log, batch([b"p" * 1100 + forged[:-1]], epoch=1), 1)
    for _ in range(3):
        append(log, batch([b"real"], epoch=1), 1)
    log.flush()
    flip_in(log, 5, byte)
    with pytest.raises(CorruptLog):
        served = Served()
        for _ in range(2):  # CRCs are looked at where it is asked for again
            served.locate(log, 5, 300, -1)
    home.kill()


def test_batches_that_a_record_holds_lead_to_nothing(tmp_path: Path) -> None:
    """D20: a size that changed leads to two that follow each other; the second was served."""
    home = Home(tmp_path)
    log = home.open()
    fill(log, 4, 300)  # no place is indexed
    forged = batch([b"1"], base_offset=5, epoch=1) + batch([b"2"], base_offset=6, epoch=1)
    append(log, batch([b"x" * 40], epoch=1), 1)
    append(log, batch([b"p" * 100 + forged], epoch=1), 1)
    append(log, batch([b"real"], epoch=1), 1)
    log.flush()
    damaged, real = log.active.place_of(4)[0], log.active.place_of(6)
    path = Path(log.active.file.path)
    data = bytearray(path.read_bytes())
    data[damaged + 8 : damaged + 12] = (data.index(forged) - damaged - 12).to_bytes(4, "big")
    path.write_bytes(data)
    assert log.active.place_of(6) == real
    home.kill()


def test_what_is_sent_goes_by_counts(tmp_path: Path) -> None:
    """D10: a leader ended by an assertion over a base offset in a range that it just sent."""
    home, log = flushed(tmp_path)
    position = log.active.place_of(30)[0]
    flip_in(log, 30, 3)
    assert log.span(log.active, position, 30, 1 << 30, 33)[1] == 33
    assert log.span(log.active, 0, 0, position, -1) == (position, 30)
    home.kill()


def test_a_batch_that_spans_the_one_asked_for_is_not_served(tmp_path: Path) -> None:
    """D20: a record of a damaged batch began one that ended where the sound one behind it ends."""
    home = Home(tmp_path)
    log = home.open()
    fill(log, 4, 300)
    sound = batch([b"real"], base_offset=5, epoch=1)
    forged = batch([b"\0" + sound[:-1]], base_offset=5, epoch=1)
    assert forged.endswith(b"\0" + sound), "the rest of the damaged batch, and all of the sound one"
    append(log, batch([b"p" * 100 + forged[: -len(sound) - 1]], epoch=1), 1)
    append(log, sound, 1)
    append(log, batch([b"next"], epoch=1), 1)
    log.flush()
    flip_in(log, 4, 17)
    with pytest.raises(CorruptLog):
        Served().locate(log, 5, 300, -1)
    home.kill()


def test_an_index_entry_leads_into_no_record(tmp_path: Path) -> None:
    """D20, I23: it has no checksum, and what a record holds was read as a batch of the log."""
    home = Home(tmp_path)
    log = home.open()
    fill(log, 20)
    forged = batch([b"forged"], base_offset=15, epoch=1)
    append(log, batch([b"p" * 500 + forged + b"p" * 500], epoch=1), 1)
    fill(log, 20)
    home.close()
    data = Path(home.segment_paths()[0]).read_bytes()
    index = Path(home.log_path, f"{0:020d}.index")
    entries = [list(each) for each in struct.iter_unpack(">ii", index.read_bytes())]
    (entry,) = [each for each in entries if each[0] == 15]
    entry[1] = data.index(forged)
    index.chmod(0o600)
    index.write_bytes(b"".join(struct.pack(">ii", *each) for each in entries))
    with LogReader(home.log_path) as reader:
        assert [record.value for record in reader.records(15, 16)] != [b"forged"]


def test_a_cut_goes_by_counts(tmp_path: Path) -> None:
    """D10: a base offset that changed lowered the watermark, and the next start cut the rest."""
    home, log = flushed(tmp_path)
    flip_in(log, 30, 7)
    log.truncate(33)
    assert log.active.watermark() == ((33, 1), (33, 1))
    home.kill()
    with pytest.raises(CorruptLog, match="offset 30"):
        home.open()


def test_a_cut_behind_damage_changes_nothing(tmp_path: Path) -> None:
    """D10: it ended by an assertion after the durable end had been lowered."""
    home, log = flushed(tmp_path)
    flip_in(log, 6, 16)
    before = log.active.watermark(), log.end_offset, log.truncations
    with pytest.raises(CorruptLog):
        log.truncate(33)
    assert (log.active.watermark(), log.end_offset, log.truncations) == before
    home.kill()


def test_a_cut_between_segments_checks_the_one_before(tmp_path: Path) -> None:
    """D10: those behind it were removed before it ended by an assertion."""
    home, log = rolled(tmp_path, 3)
    segment, there = log.segments[1], home.segment_paths()
    flip(Path(segment.file.path), segment.place_of(segment.base_offset + 5)[0] + 16)
    with pytest.raises(CorruptLog, match=f"offset {segment.base_offset + 5}"):
        log.truncate(segment.end_offset)
    assert (home.segment_paths(), log.truncations) == (there, 0)
    home.kill()


def test_a_cut_that_the_state_of_producers_denies(tmp_path: Path) -> None:
    """D25: the log's end was lowered already when what is kept turned out to be damaged."""
    with a_twin(tmp_path) as twin:
        for number in range(9):
            twin.append(7 + number % 2, 0, number // 2 * 2, 2)
        log = twin.log
        log.flush()
        before = log.end_offset, log.truncations, log.active.watermark()
        flip_in(log, 4, 70)
        with pytest.raises(CorruptLog):
            log.truncate(14)
        assert (log.end_offset, log.truncations, log.active.watermark()) == before


def test_a_crash_as_a_trimmed_segment_is_cut_leaves_no_tail(tmp_path: Path) -> None:
    """D10: no page was left to tell what had been flushed, and damage was cut off as torn."""
    home, log = rolled(tmp_path, 4)
    assert log.retire() == 3
    segment = log.segments[1]
    damaged = segment.place_of(segment.base_offset + 5)[0] + 100

    def rename(*_names: str) -> None:
        raise KeyboardInterrupt

    home.disk.rename, renames = rename, home.disk.rename  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        log.truncate(log.segments[2].base_offset + 7)
    home.disk.rename = renames  # type: ignore[method-assign]
    flip(Path(segment.file.path), damaged)
    home.kill()
    with pytest.raises(CorruptLog, match=f"offset {segment.base_offset + 5}"):
        home.open()


def test_a_cut_that_a_full_disk_refuses_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D25: the durable end was lowered in memory alone, and the next cut did not lower it."""
    home = Home(tmp_path)
    fill(home.open(), 10)
    home.close()
    log, rewrite = home.open(), marks.rewrite

    def full(*_mark: object) -> None:
        raise DiskFull("full")

    monkeypatch.setattr(marks, "rewrite", full)
    with pytest.raises(DiskFull):
        log.truncate(5)
    monkeypatch.setattr(marks, "rewrite", rewrite)
    assert log.end_offset == 10
    log.truncate(5)
    home.kill()
    assert home.open().end_offset == 5
    home.kill()


def test_indexes_that_find_no_space_undo_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D25: DiskFull says that nothing was cut, and the log was cut already."""
    home, log = rolled(tmp_path, 4)
    assert log.retire() == 3
    end_offset = log.segments[2].base_offset + 7

    def full(*_file: object) -> None:
        raise DiskFull("full")

    replace_file = home.disk.replace_file
    monkeypatch.setattr(
        home.disk,
        "replace_file",
        lambda path, data: full() if path.endswith("index") else replace_file(path, data),
    )
    log.truncate(end_offset)
    assert log.end_offset == end_offset
    home.kill()
    monkeypatch.undo()
    assert home.open().end_offset == end_offset
    home.kill()


@pytest.mark.parametrize("byte", [7, 8, 16, 40])
def test_what_is_damaged_can_be_cut(tmp_path: Path, byte: int) -> None:
    """L5: the first batch of what a new leader does not have; the follower never came back."""
    home = Home(tmp_path)
    log = home.open()
    for values in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f", b"g"]):
        append(log, batch(values), 1)
    flip_in(log, 4, byte)
    core = started(epoch=2, leader=2, log=((1, 7),))
    check_cut(core, log, msg.FetchResponse(diverging=OffsetAndEpoch(4, 1)))
    log.truncate(4)
    append(log, batch([b"new"]), 1)
    log.flush()
    home.kill()
    assert home.open().end_offset == 5
    home.kill()


def test_no_state_is_made_of_a_batch_that_its_crc_denies(tmp_path: Path) -> None:
    """D22: a sequence that changed would refuse the next batch of its producer, or double one."""
    with a_twin(tmp_path) as twin:
        for number in range(9):
            twin.append(7 + number % 2, 0, number // 2 * 2, 2)
        flip_in(twin.log, 16, 56)
        with pytest.raises(CorruptLog):
            twin.log.producers.freeze(18, twin.log.segments)
