"""``kraftfast log dump``: line by line beside Kafka's own dumps, and where it stops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftfast.cli.log.dump import Dump, batch_fields, sequence
from kraftfast.record.batch import batch_at
from kraftfast.record.control import OtherControl, SnapshotFooter, control_batch
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from tests.cli.kit import run as run_program
from tests.cli.logs import (
    COMMITTED,
    CORRUPT,
    FOREIGN,
    INPUT,
    UNFORMATTED,
    USAGE,
    Done,
    contents,
    edit,
)
from tests.log.kit import Home, batch, fill

CONTROL_OF_39 = re.compile(r"(headerKeys: \[\]) (LeaderChange|KRaftVersion|KRaftVoters):? .*")


# --- dump, beside Kafka's -------------------------------------------------------------------------


def comparable(lines: list[str], ours: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs of lines to compare: Kafka's and ours, without what each shows in its own way.

    Values of the metadata log, which Kafka decodes, and bytes that are no text, of which Kafka's
    are replaced or break the line; control records of 3.9, which knew no words for them.
    """
    starts = ("Dumping ", "Log starting", "Snapshot end", "KRaft bootstrap", "baseOffset: ")
    starts += ("| offset: ", "offset: ", "timestamp: ")
    kafkas = [line for line in lines if line.startswith(starts)]
    assert len(kafkas) == len(ours), (kafkas[-1], ours[-1])
    for expected, line in zip(kafkas, ours):
        if " controlType: " in expected:
            line = CONTROL_OF_39.sub(r"\1 controlType: LEADER_CHANGE(2)", line)
        if "\\" in line or ' payload: {"type":' in expected:
            expected, line = (re.split(" (?:key|payload): ", each)[0] for each in (expected, line))
        yield expected, line


def compare_dumps(directory: Path, least: int) -> None:
    dumps = sorted(directory.rglob("*.dump.txt"))
    compared = 0
    for dump in dumps:
        file = dump.with_name(dump.name.removesuffix(".dump.txt"))
        if file.suffix not in (".log", ".index", ".timeindex", ".checkpoint"):
            continue
        lines = dump.read_bytes().decode(errors="replace").split("\n")
        ours = list(Dump(records=True, as_json=False).file(str(file)))
        ours[0] = ours[0].replace(str(file), file.name)  # Kafka's were made where the files are
        for expected, line in comparable(lines, ours):
            assert line == expected, file
            compared += 1
        without = list(Dump(records=False, as_json=False).file(str(file)))
        assert without[1:] == [line for line in ours[1:] if not line.startswith("| ")]
    assert compared >= least


def test_dumps_are_kafkas_line_by_line() -> None:
    compare_dumps(COMMITTED, 100)


def test_all_recorded_dumps_are_kafkas_line_by_line(golden: Path) -> None:
    compare_dumps(golden / "disk", 9000)


# --- dump -----------------------------------------------------------------------------------------


def test_a_directory_is_dumped_in_order_in_json_too(
    home: Home, kraftfast: Callable[..., Done]
) -> None:
    log = home.open()
    fill(log, 150)
    home.kill()
    before = contents(Path(home.path))
    paths = home.segment_paths()
    assert len(paths) >= 3
    replica, topic = kraftfast("log", "dump", home.path), kraftfast("log", "dump", home.log_path)
    assert replica == topic and replica.code == 0
    dumped = [line for line in replica.out.splitlines() if line.startswith("Dumping")]
    assert dumped == [f"Dumping {path}" for path in paths]
    assert "bytes of prepared zeros from byte" in replica.out.splitlines()[-1]
    batches = kraftfast("log", "dump", home.path, "--json").objects
    assert [each["baseOffset"] for each in batches] == list(range(150))
    assert [each["file"] for each in batches] == sorted(each["file"] for each in batches)
    assert contents(Path(home.path)) == before, "a dump changes nothing"


