"""One segment: its indexes as Kafka's, places in it, cuts, its last page."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from kraftfast import limits
from kraftfast.errors import StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.segment import Segment, is_prepared
from kraftfast.log.segment_file import SegmentFile
from tests.log.kit import KIB, PAGE, TIMESTAMP, Home, append, batch, batch_of_size, fill


def trimmed_form(data: bytes, entry_bytes: int) -> bytes:
    """An index without the zeros that Kafka prepares."""
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_bytes) * entry_bytes]


RESTARTED = (
    "dynamic-3.9.2/stopped/n1", "dynamic-4.3.0/stopped/n1", "dynamic-4.3.0/stopped/n3",
    "raftserver-4.3.0/stopped/n1", "static-3.9.2/stopped/n1", "static-4.3.0/stopped/n2",
    "static-4.3.0/stopped/n3", "static-4.3.0/upgraded-before-election/n2", "data/dynamic-4.3.0/n1",
)  # fmt: skip
"""After a restart or a cut Kafka counts the bytes to the next entry anew, which leaves no trace."""


def test_indexes_are_those_that_kafka_wrote(recorded: list[Path], tmp_path: Path) -> None:
    compared = 0
    for log_path in recorded:
        if str(log_path.parent).endswith(RESTARTED):
            continue
        home = Home.copied(log_path, tmp_path / str(compared))
        log = home.open(segment_bytes=12_000)
        for segment in log.segments:
            stem = log_path / f"{segment.base_offset:020d}"
            if not stem.with_suffix(".index").exists():
                continue
            theirs = trimmed_form(stem.with_suffix(".index").read_bytes(), 8)
            assert segment.index_bytes() == theirs, stem
            theirs = trimmed_form(stem.with_suffix(".timeindex").read_bytes(), 12)
            closed = segment.time_index_bytes(False), segment.time_index_bytes(True)
            assert theirs in closed, stem
            compared += 1
        home.close()
    assert compared >= (30 if len(recorded) > 9 else 2)


def log_index(path: Path) -> bytes:
    """The index by Kafka's rule, in plain Python: an entry once more than 4096 bytes lie behind."""
    from kraftfast.record.batch import batches

    made, since = [], 0
    for one in batches(path.read_bytes()):
        if since > limits.INDEX_INTERVAL_BYTES:
            made.append(struct.pack(">ii", one.last_offset - int(path.name[:20]), one.position))
            since = 0
        since += one.size
    return b"".join(made)


