"""The small files of a replica: Kafka's bytes in and out, and anything else refused by its type."""

from __future__ import annotations

import json
import random
import shutil
import string
import subprocess
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftfast.errors import CorruptLog, ForeignDirectory, NotFormatted, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.small_files import epoch_checkpoint, marks, properties, quorum_state
from kraftfast.log.small_files.directory import (
    decode_partition_metadata,
    encode_meta,
    encode_partition_metadata,
    read_meta,
)
from kraftfast.log.small_files.quorum_state import ElectionState
from kraftfast.log.small_files.state_check import check_quorum_state
from kraftfast.types import ZERO_UUID, OffsetAndEpoch, ReplicaKey
from tests.log.crash_disk import CrashDisk, PowerCut

# --- Kafka's own files, to the byte ---


# covers: testSupportedVersion
def test_kafkas_files_come_out_as_they_went_in(recorded: list[Path]) -> None:
    versions, voted = set(), 0
    for log_path in recorded:
        data = (log_path / "quorum-state").read_bytes()
        fields = json.loads(data)
        voter_ids = [voter["voterId"] for voter in fields.get("currentVoters", [])]
        state = quorum_state.decode(data)
        assert quorum_state.encode(state, fields["data_version"], voter_ids) == data, log_path
        versions.add(fields["data_version"])
        voted += state.voted is not None
        data = (log_path / "leader-epoch-checkpoint").read_bytes()
        assert epoch_checkpoint.encode(epoch_checkpoint.decode(data)) == data, log_path
        data = (log_path / "partition.metadata").read_bytes()
        assert encode_partition_metadata(decode_partition_metadata(data, "")) == data
        if (log_path.parent / "meta.properties").exists():  # the raft load server has none
            data = (log_path.parent / "meta.properties").read_bytes()
            stamp = data.decode().splitlines()[1].removeprefix("#")
            assert encode_meta(read_meta(Disk(), str(log_path.parent)), stamp) == data
    assert versions == {0, 1} and voted


# --- quorum-state ---


# covers: testWriteReadElectedLeader, testWriteReadVotedCandidate, testWriteReadUnknownLeader
# covers: testQuorumStateDataRoundTrip
@given(
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    st.none()
    | st.builds(ReplicaKey, st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16)),
    st.booleans(),
    st.booleans(),
)
def test_a_quorum_state_comes_back(
    epoch: int, leader_id: int, voted: ReplicaKey | None, superseded: bool, was_voter: bool
) -> None:
    state = ElectionState(epoch, leader_id, voted, superseded, was_voter)
    assert quorum_state.decode(quorum_state.encode(state, 1, [])) == state
    plain = quorum_state.decode(quorum_state.encode(state, 0, [1, 2]))
    assert plain[3:] == (superseded, was_voter)
    assert plain.voted == (None if voted is None else ReplicaKey(voted.id, ZERO_UUID))


# covers: testReload
def test_the_latest_quorum_state_is_read_again(tmp_path: Path) -> None:
    path = str(tmp_path / quorum_state.NAME)
    for state in (
        ElectionState(3, 2, None),
        ElectionState(4, -1, ReplicaKey(1, b"d" * 16)),
        ElectionState(4, 1, ReplicaKey(1, b"d" * 16)),
    ):
        Disk().replace_file(path, quorum_state.encode(state, 1, []))
        assert quorum_state.decode(Disk().read_file(path), path) == state


def test_a_quorum_state_of_another_directory_is_refused() -> None:
    """Its vote is another replica's, and so is the log beside it (D5)."""
    own, other = b"a" * 16, b"b" * 16
    for version in (0, 1):
        data = quorum_state.seal(quorum_state.encode(ElectionState(3, 2, None), version, [1], own))
        assert quorum_state.decode(data) == ElectionState(3, 2, None)
        quorum_state.check_owner(data, "FILE", own)
        quorum_state.check_owner(data, "FILE", ZERO_UUID)  # of Kafka's, before its first start
        with pytest.raises(ForeignDirectory, match="FILE was written in the directory"):
            quorum_state.check_owner(data, "FILE", other)
        kafkas = quorum_state.encode(ElectionState(3, 2, None), version, [1])
        quorum_state.check_owner(kafkas, "FILE", own)


GOOD_STATE = b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"%s","data_version":1}'
GOOD_STATE %= b"A" * 22