def test_records_in_json(tmp_path: Path, kraftfast: Callable[..., Done]) -> None:
    path = tmp_path / "00000000000000000005.log"
    headers = (("trace", b"x"), ("raw", b"\xff"), ("none", None))
    path.write_bytes(
        encode_batch([Record(5, 9, b"k", b"\xff", headers), Record(6, 9, None, None)])
        + control_batch([SnapshotFooter()], timestamp=1, base_offset=7, leader_epoch=3)
    )
    first, second = kraftfast("log", "dump", "--records", "--json", path).objects
    named, empty = first["records"]
    assert (named["key"], named["value_base64"], named["valueSize"]) == ("k", "/w==", 1)
    assert named["headers"][1:] == [
        {"name": "raw", "value_base64": "/w=="}, {"name": "none", "value": None},
    ]  # fmt: skip
    assert (empty["keySize"], empty["key"], empty["value"]) == (-1, None, None)
    assert second["records"][0]["control"] == {"type": "SnapshotFooter", "version": 0}
    assert second["isControl"] is True and second["deleteHorizonMs"] is None


def test_text_cannot_steer_a_terminal(tmp_path: Path, kraftfast: Callable[..., Done]) -> None:
    path = tmp_path / "00000000000000000000.log"
    record = Record(0, 0, b"\x1b]0;x\x07", "ü\n\u202e".encode(), (("a\x1b", b""),))
    path.write_bytes(encode_batch([record]))
    line = kraftfast("log", "dump", "--records", path).out.splitlines()[-1]
    assert r"headerKeys: [a\x1b] key: \x1b]0;x\x07 payload: ü\n\u202e" in line


def test_keys_of_headers_that_are_no_utf8(tmp_path: Path, kraftfast: Callable[..., Done]) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_batch([Record(0, 0, None, b"v", (("caf\udce9", b"1"),))]))
    dumped = kraftfast("log", "dump", "--records", path)
    assert dumped.out.splitlines()[-1].endswith(r"headerKeys: [caf\xe9] payload: v")
    [shown] = kraftfast("log", "dump", "--records", "--json", path).objects
    assert shown["records"][0]["headers"] == [{"name_base64": "Y2Fm6Q==", "value": "1"}]


def test_control_records_of_other_kinds(tmp_path: Path, kraftfast: Callable[..., Done]) -> None:
    path = tmp_path / "00000000000000000000.log"
    said = [OtherControl(1, b"\0\0\0\0\0\7"), OtherControl(9, b"")]
    path.write_bytes(control_batch(said, timestamp=0, leader_epoch=0))
    *_, commit, other = kraftfast("log", "dump", "--records", path).out.splitlines()
    assert commit.endswith("endTxnMarker: COMMIT coordinatorEpoch: 7")
    assert other.endswith("controlType: UNKNOWN(9)")
    path.write_bytes(control_batch([OtherControl(0, b"\0")], timestamp=0, leader_epoch=0))
    done = kraftfast("log", "dump", "--records", path)
    assert done.code == CORRUPT and "byte 0 (offset 0)" in done.err and "baseOffset: 0" in done.out


def test_sequences_begin_again_behind_the_largest() -> None:
    records = [Record(i, 0, None, b"v") for i in range(3)]
    data = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    found = batch_at(data)
    assert [sequence(found, delta) for delta in range(3)] == [2**31 - 2, 2**31 - 1, 0]
    assert batch_fields(found)["lastSequence"] == 0


def test_a_dump_stops_at_damage_behind_what_is_sound(
    home: Home, kraftfast: Callable[..., Done]
) -> None:
    stored = fill(home.open(), 30)
    home.close()
    (path,) = home.segment_paths()
    at = sum(map(len, stored[:20]))
    edit(path, at + 70, b"\xff")
    for place in (path, home.path):
        done = kraftfast("log", "dump", place)
        assert done.code == CORRUPT
        assert f"{path} is damaged at byte {at} (offset 20): " in done.err
        assert done.out.count("isvalid: true") == 20
        assert "baseOffset: 20 " in done.out.splitlines()[-1]
        assert done.out.endswith("isvalid: false\n")
    edit(path, at + 8, b"\xff")  # now not even its length can be read
    done = kraftfast("log", "dump", path)
    assert done.code == CORRUPT and "baseOffset: 19 " in done.out.splitlines()[-1]