def test_indexes_agree_with_the_rule_in_plain_python(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(segment_bytes=1 << 20, stride_bytes=1 << 20)
    for size in (69, 5000, 4096, 4097, 100, 100, 4000, 90, 9000, 69) * 20:
        append(log, batch_of_size(size))
    home.close()
    path = Path(home.segment_paths()[0])
    assert path.with_suffix(".index").read_bytes() == log_index(path) != b""


def test_time_index(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    stamps = [5, 9, 7, 9, 20, 3]
    for (
        stamp
    ) in stamps:  # more than the interval each, so that each but the first may have an entry
        append(log, batch([bytes(4200)], timestamp=TIMESTAMP + stamp))
    home.close()
    data = Path(home.segment_paths()[0]).with_suffix(".timeindex").read_bytes()
    entries = [struct.unpack_from(">qi", data, at) for at in range(0, len(data), 12)]
    assert entries == [(TIMESTAMP + 9, 1), (TIMESTAMP + 20, 4)]


def test_every_offset_is_found_and_no_other(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(segment_bytes=1 << 20, stride_bytes=1 << 20)
    places = {}
    for i in range(300):
        position = log.active.position
        offset = append(log, batch([bytes(100)] * (1 + i % 7)))
        places.update(dict.fromkeys(range(offset, log.end_offset), position))
    segment = log.active
    for offset in range(-1, log.end_offset + 2):
        assert segment.place_of(offset)[0] == places.get(offset, -1)
    segment_of = {position: offset for offset, position in sorted(places.items(), reverse=True)}
    for position, offset in segment_of.items():
        assert segment.offset_at(position) == offset
    assert segment.offset_at(1) == segment.offset_at(segment.position) == -1
    home.close()
    for offset in (5, log.end_offset - 1):
        assert segment.place_of(offset)[0] == -1, "a closed segment holds nothing"


def test_a_cut_forgets_exactly_what_is_behind_it(tmp_path: Path) -> None:
    whole, cut = Home(tmp_path / "whole"), Home(tmp_path / "cut")
    logs = [home.open(segment_bytes=1 << 20, stride_bytes=1 << 20) for home in (whole, cut)]
    for log, count in zip(logs, (100, 150)):
        fill(log, count)
    logs[1].truncate(100)
    one, other = logs[0].active, logs[1].active
    for name in ("position", "end_offset", "max_timestamp", "first_timestamp", "last_epoch"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.index_bytes() == other.index_bytes() != b""
    assert one.time_index_bytes(False) == other.time_index_bytes(False)
    whole.close()
    cut.close()


# --- the last page ---


def prepared_file(path: Path, capacity: int = 64 * KIB) -> Segment:
    file = Disk().create_segment(str(path), capacity + PAGE)
    file.prepare(0, capacity + PAGE, "written")
    segment = Segment(file, 0, capacity)
    segment.draft_page(0, 0, 1)
    assert not is_prepared(file)
    segment.seal_page()
    return segment


def test_the_page_has_its_words(tmp_path: Path) -> None:
    segment = prepared_file(tmp_path / "file")
    assert segment.has_page and is_prepared(segment.file)
    assert (segment.generation(), segment.stored_prepared()) == (1, 0)
    assert segment.watermark() == ((0, 0), (0, 0))
    segment.note_reserved(12345)
    assert segment.stored_prepared() == segment.prepared == segment.reserved == 12345
    again = Segment(Disk().open_segment(str(tmp_path / "file"), True), 0, 64 * KIB)
    assert again.stored_prepared() == 12345 and again.has_page


def test_words_are_aimed_before_a_sync_and_reached_after_it(tmp_path: Path) -> None:
    """D10: ``flushed`` is lowered at once and raised only by ``reach_watermark``."""
    segment = prepared_file(tmp_path / "file")
    segment.aim_watermark(5, 1, 0)
    assert segment.watermark() == ((5, 1), (0, 0))
    segment.reach_watermark()
    assert segment.watermark() == ((5, 1), (5, 1))
    segment.aim_watermark(10, 3, 0)
    assert segment.watermark() == ((10, 3), (5, 1))
    segment.aim_watermark(4, 1, 0)
    assert segment.watermark() == ((4, 1), (4, 1))


def test_one_torn_slot_leaves_the_other(tmp_path: Path) -> None:
    segment = prepared_file(tmp_path / "file")
    segment.draft_page(9, 2, 1)
    segment.aim_watermark(7, 1, 0)  # the other slot
    page = segment.file.size - PAGE
    with open(tmp_path / "file", "r+b") as file:
        for slot, survivor in ((512, ((9, 2), (9, 2))), (576, ((7, 1), (7, 1)))):
            file.seek(page + slot)
            kept = file.read(64)
            file.seek(page + slot + 20)
            file.write(b"\xee")
            file.flush()
            assert segment.watermark() == survivor or segment.watermark() == ((7, 1), (7, 1))
            file.seek(page + slot)
            file.write(kept)
            file.flush()
        for slot in (512, 576):
            file.seek(page + slot + 20)
            file.write(b"\xee")
        file.flush()
    assert segment.watermark() is None


def test_a_record_cannot_make_a_trimmed_file_look_prepared(tmp_path: Path) -> None:
    """A value that puts the page's magic where a page would begin: the file keeps its own page."""
    home = Home(tmp_path)
    log = home.open()
    magic = Path(home.segment_paths()[0]).read_bytes()[-PAGE : -PAGE + 8]
    for size in range(2 * PAGE, 3 * PAGE):  # a batch that fills pages, the last of them the value's
        one = batch([bytes(size - PAGE) + magic + bytes(PAGE - 8 - 1)])
        if len(one) % PAGE == 0:
            break
    ends = len(one) - one.index(magic)  # what stands behind the value: its count of headers
    value = bytes(size - PAGE - (PAGE - ends)) + magic + bytes(2 * PAGE - 9 - ends)
    one = batch([value])
    assert len(one) % PAGE == 0 and one.index(magic) == len(one) - PAGE
    append(log, one)
    home.close()
    path = home.segment_paths()[0]
    assert os.path.getsize(path) > len(one), "it was not trimmed"
    log = home.open()
    assert log.end_offset == 1 and bytes(log.active.file.view(0, len(one)))[61:] == one[61:]
    home.close()


# --- the file ---


def test_a_file_that_cannot_grow_stays_as_it_is(tmp_path: Path) -> None:
    file = Disk().create_segment(str(tmp_path / "file"), 8192)
    file.prepare(0, 8192, "written")
    with pytest.raises(StorageError):
        file.resize(2**62)
    assert file.size == 8192 and bytes(file.view(0, 8192)) == bytes(8192)
    file.resize(100)
    assert file.size == 100 == os.path.getsize(tmp_path / "file")
    file.resize(8192)
    assert bytes(file.view(0, 8192)) == bytes(8192)
    with pytest.raises(TypeError):
        file.view(0, 8192)[0] = 1  # it was writable once, and said that it is not
    file.close()
    file.close()
    for start, end in ((0, 1), (2, 1)):
        with pytest.raises(ValueError):
            file.view(start, end)


def test_files_that_are_dropped_leak_nothing(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    (tmp_path / "file").write_bytes(bytes(4096))
    before = open_files()
    for _ in range(50):
        Disk().open_segment(str(tmp_path / "file"), True)
    with open("/proc/self/maps") as maps:
        assert str(tmp_path / "file") not in maps.read()
    assert open_files() == before


def test_who_holds_a_file_and_who_excludes_whom(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))

    def opened() -> SegmentFile:
        return Disk().open_segment(str(tmp_path / "file"), True)

    owner, one, other = opened(), opened(), opened()
    assert one.share() and other.share()
    assert not owner.exclude()
    one.close()
    assert not owner.exclude()
    other.close()
    late = opened()
    assert owner.exclude() and not late.share(), "held until it is given back"
    owner.readmit()
    assert late.share()


def test_data_end_skips_holes(tmp_path: Path) -> None:
    file = Disk().create_segment(str(tmp_path / "file"), 1 << 20)
    assert file.data_end() == 0
    file.prepare(0, 8192, "written")
    file.prepare(65536, 65536 + 4096, "mapped")
    assert file.data_end() == 65536 + 4096
    with pytest.raises(StorageError):
        Disk().create_segment(str(tmp_path / "no" / "file"), 1)


def test_a_file_that_cannot_be_mapped_says_why_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.touch()
    with pytest.raises(StorageError, match=r"Cannot allocate memory: raise .*ulimit -v unlimited"):
        SegmentFile(str(path), os.open(path, os.O_RDWR), 1 << 50, True)