# covers: testCantReadVersionQuorumState
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n" + GOOD_STATE,
        GOOD_STATE[:-1],
        GOOD_STATE.replace(b"_version", b"_versions"),
        GOOD_STATE.replace(b":1}", b":2}"),
        GOOD_STATE.replace(b":1}", b":true}"),
        GOOD_STATE.replace(b":2,", b":-1,"),
        GOOD_STATE.replace(b":2,", b":2147483648,"),
        GOOD_STATE.replace(b":2,", b":2.0,"),
        GOOD_STATE.replace(b":2,", b":null,"),
        GOOD_STATE.replace(b'"votedId":-1', b'"votedId":-2'),
        GOOD_STATE.replace(b'"leaderId":1', b'"leaderId":"1"'),
        GOOD_STATE.replace(b"AAAA", b"AA", 1),
        GOOD_STATE.replace(b'"' + b"A" * 22 + b'"', b"7"),
        b"[" * 100_000,
        b"\xff\xfe" + GOOD_STATE,
        b"[1]",
    ],
)
def test_a_quorum_state_that_does_not_parse_is_never_reset(data: bytes) -> None:
    with pytest.raises(ForeignDirectory):
        quorum_state.decode(data, "FILE")


def test_every_flipped_bit_of_a_sealed_state_is_told() -> None:
    """A flipped vote would be a second vote (D5); Kafka reads the first line alone."""
    sealed, state = quorum_state.seal(GOOD_STATE), ElectionState(2, 1, None)
    assert quorum_state.decode(sealed) == state and sealed.splitlines()[0] == b" " + GOOD_STATE
    for bit in range(8 * len(sealed)):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptLog, ForeignDirectory)):
            quorum_state.decode(bytes(flipped))


def test_a_state_with_a_part_of_its_checksum_is_not_believed() -> None:
    """Kafka writes nothing but its line of JSON, so the rest was our checksum (D5)."""
    sealed = quorum_state.seal(GOOD_STATE)
    assert quorum_state.decode(GOOD_STATE) == quorum_state.decode(sealed)
    for data in [*(sealed[:end] for end in range(len(sealed))), sealed[1:], sealed + b"\n"]:
        with pytest.raises((CorruptLog, ForeignDirectory), match="FILE does not"):
            quorum_state.decode(data, "FILE")
    for data in (sealed[: len(GOOD_STATE) + 1], GOOD_STATE + b"\nrubbish"):
        with pytest.raises(CorruptLog, match="FILE does not match its checksum"):
            quorum_state.decode(data, "FILE")


def test_a_state_that_an_earlier_version_sealed_is_read() -> None:
    earlier = GOOD_STATE + b"\ncrc32 %08x\n" % zlib.crc32(GOOD_STATE)
    assert quorum_state.decode(earlier) == quorum_state.decode(GOOD_STATE)


STATES = [ElectionState(epoch, -1, ReplicaKey(epoch % 3, b"d" * 16)) for epoch in range(1, 4)]


def voting(disk: CrashDisk) -> int:
    """Write all states, one after the other, until the power goes; return how many are done."""
    done = 0
    with suppress(PowerCut):
        for state in STATES:
            data = quorum_state.seal(quorum_state.encode(state, 1, ()))
            disk.rewrite_file("/r/quorum-state", data)
            done += 1
    return done


def voted(disk: CrashDisk) -> ElectionState | None:
    if not disk.exists("/r/quorum-state"):
        return None
    return quorum_state.decode(disk.read_file("/r/quorum-state"))


def holds_after_any_cut(disk: CrashDisk, before: ElectionState | None, done: int) -> bool:
    """Whether the file is whole, and holds the last vote that was stored, or the one under way."""
    states = [before, *STATES][done : done + 2]
    return all(voted(disk.after_cut(Random(seed), 0.5)) in states for seed in range(4))


def test_no_power_cut_forgets_a_vote() -> None:
    """Before any step of any write; also where a process was killed, and the next writes (D5)."""
    whole = CrashDisk()
    whole.make_directory("/r")
    assert voting(whole) == len(STATES)
    for cut_at in range(len(whole.steps)):
        disk = CrashDisk(cut_at)
        disk.make_directory("/r")
        assert holds_after_any_cut(disk, None, voting(disk))
        for again in range(1, len(whole.steps)):
            disk = CrashDisk(cut_at)
            disk.make_directory("/r")
            voting(disk)  # here the process is killed, and the power stays
            disk.cut_at = -1
            disk.sync_directory("/r")  # as a start does before it believes the file
            disk.cut_at = len(disk.steps) + again
            before = voted(disk)
            assert holds_after_any_cut(disk, before, voting(disk))


# --- quorum-state and the rest of the directory ---

VOTE = ElectionState(7, -1, ReplicaKey(3, bytes(15) + b"3"))


