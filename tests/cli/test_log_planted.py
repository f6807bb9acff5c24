"""Damage of each kind is planted, and ``kraftfast log verify`` and ``dump`` report each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast.log.idempotence.producer_records import to_tags
from kraftfast.log.snapshots.snapshot_files import snapshot_path
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.types import OffsetAndEpoch
from tests.cli.logs import COMMITTED, CORRUPT, FOREIGN, Done, edit
from tests.damaging import flip
from tests.log.kit import PAGE, TIMESTAMP, Home, append, batch, fill, snapshot

Run = Callable[..., Done]


def closed(home: Home) -> Home:
    """Two segments that were closed in order, of epochs 1 and 2; two snapshots."""
    log = home.open()
    fill(log, 30, epoch=1)
    for number in range(45):  # times that rise, with one that comes again
        time = TIMESTAMP + 1000 * min(number, 30)
        made = batch([b"v" * 900], base_offset=log.end_offset, epoch=2, timestamp=time)
        append(log, made, 2)
    snapshot(home, 10, 1)
    snapshot(home, 40, 2)
    home.close()
    return home


# --- small files and indexes ----------------------------------------------------------------------


def plant_a_checkpoint_that_does_not_parse(home: Home) -> str:
    Path(home.log_path, "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 3O\n")
    return "leader-epoch-checkpoint does not parse"


def plant_an_empty_checkpoint(home: Home) -> str:
    Path(home.log_path, "leader-epoch-checkpoint").write_bytes(b"")
    return "leader-epoch-checkpoint does not parse"


def plant_a_lost_checkpoint(home: Home) -> str:
    Path(home.log_path, "leader-epoch-checkpoint").unlink()
    return "leader-epoch-checkpoint is missing"


def plant_another_topic(home: Home) -> str:
    path = Path(home.log_path, "partition.metadata")
    path.write_bytes(path.read_bytes().replace(b"topic_id: A", b"topic_id: B"))
    return "partition.metadata names topic id"


def plant_a_topic_that_does_not_parse(home: Home) -> str:
    Path(home.log_path, "partition.metadata").write_bytes(b"version: 0")
    return "partition.metadata does not parse"


def plant_a_directory_without_id(home: Home) -> str:
    path = Path(home.path, "meta.properties")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("directory.id")))
    return "meta.properties has no directory.id"


def plant_a_short_index(home: Home) -> str:
    index = Path(home.segment_paths()[0]).with_suffix(".index")
    index.write_bytes(index.read_bytes()[:-8])
    return f"{index} is damaged at byte {index.stat().st_size}"


def plant_an_empty_index(home: Home) -> str:
    index = Path(home.segment_paths()[0]).with_suffix(".index")
    index.write_bytes(b"")
    return f"{index} is damaged at byte 0"


def plant_zeros_in_an_index(home: Home) -> str:
    index = Path(home.segment_paths()[0]).with_suffix(".index")
    index.write_bytes(index.read_bytes()[:16] + bytes(index.stat().st_size - 16))
    return f"{index} is damaged at byte 16"


def plant_a_short_time_index(home: Home) -> str:
    times = Path(home.segment_paths()[0]).with_suffix(".timeindex")
    times.write_bytes(times.read_bytes()[:-12])
    return f"{times} is damaged at byte {times.stat().st_size}"


def plant_a_later_batch_of_the_same_time(home: Home) -> str:
    """Kafka begins there to look for that time, and misses the first record that has it."""
    times = Path(home.segment_paths()[1]).with_suffix(".timeindex")
    at = times.stat().st_size - 1
    edit(times, at, bytes([times.read_bytes()[at] + 1]))
    return f"{times} is damaged at byte {at - 11}"


# --- snapshots ------------------------------------------------------------------------------------


def plant_a_snapshot_of_another_epoch(home: Home) -> str:
    """Its epoch is not that of the log's record before its end; a newer one is right."""
    id = snapshot(home, 20, 2)
    return f"{snapshot_path(home.log_path, id)} ends in epoch 2, but the log's record"


def plant_a_snapshot_without_end(home: Home) -> str:
    path = Path(snapshot_path(home.log_path, OffsetAndEpoch(10, 1)))
    path.write_bytes(path.read_bytes()[: -_last_batch_bytes(path)])
    return f"{path} is damaged at byte {path.stat().st_size}: it ends without"


def plant_producers_that_do_not_parse(home: Home) -> str:
    id = OffsetAndEpoch(12, 1)
    with SnapshotWriter(
        home.disk, home.log_path, id, last_contained_log_timestamp=TIMESTAMP
    ) as writer:
        writer.freeze(to_tags(b"\0\1\2"))
    return snapshot_path(home.log_path, id)


def _last_batch_bytes(path: Path) -> int:
    data, at = path.read_bytes(), 0
    while True:
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size == len(data):
            return size
        at += size


PLANTED = [each for name, each in sorted(globals().items()) if name.startswith("plant_")]


@pytest.mark.parametrize("plant", PLANTED, ids=[each.__name__[6:] for each in PLANTED])
def test_verify_reports(plant: Callable[[Home], str], home: Home, kraftfast: Run) -> None:
    assert kraftfast("log", "verify", closed(home).path).code == 0
    words = plant(home)
    done = kraftfast("log", "verify", home.path)
    assert done.code in (CORRUPT, FOREIGN) and words in done.err, (words, done)


