"""Kafka's own kafka-dump-log reads what we leave, and sees in it what our dump shows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kraftfast.cli.log.dump import Dump
from kraftfast.log.idempotence.producer_records import ProducerName, name_batch
from kraftfast.log.reading.at_rest import trim_log
from kraftfast.log.small_files import quorum_state
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.record.builder import compress_batch
from kraftfast.record.control import control_batch
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Codec, Record
from kraftfast.types import (
    ElectionState,
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    ReplicaKey,
    Voter,
    VoterSet,
)
from tests import kafka_tools
from tests.log.kit import KIB, TIMESTAMP, Home, append, tend_until

VOTER = Voter(1, bytes(range(16)), (Endpoint("CONTROLLER", "localhost", 9093),), 0, 1)


def control(log: Any, epoch: int) -> None:
    """What a leader writes first."""
    said = [
        LeaderChange(1, (ReplicaKey(1), ReplicaKey(2)), (ReplicaKey(1),)),
        KRaftVersion(1),
        KRaftVoters(VoterSet([VOTER])),
    ]
    made = control_batch(said, timestamp=TIMESTAMP + epoch, leader_epoch=0)
    tend_until(log, lambda: log.append(made, epoch, control=True))


def write(log: Any) -> None:
    """Three epochs over several segments: plain, compressed, with keys, headers, null values."""
    for epoch in (1, 4, 5):
        control(log, epoch)
        for round in range(30):
            stamp = TIMESTAMP + 1000 * epoch + round
            headers = (("trace", b"1"), ("nothing", None)) if round % 3 else ()
            records = [
                Record(
                    0, stamp + i, b"key %d" % i if i % 2 else None, b"value %d " % i * 40, headers
                )
                for i in range(round % 7 + 1)
            ]
            records.append(Record(0, stamp, b"gone", None))
            made = encode_batch([r._replace(offset=i) for i, r in enumerate(records)])
            append(log, compress_batch(made, Codec.ZSTD) if round % 2 else made, epoch)
        name_a_producer(log, epoch)


def name_a_producer(log: Any, epoch: int) -> None:
    """A name in a record that Kafka does not know by its type, and a batch of who has it."""
    name = name_batch(ProducerName(7, epoch, True, "n"), timestamp=TIMESTAMP, leader_epoch=0)
    tend_until(log, lambda: log.append(name, epoch, control=True))
    records = [Record(0, TIMESTAMP, None, b"once")]
    sequence = log.producers.get(7).last_sequence + 1
    made = encode_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    append(log, made, epoch)


def files(home: Home, *suffixes: str) -> list[Path]:
    return sorted(p for p in Path(home.log_path).iterdir() if p.suffix in suffixes)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("SLF4J")]


@pytest.fixture(params=["closed", "killed and trimmed", "killed, opened and closed"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A log that was prepared and written, and left in one of the ways to leave it."""
    home = Home(tmp_path / "replica")
    write(home.open(segment_bytes=24 * KIB))
    home.log.flush()
    if request.param == "closed":
        home.close()
        return home
    home.kill()
    if request.param == "killed and trimmed":
        directory = ReplicaDirectory(home.disk, home.path)
        assert trim_log(home.disk, directory)
        directory.close()
        return home
    append(home.open(), encode_batch([Record(0, TIMESTAMP, None, b"one more")]), 9)
    home.close()
    return home


def test_kafka_sees_what_we_see(home: Home) -> None:
    segments = files(home, ".log")
    assert len(segments) > 2
    done = kafka_tools.dump_log(segments, "--print-data-log")
    assert done.returncode == 0, done.stderr
    dump = Dump(records=True, as_json=False)
    ours = [line for path in segments for line in dump.file(str(path))]
    assert lines(done.stdout) == ours
    assert "isvalid: false" not in done.stdout and done.stdout.count("compresscodec: zstd") == 45
    assert done.stdout.count("LeaderChange: {") == 3
    assert done.stdout.count("producerId: 7") == done.stdout.count("SnapshotFooter {") == 3


def test_kafka_finds_our_indexes_sound(home: Home) -> None:
    indexes = files(home, ".index", ".timeindex")
    assert len(indexes) == 2 * len(files(home, ".log"))
    done = kafka_tools.dump_log(indexes)
    assert done.returncode == 0, done.stderr
    dump = Dump(records=False, as_json=False)
    assert lines(done.stdout) == [line for path in indexes for line in dump.file(str(path))]
    assert done.stdout.count("position: ") > len(indexes), "there are entries to look at"
    assert "ismatch" not in done.stdout + done.stderr and "not found" not in done.stdout
    checked = kafka_tools.dump_log(files(home, ".index"), "--index-sanity-check")
    assert checked.stdout.count("passed sanity check") == len(files(home, ".index"))


def test_kafka_stops_at_prepared_zeros(tmp_path: Path) -> None:
    """Why a log is trimmed before Kafka sees it."""
    home = Home(tmp_path / "replica")
    write(home.open(segment_bytes=24 * KIB))
    home.kill()
    done = kafka_tools.dump_log(files(home, ".log")[-1:])
    assert done.returncode == 1 and "Found record size 0 smaller than" in done.stderr


READ_STATE = """
import java.io.File; import org.apache.kafka.raft.FileQuorumStateStore;
class ReadState { public static void main(String[] files) {
  for (String file : files)
    System.out.println(new FileQuorumStateStore(new File(file)).readElectionState().get()); } }
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler here")
def test_kafka_reads_our_quorum_state(tmp_path: Path) -> None:
    """It passes over the space, the checksum, and the names that are ours."""
    (tmp_path / "ReadState.java").write_text(READ_STATE)
    state = ElectionState(3, 2, ReplicaKey(1, b"d" * 16), True, True)
    paths = [tmp_path / f"quorum-state-{version}" for version in (0, 1)]
    for version, path in enumerate(paths):
        data = quorum_state.encode(state, version, [1, 2], directory_id=b"o" * 16)
        path.write_bytes(quorum_state.seal(data))
    done = kafka_tools.run(str(tmp_path / "ReadState.java"), *paths)
    assert done.returncode == 0, done.stderr
    static, reconfigurable = done.stdout.splitlines()
    for line in (static, reconfigurable):
        assert "epoch=3, leaderId=OptionalInt[2], votedKey=Optional[ReplicaKey(id=1, " in line
    assert "voters=[1, 2]" in static and "directoryId=ZGRkZGRkZGRkZGRkZGRkZA" in reconfigurable


def test_without_java_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRAFT_KAFKA_CACHE", str(tmp_path))
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o700)
    missing = kafka_tools.missing.__wrapped__
    monkeypatch.setenv("PATH", "")
    assert missing() == "java is not installed"
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin")
    assert missing() == "Kafka 4.3.0 needs Java 17"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert missing().endswith("mvn is not installed")
    mvn = tmp_path / "bin" / "mvn"
    mvn.write_text("#!/bin/sh\nexit 1\n")
    mvn.chmod(0o700)
    assert "is Maven Central reachable?" in missing()
    mvn.write_text("#!/bin/sh\nexit 0\n")
    assert missing() == "" and missing() == ""
