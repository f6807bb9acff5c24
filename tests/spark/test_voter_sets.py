"""A quorum at rest is read by the voter sets in its logs, whatever directories lie beside them."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kraftfast import errors  # noqa: E402
from kraftfast.log.disk import Disk  # noqa: E402
from kraftfast.log.reading.extents import Extent  # noqa: E402
from kraftfast.log.small_files import quorum_state  # noqa: E402
from kraftfast.log.small_files.committed_floor import write_floor  # noqa: E402
from kraftfast.log.small_files.directory import (  # noqa: E402
    LogOptions,
    MetaProperties,
    format_directory,
    random_uuid,
)
from kraftfast.record.control import control_batch  # noqa: E402
from kraftfast.spark.reading.certain import Certain, HeldRecords, certain_end  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.types import (  # noqa: E402
    ElectionState,
    KRaftVersion,
    KRaftVoters,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VoterSet,
    uuid_text,
)
from tests.spark.kit import LogFiles, rows_of  # noqa: E402

NOTHING = OffsetAndEpoch(0, 0)


# --- by the rule ----------------------------------------------------------------------------------


def key(id: int, directory: int = 0) -> ReplicaKey:
    return ReplicaKey(id, bytes([directory or id]) * 16)


def voters(*keys: int | ReplicaKey) -> VoterSet:
    found = [each if isinstance(each, ReplicaKey) else key(each) for each in keys]
    return VoterSet(Voter(each.id, each.directory_id) for each in found)


def held(
    of: int | ReplicaKey, runs: list[tuple[int, int]], *sets: tuple[int, VoterSet],
    epoch: int | None = 0,
) -> HeldRecords:  # fmt: skip
    """``runs``: (epoch, where it ends), rising."""
    starts = [0, *(end for _, end in runs)]
    epochs = tuple((epoch, start) for (epoch, _), start in zip(runs, starts))
    stored = None if epoch is None else max(epoch, *(each for each, _ in runs))
    of = key(of) if isinstance(of, int) else of
    return HeldRecords(of, Extent(0, runs[-1][1], epochs), stored, sets)


def end_of(*logs: HeldRecords, known: OffsetAndEpoch = NOTHING) -> int:
    found: Certain = certain_end(logs, known)
    assert found.index < 0 or logs[found.index].extent.end_offset >= found.end.offset
    return found.end.offset


THREE = (-1, voters(1, 2, 3))


def test_a_voter_whose_records_stand_in_a_snapshot_may_win_by_its_epoch() -> None:
    """It fetched the snapshot of a leader of epoch 2, and no record yet that follows."""
    two = [held(id, [(1, 100), (1, 180)], THREE) for id in (1, 2)]
    fetched = HeldRecords(key(3), Extent(120, 120), 2, (THREE,), 2)
    assert end_of(*two, fetched) == 0, "not what the two of epoch 1 hold alike"
    assert end_of(*two, HeldRecords(key(3), Extent(120, 120), 1, (THREE,), 1)) == 180


def test_a_removed_voters_old_directory_is_no_majority() -> None:
    """1 and 2 were removed long ago; both hold a tail that 3, the only voter, never had."""
    one = THREE, (50, voters(2, 3)), (60, voters(3))
    tail = [(1, 40), (2, 90)]
    logs = held(1, tail, THREE), held(2, tail, THREE), held(3, [(1, 40), (3, 80)], *one)
    assert end_of(*logs, known=OffsetAndEpoch(70, 3)) == 80
    assert end_of(*logs) == 40, "by the oldest set 2 may still win with its tail"


def test_a_removed_voters_old_directory_hides_nothing() -> None:
    sets = (THREE, (50, voters(2, 3)))
    logs = [held(2, [(1, 80)], *sets), held(3, [(1, 80)], *sets), held(1, [(1, 50)], THREE)]
    assert end_of(*logs) == 80
    logs[1] = held(3, [(1, 70)], *sets)
    assert end_of(*logs) == 70, "the majority of two is both"
    assert end_of(logs[0], logs[2]) == 50, "3 is not here: two of the first three hold 50"


def test_where_a_replica_was_added_the_larger_set_counts() -> None:
    four = (60, voters(1, 2, 3, 4))
    logs = [held(n, [(1, 100)], THREE, four) for n in (1, 2)] + [held(3, [(1, 55)], THREE)]
    assert end_of(*logs, held(4, [(1, 58)], THREE)) == 60, "before the set that names 4"
    assert end_of(*logs, held(4, [(1, 90)], THREE, four)) == 90
    assert end_of(*logs, held(4, [(1, 90)], THREE), held(5, [(1, 100)], THREE)) == 90, "an observer"


def test_a_set_in_a_tail_that_may_be_cut_counts_beside_the_one_before() -> None:
    """The leader of epoch 2 is gone; its last act was to remove 2, and 3 may yet win without."""
    removed = (60, voters(1, 3))
    tail = held(1, [(1, 50), (2, 70)], THREE, removed)
    both = [held(2, [(1, 50), (2, 58)], THREE), held(3, [(1, 50), (2, 55)], THREE)]
    assert end_of(tail, *both) == 58, "whoever may be elected without it needs two of the three"
    both = [held(2, [(1, 50), (2, 65)], THREE), held(3, [(1, 50), (2, 55)], THREE)]
    assert end_of(tail, *both) == 60, "behind the set 1 and 3 must have it"
    assert end_of(tail, both[0], held(3, [(1, 50), (3, 52)], THREE)) == 50


def test_a_replaced_directory_of_the_same_id_is_another_replica() -> None:
    """2 lost its disk, and the voter set names its new directory; the old one was found again."""
    new = (60, voters(1, key(2, 9), 3))
    old, reborn = held(2, [(1, 100)], THREE), held(key(2, 9), [(1, 70)], THREE, new)
    leader, other = held(1, [(1, 100)], THREE, new), held(3, [(1, 65)], THREE, new)
    assert end_of(old, reborn, leader, other) == 70
    assert end_of(old, leader, other, known=OffsetAndEpoch(61, 1)) == 65


def test_copies_of_one_directory_are_one_voter() -> None:
    logs = [held(1, [(1, 100)], THREE), held(1, [(1, 100)], THREE), held(2, [(1, 30)], THREE)]
    assert end_of(*logs) == 30
    assert end_of(held(1, [(1, 20)], THREE), *logs[1:]) == 20, "either may be started"


def test_a_majority_that_can_be_cut_under_a_later_leader_is_not_enough() -> None:
    """5 holds epoch 2 in the place of epoch 1; 3, cut back by 1, would vote for it."""
    five = (-1, voters(1, 2, 3, 4, 5))
    logs = [
        held(1, [(1, 3), (4, 4)], five), held(2, [(1, 3), (4, 4)], five),
        held(3, [(1, 3), (3, 4)], five), held(4, [(1, 2)], five), held(5, [(1, 2), (2, 3)], five),
    ]  # fmt: skip
    assert end_of(*logs) == 2
    logs[2] = held(3, [(1, 3), (4, 4)], five)
    assert end_of(*logs) == 4


def test_what_an_absent_voter_may_hold() -> None:
    """A leader of epoch 2, of which only a vote is left here, may have the record cut."""
    two = [held(n, [(1, 80)], THREE) for n in (1, 2)]
    assert end_of(*two) == 80
    assert end_of(two[0], held(2, [(1, 80)], THREE, epoch=2)) == 0
    assert end_of(held(1, [(1, 80), (2, 81)], THREE), held(2, [(1, 80)], THREE, epoch=2)) == 80
    assert end_of(two[0], held(2, [(1, 80)], THREE, epoch=None)) == 0
    third = held(3, [(1, 10)], THREE)
    assert end_of(two[0], held(2, [(1, 80)], THREE, epoch=2), third) == 80, "it is here"


def test_logs_that_name_nobody() -> None:
    assert end_of(held(1, [(1, 80)]), held(2, [(1, 80)])) == 0


# --- by directories -------------------------------------------------------------------------------


class Directories:
    """A quorum's directory at rest: replicas whose logs hold batches and voter sets."""

    def __init__(self, path: Path, *ids: int) -> None:
        self.path, self.cluster = path, uuid_text(random_uuid())
        self.keys = {id: ReplicaKey(id, random_uuid()) for id in (1, 2, 3, 4, 5)}
        self.ids = ids
        path.mkdir()

    def set_of(self, *ids: int) -> KRaftVoters:
        return KRaftVoters(VoterSet(Voter(id, self.keys[id].directory_id) for id in ids))

    def replica(
        self, id: int, *parts: tuple[int, Any], floor: Any = None, stored_epoch: int = 1
    ) -> Path:
        """``parts``: (epoch, how many records, or the ids of a voter set)."""
        path, key = self.path / str(id), self.keys[id]
        meta = MetaProperties(self.cluster, id, key.directory_id)
        first = [KRaftVersion(1), self.set_of(*self.ids)]
        format_directory(Disk(), str(path), meta, LogOptions(), first)
        files = LogFiles(path)
        file = files.roll()
        for epoch, what in parts:
            if isinstance(what, int):
                files.append(file, [b"%d" % epoch] * what, epoch=epoch)
                continue
            with file.open("ab") as out:
                out.write(
                    control_batch(
                        [self.set_of(*what)], base_offset=files.end_offset, timestamp=1,
                        leader_epoch=epoch,
                    )
                )  # fmt: skip
            files.end_offset += 1
        state = ElectionState(max([stored_epoch, *(each for each, _ in parts)]))
        data = quorum_state.seal(quorum_state.encode(state, 1, ()))
        (files.log_path / quorum_state.NAME).write_bytes(data)
        if floor is not None:
            write_floor(Disk(), str(path), OffsetAndEpoch(*floor))
        return path


