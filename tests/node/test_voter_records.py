"""Voter sets found in the log: by Kafka, across segments, and in the bootstrap checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import CorruptBatch, CorruptLog
from kraftfast.log.scan import control_batches
from kraftfast.log.snapshots.log_start import delete_before
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter, write_bootstrap
from kraftfast.node.storage.voter_records import controls_of, stored_controls, voter_history
from kraftfast.record import control as record
from kraftfast.types import (
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    OffsetAndEpoch,
    Voter,
    VoterSet,
)
from tests.log.kit import Home, fill, tend_until

LEFT_BY_KAFKA = Path(__file__).parents[1] / "log/data/dynamic-4.3.0/n1/__cluster_metadata-0"


def voters_of(*ids: int) -> VoterSet:
    place = Endpoint("CONTROLLER", "127.0.0.1", 9093)
    return VoterSet(Voter(id, bytes([id]) * 16, (place,), 0, 1) for id in ids)


def control_batch(*ids: int) -> bytes:
    """A leader's batch: the change of leader, the version, and the voters."""
    records = [
        LeaderChange(1, (), ()),
        KRaftVersion(1),
        KRaftVoters(voters_of(*ids)),
    ]
    return record.control_batch(records, timestamp=0, leader_epoch=1)


def append_controls(log: Any, *ids: int) -> int:
    """Append such a batch; returns its base offset."""
    offset = int(log.end_offset)
    tend_until(log, lambda: log.append(control_batch(*ids), 1, True))
    return offset


def test_what_kafka_left(tmp_path: Path) -> None:
    """The dump that Kafka's own tool made of the same file is the judge."""
    told = {}
    dump = LEFT_BY_KAFKA / "00000000000000000000.log.dump.txt"
    for line in dump.read_text().splitlines():
        _, found, text = line.partition(" KRaftVoters ")
        if found:
            voters = json.loads(text)["voters"]
            ids = sorted(each["voterId"] for each in voters)
            told[int(line.split("offset: ")[1].split()[0])] = ids
    assert len(told) >= 4
    home = Home.copied(LEFT_BY_KAFKA, tmp_path / "n1")
    log = home.open()
    found = {
        at: list(each.voters.ids)
        for at, each in stored_controls(log, 0)
        if isinstance(each, KRaftVoters)
    }
    assert found == told
    history = voter_history(home.disk, home.log_path, log)
    home.close()
    (snapshot_id,) = snapshot_ids(home.disk, home.log_path)
    assert snapshot_id.offset > min(told) and log.log_start_offset == 0
    assert {at: list(each.voters.ids) for at, each in history.voter_sets} == told
    assert history.kraft_version == 1
    assert all(len(voter.directory_id) == 16 for voter in history.voter_sets[0][1].voters)


def test_controls_among_records_and_across_segments(tmp_path: Path) -> None:
    home = Home(tmp_path / "one")
    log = home.open()
    placed = []
    for ids in ((1,), (1, 2), (1, 2, 3), (2, 3)):
        at = append_controls(log, *ids)
        placed += [(at + 1, KRaftVersion(1)), (at + 2, KRaftVoters(voters_of(*ids)))]
        fill(log, 1200, 1000)
    assert len(log.segments) > 2, "the test is about several segments"
    assert len(control_batches(log, 0)) == 4
    for start in (0, 1, 3, 1203, 1204, 1205, 2000, log.end_offset - 1, log.end_offset):
        begin = start - start % 1203 if start % 1203 < 3 else start  # of the batch it is in
        expected = [each for each in placed if each[0] >= begin]
        assert list(stored_controls(log, start)) == expected, start
    history = voter_history(home.disk, home.log_path, log)
    assert [at for at, _ in history.voter_sets] == [at for at, each in placed][1::2]
    log.truncate(placed[-1][0] - 2)
    assert history.truncate_to(log.end_offset)
    assert history == voter_history(home.disk, home.log_path, log)
    home.close()


