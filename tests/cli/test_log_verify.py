"""``kraftfast log verify`` and ``trim``: damage at its place, tails by kind, Kafka's files left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast.errors import NotFormatted
from kraftfast.log.disk import Disk
from kraftfast.log.reading.held_segment import HeldSegment
from kraftfast.log.small_files import marks
from kraftfast.log.small_files.committed_floor import FLOOR, write_floor
from kraftfast.record.checksum import crc32c
from kraftfast.types import OffsetAndEpoch
from tests.cli.kit import fails, run
from tests.cli.logs import COMMITTED, CORRUPT, FOREIGN, IN_USE, INPUT, Done, contents, edit
from tests.log.kit import PAGE, Home, batch_of_size, fill

FIFO_S = 20

# --- verify ---------------------------------------------------------------------------------------


def test_verify_counts_and_says_what_lies_behind(
    home: Home, kraftfast: Callable[..., Done]
) -> None:
    log = home.open()
    stored = fill(log, 150)
    log.flush()
    for state, tail in (("runs", "zeros"), ("was killed", "zeros"), ("was closed", "none")):
        if state == "was killed":
            home.kill()
        elif state == "was closed":
            home.open()
            home.close()
        (found,) = kraftfast("log", "verify", "--json", "--records", home.path).objects
        assert found["batches"] == found["records"] == found["end_offset"] == 150, state
        assert found["bytes"] == sum(map(len, stored)) and found["tail"] == tail, state
        assert found["epochs"] == [[1, 0]] and found["segments"] == len(home.segment_paths())
    done = kraftfast("log", "verify", home.path)
    assert done.code == 0 and "150 records" in done.out and "end offset 150" in done.out
    for path in home.segment_paths():
        assert kraftfast("log", "verify", path).code == 0
    assert "leader-epoch-checkpoint agrees: 1 epochs" in done.out


def test_verify_finds_damage_where_it_is(home: Home, kraftfast: Callable[..., Done]) -> None:
    stored = fill(home.open(), 150)
    home.close()
    second = home.segment_paths()[1]
    first_offset = int(Path(second).stem)
    at = len(stored[0])
    edit(second, at + 80, b"\xff")
    for place in (home.path, home.log_path, second):
        done = kraftfast("log", "verify", place)
        assert done.code == CORRUPT and done.out == ""
        assert f"{second} is damaged at byte {at} (offset {first_offset + 1})" in done.err


@pytest.mark.parametrize("command", [("log", "verify"), ("log", "dump"), ("storage", "inspect")])
def test_a_fifo_in_place_of_a_segment_is_named_at_once(
    home: Home, command: tuple[str, str]
) -> None:
    fill(home.open(), 1)
    home.close()
    (path,) = home.segment_paths()
    os.unlink(path)
    os.mkfifo(path)
    text = f"{path} is a FIFO, and must be a regular file\n"
    assert fails(run(*command, home.path, timeout=FIFO_S), FOREIGN).endswith(text)


def test_a_fifo_in_place_of_a_quorums_description_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "quorum.json")
    text = f"{tmp_path}/quorum.json is a FIFO, and must be a regular file\n"
    for command in (("storage", "inspect"), ("status", "--dir"), ("consume", "--dir")):
        assert fails(run(*command, tmp_path, timeout=FIFO_S), FOREIGN).endswith(text)


def test_a_directory_of_replicas_names_them(home: Home, kraftfast: Callable[..., Done]) -> None:
    fill(home.open(), 1)
    home.close()
    for command in ("verify", "dump"):
        done = kraftfast("log", command, Path(home.path).parent)
        assert done.code == NotFormatted.exit_code and done.err.count("\n") == 1
        assert f"segments; its replicas do: name one of {home.path}" in done.err


def damaged(home: Home, what: str) -> str:
    """Damage a closed log of 60 batches; returns the words that must say where."""
    (path,) = home.segment_paths()
    stem = path.removesuffix(".log")
    index, times = Path(stem + ".index"), Path(stem + ".timeindex")
    if what == "name":
        Path(path).rename(Path(home.log_path) / "00000000000000000001.log")
        return "00000000000000000001.log is damaged at byte 0 (offset 1)"
    if what == "place":
        edit(index, 4, b"\0\0\0\1")
        return f"{index} is damaged at byte 0 (offset 0): entry 0 points to no batch"
    if what == "offset":
        edit(index, 8 + 3, bytes([index.read_bytes()[11] + 1]))
        return f"{index} is damaged at byte 8 (offset 0): entry 1 points to no batch"
    if what == "time":
        edit(times, 0, b"\0\1")
        return f"{times} is damaged at byte 0 (offset 0): entry 0 has not the largest"
    if what == "behind":
        with open(index, "ab") as file:
            file.write(b"\0\0\xff\0\0\0\xff\xff")
        return "points behind the last batch"
    if what == "epoch":
        Path(home.log_path, "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 30\n")
        return f"{path} is damaged at byte 30000 (offset 30): leader epoch does not follow"
    assert what == "end"
    edit(path, Path(path).stat().st_size - 1000, bytes(1000))
    return "everything below offset 60 had been flushed"


@pytest.mark.parametrize("what", ["name", "place", "offset", "time", "behind", "epoch", "end"])
def test_verify_compares_names_indexes_and_epochs(
    what: str, home: Home, kraftfast: Callable[..., Done]
) -> None:
    fill(home.open(), 60)
    home.close()
    assert kraftfast("log", "verify", home.path).code == 0
    words = damaged(home, what)
    done = kraftfast("log", "verify", home.path)
    assert done.code == CORRUPT and words in done.err, done.err


def test_segments_without_a_replica_are_verified_too(
    tmp_path: Path, kraftfast: Callable[..., Done]
) -> None:
    (source,) = (COMMITTED / "dynamic-4.3.0" / "n1").glob("*/quorum-state")
    home = Home.copied(source.parent, tmp_path / "n1")
    (tmp_path / "n1" / "meta.properties").unlink()
    checkpoint = Path(home.log_path, "leader-epoch-checkpoint")
    assert kraftfast("log", "verify", home.log_path).code == 0
    assert kraftfast("log", "dump", home.log_path).code == 0
    stored = checkpoint.read_text()
    checkpoint.write_text(stored.replace(stored.split()[-1], "77"))
    done = kraftfast("log", "verify", home.log_path)
    assert done.code == CORRUPT and "leader-epoch-checkpoint says" in done.err
    checkpoint.write_text("no numbers")
    assert kraftfast("log", "verify", home.log_path).code == FOREIGN
    checkpoint.unlink()
    (found,) = kraftfast("log", "verify", "--json", home.log_path).objects
    assert found["epochs"] is None
    assert "agrees" not in kraftfast("log", "verify", home.log_path).out


def test_verify_looks_at_every_record_if_asked(home: Home, kraftfast: Callable[..., Done]) -> None:
    fill(home.open(), 3)
    home.close()
    (path,) = home.segment_paths()
    size = Path(path).stat().st_size // 3
    data = bytearray(Path(path).read_bytes())
    data[size + 61] ^= 2  # the length of the record, under a CRC that is right
    data[size + 17 : size + 21] = crc32c(bytes(data[size + 21 : 2 * size])).to_bytes(4, "big")
    Path(path).write_bytes(data)
    assert kraftfast("log", "verify", home.path).code == 0
    done = kraftfast("log", "verify", "--records", home.path)
    assert done.code == CORRUPT and f"byte {size} (offset 1)" in done.err
    done = kraftfast("log", "dump", "--records", path)
    assert done.code == CORRUPT and f"byte {size} (offset 1)" in done.err


def torn(home: Home, target: OffsetAndEpoch | None) -> tuple[str, int]:
    """A killed log of 20 flushed batches with half a batch behind them; its segment, and where.

    ``target``: what the page says may have been acknowledged (D10).
    """
    stored = fill(home.open(), 20)
    home.log.flush()
    home.kill()
    (path,) = home.segment_paths()
    at = sum(map(len, stored))
    edit(path, at, batch_of_size(900, base_offset=20, epoch=1)[:500])
    if target is not None:
        raise_target(path, target)
    return path, at


def raise_target(path: str, target: OffsetAndEpoch) -> None:
    """Store a watermark as before a flush that never ended, by the layout of cext/page.h."""
    data = Path(path).read_bytes()
    page = len(data) - PAGE
    slots = [data[page + 512 + 64 * i : page + 576 + 64 * i] for i in range(2)]
    newest = max(slots, key=lambda slot: int.from_bytes(slot[:8], "little"))
    sequence = int.from_bytes(newest[:8], "little") + 1
    made = sequence.to_bytes(8, "little") + target.offset.to_bytes(8, "little")
    made += target.epoch.to_bytes(4, "little") + newest[20:60]
    made += crc32c(made).to_bytes(4, "little")
    edit(path, page + 512 + 64 * (sequence % 2), made)


def test_a_torn_tail_is_no_damage(home: Home, kraftfast: Callable[..., Done]) -> None:
    path, at = torn(home, None)
    for place in (home.path, path):
        (found,) = kraftfast("log", "verify", "--json", place).objects
        assert (found["tail"], found["tail_position"], found["end_offset"]) == ("torn", at, 20)
        assert found["tail_path"] == path and found["tail_bytes"] == 500 and found["tail_reason"]
        done = kraftfast("log", "dump", place)
        assert done.code == 0 and "torn tail of 500 bytes" in done.out.splitlines()[-1]
    assert "torn tail of 500 bytes" in kraftfast("log", "verify", path).out


def test_a_phantom_tail_is_told_from_a_torn_one(home: Home, kraftfast: Callable[..., Done]) -> None:
    path, at = torn(home, OffsetAndEpoch(21, 1))
    for place in (home.path, path):
        (found,) = kraftfast("log", "verify", "--json", place).objects
        assert (found["tail"], found["tail_position"]) == ("phantom", at)
        assert found["possibly_acknowledged"] == [21, 1]
        assert "may have been acknowledged" in kraftfast("log", "dump", place).out
    assert "may have been acknowledged" in kraftfast("log", "trim", home.path).out
    assert marks.read(Disk(), home.path, marks.PHANTOM_TAIL) == (21, 1)


def test_below_the_durable_watermark_a_tail_is_damage(
    home: Home, kraftfast: Callable[..., Done]
) -> None:
    path, at = torn(home, None)
    edit(path, at - 300, b"\xff")
    last = at - 1000
    commands = ("verify", home.path), ("verify", path), ("dump", path), ("trim", home.path)
    for command, place in commands:
        before = contents(Path(home.path))
        done = kraftfast("log", command, place)
        assert done.code == CORRUPT and f"byte {last} (offset 19)" in done.err
        assert "everything below offset 20 had been flushed" in done.err
        assert contents(Path(home.path)) == before, "nothing is changed"


def test_a_page_without_a_watermark_is_damage(home: Home, kraftfast: Callable[..., Done]) -> None:
    path, _ = torn(home, None)
    page = Path(path).stat().st_size - PAGE
    edit(path, page + 512, b"\xff" * 128)
    for place in (home.path, path):
        done = kraftfast("log", "verify", place)
        assert done.code == CORRUPT and "durable watermark" in done.err


def test_snapshots_are_verified_by_themselves(
    tmp_path: Path, kraftfast: Callable[..., Done]
) -> None:
    (source,) = (COMMITTED / "dynamic-4.3.0").rglob("*.checkpoint")
    (found,) = kraftfast("log", "verify", "--json", "--records", source).objects
    assert found["tail"] == "none" and found["bytes"] == source.stat().st_size
    copy = tmp_path / source.name
    for content in (source.read_bytes()[:-1], source.read_bytes() + b"\0", b""):
        copy.write_bytes(content)
        assert kraftfast("log", "verify", copy).code == CORRUPT


def test_recorded_directories_are_sound(
    recorded_logs: list[Path], kraftfast: Callable[..., Done]
) -> None:
    for path in recorded_logs:
        done = kraftfast("log", "verify", "--records", "--json", path)
        assert done.code == 0, done.err
        (found,) = done.objects
        assert found["tail"] == "none" and found["batches"]


@pytest.fixture(params=["committed", "golden"])
def recorded_logs(request: pytest.FixtureRequest) -> list[Path]:
    """Topic directories that Kafka left; of all that were recorded, those of stopped nodes."""
    if request.param == "committed":
        return sorted({path.parent for path in COMMITTED.rglob("*.log")})
    root = request.getfixturevalue("golden") / "disk"
    return sorted({path.parent for path in root.glob("*/stopped/*/*/*.log")})


# --- trim -----------------------------------------------------------------------------------------


def test_trim_leaves_what_a_clean_close_does(
    home: Home, tmp_path: Path, kraftfast: Callable[..., Done]
) -> None:
    other = Home(tmp_path / "other")
    for each in (home, other):
        fill(each.open(), 100)
        each.log.flush()
    home.kill()
    other.close()
    before = contents(Path(home.path))
    would = kraftfast("log", "trim", "--dry-run", home.path)
    assert would.code == 0 and "would be cut from" in would.out
    assert contents(Path(home.path)) == before, "a dry run changes nothing"
    (planned,) = kraftfast("log", "trim", "--dry-run", "--json", home.log_path).objects
    (done,) = kraftfast("log", "trim", "--json", home.path).objects
    assert planned == done and done["end_offset"] == 100 and done["segments"]
    left = {Path(path).name: data for path, data in contents(Path(home.log_path)).items()}
    assert left == {Path(path).name: data for path, data in contents(Path(other.log_path)).items()}
    again = kraftfast("log", "trim", home.path)
    assert again.code == 0 and "nothing to cut" in again.out
    (found,) = kraftfast("log", "verify", "--json", home.path).objects
    assert found["tail"] == "none"


def test_trim_cuts_a_torn_tail_and_what_lies_behind_a_hole(
    home: Home, kraftfast: Callable[..., Done]
) -> None:
    log = home.open()
    fill(log, 10)
    log.flush()
    stored = fill(log, 120)  # over a roll, and not on disk
    home.kill()
    first, *later = home.segment_paths()
    edit(first, 10_000 + len(stored[0]) + 100, b"\xff")
    would = kraftfast("log", "trim", "--dry-run", home.path)
    assert all(f"{path}: would be removed" in would.out for path in later) and later
    (done,) = kraftfast("log", "trim", "--json", home.path).objects
    assert done["removed"] == later and done["end_offset"] == 11
    assert home.segment_paths() == [first] and Path(first).stat().st_size == 11_000


def test_trim_needs_the_directory_for_itself(home: Home, kraftfast: Callable[..., Done]) -> None:
    fill(home.open(), 3)
    for option in ((), ("--dry-run",)):
        done = kraftfast("log", "trim", home.path, *option)
        assert done.code == IN_USE and "this process holds" in done.err
    home.kill()
    (path,) = home.segment_paths()
    done = kraftfast("log", "trim", path)
    assert done.code == INPUT and "by DIR" in done.err
    held = HeldSegment(home.log_path, 0)
    done = kraftfast("log", "trim", home.path)
    assert done.code == IN_USE and f"another process maps {path}" in done.err
    del held
    assert kraftfast("log", "trim", home.path).code == 0


def test_trim_leaves_kafkas_directories_alone(
    tmp_path: Path, kraftfast: Callable[..., Done]
) -> None:
    (source,) = (COMMITTED / "dynamic-4.3.0" / "n1").glob("*/quorum-state")
    home = Home.copied(source.parent, tmp_path / "n1")
    before = contents(tmp_path)
    for place in (home.path, home.log_path):
        done = kraftfast("log", "trim", place)
        assert done.code == FOREIGN and "Kafka's own" in done.err
    assert contents(tmp_path) == before


def test_verify_judges_the_log_beside_a_damaged_floor(
    home: Home, kraftfast: Callable[..., Done]
) -> None:
    """Its text sends to log verify, which must not stop at the floor itself."""
    fill(home.open(), 150)
    home.close()
    floor = Path(home.path) / FLOOR
    write_floor(Disk(), home.path, OffsetAndEpoch(100, 0))
    floor.write_bytes(floor.read_bytes()[:-2])
    done = kraftfast("log", "verify", home.path)
    assert done.code == CORRUPT and "apart from it" in done.err and "end offset 150" in done.err
    edit(home.segment_paths()[0], 80, b"\xff")
    done = kraftfast("log", "verify", home.path)
    assert done.code == CORRUPT and "apart from it" not in done.err and ".log" in done.err
    floor.unlink()
    assert kraftfast("log", "verify", home.path).code == CORRUPT


def test_verify_looks_at_snapshots(tmp_path: Path, kraftfast: Callable[..., Done]) -> None:
    assert kraftfast("storage", "format", "--dir", tmp_path / "q", "--voters", 1).code == 0
    assert kraftfast("log", "verify", tmp_path / "q" / "1").code == 0
    (snapshot,) = (tmp_path / "q" / "1").glob("*/*.checkpoint")
    edit(str(snapshot), 70, b"\xff")
    done = kraftfast("log", "verify", tmp_path / "q" / "1")
    assert done.code == CORRUPT and snapshot.name in done.err