def test_a_start_takes_what_verify_calls_sound(home: Home, kraftfast: Run) -> None:
    """Killed after each kind of small file was written: nothing of that is damage."""
    log = home.open()
    assert kraftfast("log", "verify", home.path).code == 0
    fill(log, 150)
    snapshot(home, 20, 1)
    assert kraftfast("log", "verify", home.path).code == 0, "while it runs"
    log.truncate(30)
    home.kill()
    assert kraftfast("log", "verify", home.path).code == 0
    home.open()
    home.close()
    log = home.open()
    log.truncate(10)  # inside a trimmed segment: appends go on in another
    assert kraftfast("log", "verify", home.path).code == 0
    home.kill()
    assert kraftfast("log", "verify", home.path).code == 0


# --- Kafka's directories --------------------------------------------------------------------------


@pytest.fixture
def kafkas(tmp_path: Path) -> Home:
    """A directory that Kafka left, a log of one segment."""
    (source,) = (COMMITTED / "dynamic-4.3.0" / "n1").glob("*/quorum-state")
    return Home.copied(source.parent, tmp_path / "n1")


@pytest.mark.parametrize("where", ["replica", "segments", "beside a snapshot"])
def test_damage_inside_kafkas_log_is_no_torn_tail(where: str, kafkas: Home, kraftfast: Run) -> None:
    """Kafka's start cuts there, and so does ours; what goes with it may have been acknowledged."""
    path = Path(kafkas.segment_paths()[0])
    if where == "segments":
        for each in Path(kafkas.path).glob("*.properties"):
            each.unlink()
    if where != "beside a snapshot":
        for each in Path(kafkas.log_path).glob("*.checkpoint"):
            each.unlink()
    place = kafkas.log_path if where == "segments" else kafkas.path
    assert kraftfast("log", "verify", place).code == 0
    flip(path, 300)
    done = kraftfast("log", "verify", place)
    assert done.code == CORRUPT and f"{path} is damaged at byte" in done.err, done
    assert "a start cuts" in done.err


def test_a_segment_that_kafkas_log_lost_is_missed(home: Home, kraftfast: Run) -> None:
    log = home.open()
    fill(log, 200)
    home.close()
    assert len(home.segment_paths()) >= 3
    loose = Path(home.path).parent / "loose"
    shutil.copytree(home.log_path, loose)
    assert kraftfast("log", "verify", loose).code == 0
    (loose / Path(home.segment_paths()[1]).name).unlink()
    done = kraftfast("log", "verify", loose)
    assert done.code == CORRUPT and Path(home.segment_paths()[2]).name in done.err, done


# --- dump -----------------------------------------------------------------------------------------


def test_dump_of_a_directory_stops_where_a_segment_is_missing(home: Home, kraftfast: Run) -> None:
    log = home.open()
    fill(log, 200)
    home.close()
    first, second, third, *_ = map(Path, home.segment_paths())
    second.unlink()
    done = kraftfast("log", "dump", home.path)
    assert done.code == CORRUPT, "a gap"
    assert f"{third} is damaged at byte 0 (offset {int(second.stem)})" in done.err
    assert f"Dumping {first}" in done.out and f"Dumping {third}" not in done.out


@pytest.mark.parametrize("missing, code", [(0, FOREIGN), (-1, CORRUPT)], ids=["first", "last"])
def test_dump_of_a_directory_tells_that_an_end_is_missing(
    home: Home, kraftfast: Run, missing: int, code: int
) -> None:
    """It printed what is left, and ended with 0."""
    fill(home.open(), 200)
    home.close()
    Path(home.segment_paths()[missing]).unlink()
    done = kraftfast("log", "dump", home.path)
    assert done.code == code and f"Dumping {home.segment_paths()[0]}" in done.out, done


def test_dump_of_a_directory_stops_where_epochs_fall(home: Home, kraftfast: Run) -> None:
    log = home.open()
    fill(log, 200, epoch=5)
    home.close()
    second = Path(home.segment_paths()[1])
    edit(second, 12, (4).to_bytes(4, "big"))  # outside the CRC
    done = kraftfast("log", "dump", home.path)
    assert done.code == CORRUPT and f"{second} is damaged at byte 0" in done.err, done
    assert "leader epoch" in done.err


def test_dump_of_a_snapshot_says_that_its_end_is_missing(home: Home, kraftfast: Run) -> None:
    plant_a_snapshot_without_end(closed(home))
    path = snapshot_path(home.log_path, OffsetAndEpoch(10, 1))
    done = kraftfast("log", "dump", "--records", path)
    assert done.code == CORRUPT and "it ends without a snapshot's footer" in done.err
    assert "SnapshotHeader" in done.out, "what is there is shown before"


def test_a_page_of_another_kind_is_told(home: Home, kraftfast: Run) -> None:
    """The magic of the newest segment's last page: without it nothing says what was flushed."""
    log = home.open()
    fill(log, 90)
    log.flush()
    home.kill()
    newest = Path(home.segment_paths()[-1])
    flip(newest, newest.stat().st_size - PAGE)
    done = kraftfast("log", "verify", home.path)
    assert done.code == CORRUPT and str(newest) in done.err, done