def count(path: Any, **options: str) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return len(rows_of(LogSource({"path": str(path), **options})))


def test_voters_removed_and_added_are_counted_by_the_log(tmp_path: Path) -> None:
    made = Directories(tmp_path / "q", 1, 2, 3)
    whole = [(1, 50), (2, (1, 2, 3, 4)), (2, (2, 3, 4)), (2, 40)]
    for id in (2, 4):
        made.replica(id, *whole)
    made.replica(3, *whole[:3], (2, 30))
    made.replica(1, (1, 50), (1, 70))
    assert count(made.path) == 90
    shutil.rmtree(made.path / "4")
    assert count(made.path) == 50, "1 and 4 may yet be a half of the four"
    write_floor(Disk(), str(made.path / "3"), OffsetAndEpoch(60, 2))
    assert count(made.path) == 80


def test_a_replica_killed_before_its_log_had_a_segment_hides_nothing(tmp_path: Path) -> None:
    made = Directories(tmp_path / "q", 1, 2, 3)
    for id in (1, 2):
        made.replica(id, (1, 50), (1, 20))
    meta = MetaProperties(made.cluster, 4, random_uuid())
    format_directory(Disk(), str(made.path / "4"), meta, LogOptions())
    assert count(made.path) == 70
    assert count(made.path / "4") == 0