@pytest.mark.parametrize(
    "state, places",
    [
        (None, []),
        (None, [(0, 0), None]),
        (VOTE, []),
        (VOTE, [(90, 7), (90, 6)]),
        (ElectionState(), [(0, 0)]),
        (ElectionState(7, 1), [(9, 5)]),
        (ElectionState(7, 1, ReplicaKey(1, bytes(16))), [(9, 7)]),
        (ElectionState(7, 3, ReplicaKey(2, bytes(16))), [(9, 7)]),
    ],
)
def test_a_state_that_can_be_that_of_its_log(state: Any, places: Any) -> None:
    check_quorum_state(state, "FILE", places, 1)


@pytest.mark.parametrize(
    "state, places, why",
    [
        (None, [(1, 1)], "is missing, .* offset 1, epoch 1"),
        (None, [(0, 0), None, (0, 3)], "may have voted"),
        (VOTE, [(0, 0), (90, 8)], "says epoch 7, but the log reached epoch 8"),
        (ElectionState(0, 1), [], "epoch 0"),
        (ElectionState(0, -1, ReplicaKey(3, bytes(16))), [], "epoch 0"),
        (ElectionState(7, 1, ReplicaKey(3, bytes(16))), [(9, 7)], "voted for 3"),
    ],
)
def test_a_state_that_cannot(state: Any, places: Any, why: str) -> None:
    """Its vote is lost, and could be given twice (D5)."""
    with pytest.raises(CorruptLog, match=f"FILE.*{why}.*storage replace"):
        check_quorum_state(state, "FILE", places, 1)


# --- leader-epoch-checkpoint and marks ---


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=5))
def test_an_epoch_checkpoint_comes_back(entries: list[tuple[int, int]]) -> None:
    epochs = sorted({epoch for epoch, _ in entries})
    rising = list(zip(epochs, sorted(start for _, start in entries)))
    assert epoch_checkpoint.decode(epoch_checkpoint.encode(rising)) == rising


@pytest.mark.parametrize(
    "data",
    [
        b"", b"0\n", b"0\n1\n", b"1\n0\n", b"0\n1\n1 0\n2 3\n", b"0\n2\n1 0\n1 3\n",
        b"0\n2\n2 0\n1 3\n",
        b"0\n2\n1 5\n2 3\n", b"0\n1\n-1 0\n", b"0\n1\n1 -1\n", b"0\n1\n1\n", b"0\n1\n1 0 0\n",
        b"0\n1\n1  0\n", b"0\n1\n2147483648 0\n", b"0\n1\n1 9223372036854775808\n",
        b"0\n1\n1 1_0\n", b"0\n1\n\xff 0\n", b"0\nx\n", b"0\n1\n" + b"1" * 5000 + b" 0\n",
    ],
)  # fmt: skip
def test_an_epoch_checkpoint_that_kafka_would_not_have_written(data: bytes) -> None:
    with pytest.raises(ForeignDirectory):
        epoch_checkpoint.decode(data)


def test_marks(tmp_path: Path) -> None:
    disk = Disk()
    assert marks.read(disk, str(tmp_path), marks.DURABLE_END) is None
    marks.write(disk, str(tmp_path), marks.DURABLE_END, (7, 3))
    assert marks.read(disk, str(tmp_path), marks.DURABLE_END) == OffsetAndEpoch(7, 3)
    for bad in (
        b"",
        b"0\n",
        b"1\n7 3\n",
        b"0\n7\n",
        b"0\n7 3\n8 4\n",
        b"0\n-7 3\n",
        b"\xff\n7 3\n",
    ):
        (tmp_path / marks.DURABLE_END).write_bytes(bad)
        with pytest.raises(ForeignDirectory):
            marks.read(disk, str(tmp_path), marks.DURABLE_END)


def test_every_flipped_bit_of_a_mark_is_told(tmp_path: Path) -> None:
    """A mark that moves forgives damage, forgets a doubt, or wedges a voter (D10)."""
    path, right = tmp_path / marks.PHANTOM_TAIL, OffsetAndEpoch(70, 3)
    path.write_bytes(b"0\n70 3\n")  # of an earlier version: without a checksum
    assert marks.read(Disk(), str(tmp_path), marks.PHANTOM_TAIL) == right
    sealed = marks.encode(right)
    for bit in range(8 * len(sealed)):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises((CorruptLog, ForeignDirectory)):
            marks.read(Disk(), str(tmp_path), marks.PHANTOM_TAIL)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: " + b"A" * 22,
        b"version: 0\ntopic_id: A",
        b"x",
        b"\xff",
    ],
)
def test_partition_metadata_that_does_not_parse(data: bytes) -> None:
    with pytest.raises(ForeignDirectory):
        decode_partition_metadata(data, "FILE")