@pytest.mark.parametrize(
    "name, content, code, words",
    [
        ("notes.txt", b"", INPUT, "none of *.log, *.index"),
        ("1.log", b"", INPUT, "20 digits and .log"),
        ("a.index", b"", INPUT, "20 digits and .index"),
        ("a.timeindex", b"", INPUT, "20 digits and .timeindex"),
        ("a.checkpoint", b"", INPUT, "neither bootstrap.checkpoint nor"),
        ("00000000000000000000.index", b"\0\0\0\1\0\0\0\1" * 2, CORRUPT, "byte 8"),
        ("00000000000000000000.index", b"\0\0\0\1\0\0\0\1\0", CORRUPT, "part of an entry"),
        ("00000000000000000000.timeindex", b"\xff" * 12, CORRUPT, "do not rise"),
        ("00000000000000000000.log", b"\1" * 70, CORRUPT, "byte 0 (offset 0)"),
        ("00000000000000000000.log", batch() + b"\0" * 30 + b"\1", CORRUPT, "byte 73 (offset 1)"),
        ("00000000000000000000.log", batch(base_offset=1), CORRUPT, "byte 0 (offset 0)"),
        ("bootstrap.checkpoint", batch()[:-1], CORRUPT, "byte 0 (offset 0)"),
    ],
)
def test_files_that_cannot_be_dumped(
    name: str,
    content: bytes,
    code: int,
    words: str,
    tmp_path: Path,
    kraftfast: Callable[..., Done],
) -> None:
    (tmp_path / name).write_bytes(content)
    done = kraftfast("log", "dump", tmp_path / name)
    assert done.code == code and words in done.err, done


@pytest.mark.parametrize("command", ["dump", "verify", "trim"])
def test_places_without_a_log(command: str, tmp_path: Path, kraftfast: Callable[..., Done]) -> None:
    assert kraftfast("log", command, tmp_path / "nowhere").code == USAGE
    done = kraftfast("log", command, tmp_path)
    assert done.code == UNFORMATTED and "neither meta.properties nor segments" in done.err
    (tmp_path / "meta.properties").write_text("version=9\n")
    assert kraftfast("log", command, tmp_path).code == FOREIGN


def test_an_empty_segment_and_what_kafka_prepares_behind_an_index(
    tmp_path: Path, kraftfast: Callable[..., Done]
) -> None:
    stem = tmp_path / "00000000000000000010"
    stem.with_suffix(".log").touch()
    stem.with_suffix(".index").write_bytes(b"\0\0\0\5\0\0\x10\0" + bytes(80))
    assert kraftfast("log", "dump", stem.with_suffix(".log")).out.splitlines() == [
        f"Dumping {stem}.log", "Log starting offset: 10",
    ]  # fmt: skip
    (entry,) = kraftfast("log", "dump", "--json", stem.with_suffix(".index")).objects
    assert (entry["offset"], entry["position"]) == (15, 4096)


# --- as a program ---------------------------------------------------------------------------------


def test_as_a_program(home: Home) -> None:
    fill(home.open(), 3)
    home.close()
    (path,) = home.segment_paths()
    done = run_program("log", "dump", path)
    assert done.returncode == 0 and done.stdout.count(b"baseOffset: ") == 3
    edit(path, 80, b"\xff")
    done = run_program("log", "dump", path)
    assert done.returncode == CORRUPT and done.stderr.startswith(b"kraftfast: ")
    assert done.stderr.count(b"\n") == 1 and b"isvalid: false" in done.stdout