def test_the_only_voter_left_is_read_to_its_end(tmp_path: Path) -> None:
    made = Directories(tmp_path / "q", 1, 2)
    left = made.replica(2, (1, 10), (2, (2,)), (2, 25), floor=(12, 2))
    made.replica(1, (1, 10), (1, 30))
    assert count(made.path) == count(left) == 35
    assert count(made.path / "1") == 0


def test_a_voter_of_one_directory_is_not_taken_for_the_only_one(tmp_path: Path) -> None:
    """``quorum.json`` names those of this host; the log names two more."""
    made = Directories(tmp_path / "q", 1)
    path = made.replica(1, (1, 10), (1, (1, 2)), (1, (1, 2, 3)), (1, 25), floor=(12, 1))
    (made.path / "quorum.json").write_text(json.dumps({"voters": [1]}))
    assert count(path) == count(made.path) == 10
    assert count(made.path, includeUncommitted="true") == 35


def test_replicas_of_two_clusters_are_refused(tmp_path: Path) -> None:
    made = Directories(tmp_path / "q", 1, 2, 3)
    made.replica(1, (1, 10))
    made.cluster = uuid_text(random_uuid())
    made.replica(2, (1, 10))
    with pytest.raises(errors.ForeignDirectory, match="are of different clusters"):
        count(made.path)
