"""What a log knows of producers once it stands on a snapshot: as if it held all that went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast.errors import CorruptLog
from kraftfast.log.idempotence.producer_records import to_tags
from kraftfast.log.idempotence.producers import Producers
from kraftfast.log.snapshots.log_start import delete_before, install_snapshot
from kraftfast.log.snapshots.snapshot_files import delete_snapshots, snapshot_path
from kraftfast.log.snapshots.snapshot_footer import producers_state, read_footer
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.types import OffsetAndEpoch
from tests.damaging import flip
from tests.log import kit
from tests.log.producer_model import one_by_one, replay
from tests.log.test_producers import PRODUCERS_MAX, Twin, a_twin, replay_state

FILLED = 70


def filled(twin: Twin) -> None:
    """Two producers by turns, in more segments than are marked; a name at the end."""
    for sequence in range(FILLED):
        twin.append(7 + sequence % 2, 0, sequence // 2, 1, 9000)
    twin.name("loader", 9, 0, False)
    twin.log.flush()


def snapshot(twin: Twin, offset: int, log_path: str = "") -> OffsetAndEpoch:
    """A snapshot of what is below ``offset``, with the state as of there."""
    snapshot_id = OffsetAndEpoch(offset, 1)
    state = twin.log.producers.freeze(offset, twin.log.segments)
    with SnapshotWriter(
        twin.home.disk, log_path or twin.home.log_path, snapshot_id, last_contained_log_timestamp=0
    ) as writer:
        writer.extend([bytes(3000)] * 100)
        writer.freeze(to_tags(state))
    return snapshot_id


def check_everywhere(twin: Twin) -> None:
    """D22: at every place that the log can be cut to, the state is what a scan of all gives."""
    twin.check()
    log = twin.log
    ends = {each.offset for each in twin.entries} | {log.end_offset, log.log_start_offset}
    for end_offset in sorted(each for each in ends if each >= log.log_start_offset):
        found = Producers(PRODUCERS_MAX)
        found.load(0, log.producers.freeze(end_offset, log.segments))
        known = replay([each for each in twin.entries if each.offset < end_offset], PRODUCERS_MAX)
        assert len(found) == len(known)
        assert one_by_one(found.forgotten) == known.forgotten
        for each in known.values():
            twin.check_one(found.get(each.id), each)


@pytest.mark.parametrize("offset", [20, 21, 40])
@pytest.mark.parametrize("clean", [False, True])
def test_a_restart_behind_a_snapshot(tmp_path: Path, offset: int, clean: bool) -> None:
    """A snapshot inside a segment, where the log does not begin: cuts go back below it, too."""
    with a_twin(tmp_path) as twin:
        filled(twin)
        snapshot(twin, offset)
        twin.reopen(clean)
        check_everywhere(twin)
        twin.cut(offset + 1)
        check_everywhere(twin)
        twin.reopen(clean)
        check_everywhere(twin)


@pytest.mark.parametrize("began", [False, True])
def test_damage_in_what_is_given_up(tmp_path: Path, began: bool) -> None:
    """L5: it ended a replica at each retention, though the snapshot has the state (D22)."""
    with a_twin(tmp_path) as twin:
        filled(twin)
        snapshot(twin, 40)
        state = twin.log.producers.freeze(40, twin.log.segments)
        if began:  # nothing is marked: it was made before the start
            twin.log.producers.load(0, twin.log.producers.encode())
        segment = twin.log.segment_of(39)
        assert segment is not twin.log.segments[0]
        flip(Path(segment.file.path), segment.place_of(39)[0] + 80)
        if began:
            with pytest.raises(CorruptLog):
                twin.log.producers.freeze(40, twin.log.segments)
        delete_before(twin.log, 40)
        assert twin.log.log_start_offset == 40
        assert twin.log.producers.freeze(40, twin.log.segments) == state


def test_damage_before_the_first_producer(tmp_path: Path) -> None:
    """L5, D22: the snapshot knows of none, and that is what it says."""
    with a_twin(tmp_path) as twin:
        kit.fill(twin.log, 40)
        snapshot(twin, 20)
        twin.append(7, 0, 0, 3)
        segment = twin.log.segment_of(19)
        flip(Path(segment.file.path), segment.place_of(19)[0] + 80)
        delete_before(twin.log, 20)
        assert twin.log.log_start_offset == 20
        assert twin.log.producers.freeze(20, twin.log.segments) == b""


def test_damage_without_a_snapshot_that_ends_there(tmp_path: Path) -> None:
    """D22: there is no state, and the log stays as it was."""
    with a_twin(tmp_path) as twin:
        filled(twin)
        segment = twin.log.segment_of(39)
        flip(Path(segment.file.path), segment.place_of(39)[0] + 80)
        twin.log.producers.load(0, twin.log.producers.encode())
        with pytest.raises(CorruptLog):
            delete_before(twin.log, 40)
        assert twin.log.log_start_offset == 0


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5), st.integers(1, 30)),
    st.tuples(st.just("name"), st.sampled_from("ab"), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("fill"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("snapshot"), st.integers(0, 6)),
    st.tuples(st.just("retain"), st.integers(0, 2)),
    st.tuples(st.just("open"), st.booleans()),
)


@settings(max_examples=40)
@given(steps=st.lists(STEPS, max_size=30))
def test_any_course_of_snapshots_cuts_and_restarts(tmp_path_factory: Any, steps: list[Any]) -> None:
    with a_twin(tmp_path_factory.mktemp("log")) as twin:
        taken: list[OffsetAndEpoch] = []
        for what, *values in steps:
            back = values[0] if what in ("cut", "snapshot") else 0
            places = [each.offset for each in twin.entries][-back:] if back else []
            if what == "append":
                known = twin.known.get(values[0])
                sequence = known.next_sequence if known else 0
                twin.append(values[0], known.epoch if known else 0, sequence, values[1])
            elif what == "name":
                twin.name(values[0], values[1], 0, values[2])
            elif what == "fill":
                kit.fill(twin.log, values[0], 30_000)
            elif what == "cut" and places:
                twin.cut(max(places[0], taken[-1].offset if taken else 0))
            elif what == "snapshot" and places:
                if places[0] > (taken[-1].offset if taken else 0):
                    twin.log.flush()
                    taken.append(snapshot(twin, places[0]))
            elif what == "retain" and values[0] and taken:
                delete_before(twin.log, taken[-values[0] :][0].offset)
                gone = [each for each in taken if each.offset < twin.log.log_start_offset]
                delete_snapshots(twin.home.disk, twin.home.log_path, gone)
                taken = [each for each in taken if each not in gone]
            elif what == "open":
                twin.log.flush()
                twin.reopen(*values)
            check_everywhere(twin)


@pytest.mark.parametrize("delete", [False, True])
def test_a_log_that_stands_on_a_snapshot(tmp_path: Path, delete: bool) -> None:
    with a_twin(tmp_path) as twin:
        filled(twin)
        whole = twin.log.producers.encode()
        snapshot(twin, 21)
        if delete:
            assert delete_before(twin.log, 21) > 0
        twin.check()
        twin.cut(33)
        twin.check()
        for sequence in range(33, FILLED):
            twin.append(7 + sequence % 2, 0, sequence // 2, 1, 9000)
        twin.name("loader", 9, 0, False)
        assert twin.log.producers.encode() == whole
        twin.log.flush()
        twin.reopen(False)
        twin.check()
        twin.cut(22)
        twin.check()


def test_a_log_begins_anew_behind_a_fetched_snapshot(tmp_path: Path) -> None:
    with a_twin(tmp_path / "a") as leader, a_twin(tmp_path / "b") as follower:
        filled(leader)
        follower.append(3, 0, 0)
        snapshot_id = snapshot(leader, 30, follower.home.log_path)
        install_snapshot(follower.log, snapshot_id)
        follower.entries = [each for each in leader.entries if each.offset < 30]
        follower.check()
        follower.cut(30)
        follower.check()
        follower.reopen(False)
        follower.check()


def test_a_log_beside_its_snapshot_knows_what_that_says(tmp_path: Path) -> None:
    """What the segments hold beyond it is of another history."""
    with a_twin(tmp_path / "a") as leader, a_twin(tmp_path / "b") as follower:
        filled(leader)
        for sequence in range(50):
            follower.append(3, 0, sequence)
        snapshot_id = OffsetAndEpoch(30, 2)
        with SnapshotWriter(
            follower.home.disk, follower.home.log_path, snapshot_id, last_contained_log_timestamp=0
        ) as writer:
            writer.freeze(to_tags(leader.log.producers.freeze(30, leader.log.segments)))
        follower.reopen(False)
        follower.entries = [each for each in leader.entries if each.offset < 30]
        assert follower.log.end_offset == 30
        follower.check()


def test_a_snapshot_that_says_nothing(tmp_path: Path) -> None:
    """As Kafka writes them: what the log still holds is known."""
    with a_twin(tmp_path) as twin:
        filled(twin)
        kit.snapshot(twin.home, 21)
        twin.reopen(False)
        twin.check()


@pytest.mark.parametrize("damage", ["cut", "footer", "length"])
def test_a_footer_that_is_damaged(tmp_path: Path, damage: str) -> None:
    with a_twin(tmp_path) as twin:
        filled(twin)
        snapshot_id = snapshot(twin, 21)
        path = Path(snapshot_path(twin.home.log_path, snapshot_id))
        assert producers_state(twin.home.disk, twin.home.log_path, snapshot_id)
        data = bytearray(path.read_bytes())
        if damage == "cut":
            del data[-3:]
        elif damage == "footer":
            data[-9] ^= 1
        else:
            data[8:12] = b"\0\0\0\0"
        path.chmod(0o600)
        path.write_bytes(data)
        with pytest.raises(CorruptLog):
            read_footer(twin.home.disk, str(path))


def test_footers_of_kafka(recorded: list[Path]) -> None:
    """Every snapshot that Kafka wrote ends with one, and says nothing of producers."""
    disk: Any = kit.Disk()
    found = [path for log in recorded for path in log.glob("*-*.checkpoint")]
    assert found
    for path in found:
        assert read_footer(disk, str(path)).tags == ()


@pytest.mark.parametrize("at", [7, 8, 16], ids=["offset", "length", "magic"])
def test_a_snapshot_carries_no_state_of_a_damaged_log(tmp_path: Path, at: int) -> None:
    """D22: it was that in front of the damage, and other replicas appended again what followed."""
    with a_twin(tmp_path) as twin:
        for number in range(9):
            twin.append(7 + number % 2, 0, number // 2 * 2, 2)
        segment, producers = twin.log.active, twin.log.producers
        path, position = segment.file.path, segment.place_of(8)[0]
        flip(path, position + at)
        for end_offset in (8, 12, 18):
            if end_offset > 8:
                with pytest.raises(CorruptLog) as told:
                    producers.freeze(end_offset, twin.log.segments)
                assert (told.value.path, told.value.offset) == (path, 8)
            else:
                found = producers.freeze(end_offset, twin.log.segments)
                assert found == replay_state(twin.entries, end_offset)
        flip(path, position + at)