def of_snapshot(*ids: int) -> tuple[KRaftVersion, KRaftVoters]:
    return KRaftVersion(1), KRaftVoters(voters_of(*ids))


def test_the_bootstrap_checkpoint_is_below_the_log(tmp_path: Path) -> None:
    home = Home(tmp_path / "one")
    home.open()
    home.close()
    write_bootstrap(home.disk, home.log_path, of_snapshot(1))
    log = home.open()
    history = voter_history(home.disk, home.log_path, log)
    assert history.latest is not None and history.latest.voters.ids == (1,)
    assert (history.latest_offset, history.kraft_version) == (-1, 1)
    append_controls(log, 1, 2)
    history = voter_history(home.disk, home.log_path, log)
    assert [at for at, _ in history.voter_sets] == [-1, 2]
    path = Path(snapshot_path(home.log_path, BOOTSTRAP))
    damaged = bytearray(path.read_bytes())
    damaged[80] ^= 1
    path.chmod(0o600)
    path.write_bytes(damaged)
    with pytest.raises(CorruptLog, match=path.name):
        voter_history(home.disk, home.log_path, log)
    home.close()


def test_a_snapshot_stands_for_the_log_below_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "one")
    log = home.open()
    append_controls(log, 1)
    append_controls(log, 1, 2)
    write_bootstrap(home.disk, home.log_path, of_snapshot(7))
    with SnapshotWriter(
        home.disk, home.log_path, OffsetAndEpoch(3, 1), last_contained_log_timestamp=0,
        controls=of_snapshot(9),
    ) as writer:  # fmt: skip
        writer.freeze()
    log.flush()
    delete_before(log, 3)
    history = voter_history(home.disk, home.log_path, log)
    assert [(at, each.voters.ids) for at, each in history.voter_sets] == [(2, (9,)), (5, (1, 2))]
    home.close()


def test_who_voted_below_the_newest_snapshot(tmp_path: Path) -> None:
    """D22: a snapshot below the newest one says who voted there; after a restart as before it."""
    home = Home(tmp_path / "one")
    log = home.open()
    write_bootstrap(home.disk, home.log_path, of_snapshot(7))
    append_controls(log, 1)
    append_controls(log, 1, 2)
    with SnapshotWriter(
        home.disk, home.log_path, OffsetAndEpoch(6, 1), last_contained_log_timestamp=0,
        controls=of_snapshot(1, 2),
    ) as writer:  # fmt: skip
        writer.freeze()
    home.close()
    history = voter_history(home.disk, home.log_path, home.open())
    told = {end: found and found.voters.ids for end in (0, 3, 6)
            for found in (history.voters_at(end),)}  # fmt: skip
    assert told == {0: (7,), 3: (1,), 6: (1, 2)} and history.version_at(3) == 1
    home.close()


def test_voters_that_only_a_later_snapshot_names(tmp_path: Path) -> None:
    home = Home(tmp_path / "one")
    log = home.open()
    fill(log, 5)
    with SnapshotWriter(
        home.disk, home.log_path, OffsetAndEpoch(3, 1), last_contained_log_timestamp=0,
        controls=of_snapshot(9),
    ) as writer:  # fmt: skip
        writer.freeze()
    history = voter_history(home.disk, home.log_path, log)
    assert [(at, each.voters.ids) for at, each in history.voter_sets] == [(2, (9,))]
    home.close()


def test_records_of_others_and_what_does_not_decode() -> None:
    footer = record.control_batch([record.SnapshotFooter()], timestamp=0, leader_epoch=1)
    assert controls_of([footer]) == ()
    broken = record.control_batch(
        [record.OtherControl(record.ControlType.KRAFT_VOTERS, b"\0")], timestamp=0, leader_epoch=1
    )
    with pytest.raises(CorruptBatch):
        controls_of([broken])
    assert [offset for offset, _ in controls_of([footer, control_batch(7)])] == [1, 2]