# --- properties ---

TEXT = st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=12)


@given(st.dictionaries(TEXT, TEXT, max_size=4))
@example({" ": " ", "a\\": "=:#!", "\t": "\n\r\f\\ "})
def test_properties_come_back(fields: dict[str, str]) -> None:
    assert properties.decode(properties.encode(fields)) == fields


def test_properties_as_people_write_them() -> None:
    text = "# comment\n! too\n\n a = b \r\nc:d\re f=g\\\n   h\nlonely\nk\\=1=\\u0041\\z\na=last"
    assert properties.decode(text.encode()) == {
        "a": "last", "c": "d", "e": "f=gh", "lonely": "", "k=1": "Az",
    }  # fmt: skip


@given(st.binary(max_size=60))
def test_properties_of_any_bytes_decode_or_do_not(data: bytes) -> None:
    try:
        fields = properties.decode(data)
    except ValueError:
        return
    assert properties.decode(properties.encode(fields)) == fields


JAVA = """
import java.io.*; import java.nio.file.*; import java.util.*;
import java.nio.charset.StandardCharsets;
class Load { public static void main(String[] a) throws Exception {
  for (String file : a) { Properties p = new Properties();
    try (Reader r = Files.newBufferedReader(Path.of(file), StandardCharsets.UTF_8)) { p.load(r); }
    catch (IllegalArgumentException e) { System.out.println("refused"); continue; }
    for (String k : new TreeSet<>(p.stringPropertyNames()))
      System.out.print(hex(k) + "=" + hex(p.getProperty(k)) + " ");
    System.out.println(); } }
  static String hex(String s) { StringBuilder b = new StringBuilder();
    for (char c : s.toCharArray()) b.append(String.format("%04x", (int) c));
    return b.toString(); } }
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler here")
def test_properties_are_what_java_loads(tmp_path: Path) -> None:
    (tmp_path / "Load.java").write_text(JAVA)
    chance = random.Random(1)
    alphabet = "ab \t\f\\\\\\=:#!\n\r" + "u0041" + string.digits[:2]
    files, expected = [], []
    for number in range(300):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randint(0, 40)))
        path = tmp_path / f"{number}.properties"
        path.write_bytes(text.encode())
        files.append(path)
        try:
            fields = properties.decode(text.encode())
        except ValueError:
            expected.append("refused")
            continue
        words = [f"{hex_of(key)}={hex_of(fields[key])} " for key in sorted(fields)]
        expected.append("".join(words))
    command = ["java", str(tmp_path / "Load.java"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for path, ours, theirs in zip(files, expected, done.stdout.split("\n"), strict=False):
        assert ours == theirs, path.read_bytes()


def hex_of(text: str) -> str:
    return "".join(f"{ord(char):04x}" for char in text)


# --- meta.properties ---


def meta(tmp_path: Path, text: str) -> Callable[[], object]:
    (tmp_path / "meta.properties").write_text(text)
    return lambda: read_meta(Disk(), str(tmp_path))


def test_meta_properties_of_every_version(tmp_path: Path) -> None:
    one = meta(
        tmp_path, "version=1\nnode.id=7\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAABQ\n"
    )()
    assert (one.cluster_id, one.node_id, one.directory_id) == ("c", 7, bytes(15) + b"\5")
    old = meta(tmp_path, "broker.id=3\n")()
    assert (old.cluster_id, old.node_id, old.directory_id) == ("", 3, ZERO_UUID)
    old = meta(tmp_path, "version=0\nbroker.id=3\ncluster.id=c\n")()
    assert (old.cluster_id, old.node_id) == ("c", 3)


@pytest.mark.parametrize(
    "text",
    [
        "", "version=1\nnode.id=7\n", "version=2\nnode.id=7\ncluster.id=c\n",
        "version=1\ncluster.id=c\n",
        "version=1\nnode.id=x\ncluster.id=c\n", "version=1\nnode.id=-1\ncluster.id=c\n",
        "version=1\nnode.id=2147483648\ncluster.id=c\n",
        "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=short\n", "version=1\nnode.id=\\u00\n",
    ],
)  # fmt: skip
def test_meta_properties_that_do_not_parse(tmp_path: Path, text: str) -> None:
    with pytest.raises(ForeignDirectory):
        meta(tmp_path, text)()


def test_no_meta_properties(tmp_path: Path) -> None:
    with pytest.raises(NotFormatted):
        read_meta(Disk(), str(tmp_path))
    (tmp_path / "meta.properties").mkdir()
    with pytest.raises(StorageError):
        read_meta(Disk(), str(tmp_path))
