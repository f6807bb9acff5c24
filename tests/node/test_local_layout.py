"""quorum.json and the directories beside it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import DirectoryInUse, ForeignDirectory, InvalidOption, NotFormatted
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import read_meta, read_options
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.node.storage import local_layout
from kraftfast.node.storage.description import changing, locked, read_description
from kraftfast.node.storage.local_layout import (
    LiveDirectories,
    add_to_description,
    format_quorum,
    on_one_device,
    open_or_format,
    replica_directories,
    set_others_aside,
    shared_device_text,
)
from kraftfast.node.storage.storage_host import KernelStorageHost
from kraftfast.types import KRaftVersion, KRaftVoters, uuid_text


def test_a_quorum_with_its_voters_in_a_checkpoint(tmp_path: Path) -> None:
    """Every voter has the same one, with everybody's directory id."""
    path = str(tmp_path / "q")
    description = format_quorum(path, 3, kraft_version=1)
    ids = {id: read_meta(Disk(), os.path.join(path, str(id))).directory_id for id in (1, 2, 3)}
    for id in description.voters:
        log_path = os.path.join(path, str(id), "__cluster_metadata-0")
        assert snapshot_ids(Disk(), log_path) == [BOOTSTRAP]
        with open_snapshot(Disk(), log_path, BOOTSTRAP) as snapshot:
            version, voters = snapshot.controls
        assert version == KRaftVersion(1) and isinstance(voters, KRaftVoters)
        assert {voter.id: voter.directory_id for voter in voters.voters} == ids
        assert {voter.endpoints for voter in voters.voters} == {(("CONTROLLER", "localhost", 0),)}
    format_quorum(str(tmp_path / "static"), 1, kraft_version=0)
    assert snapshot_ids(Disk(), str(tmp_path / "static/1/__cluster_metadata-0")) == []
    with pytest.raises(InvalidOption, match="kraft.version"):
        format_quorum(str(tmp_path / "other"), 3, kraft_version=2)


@pytest.mark.parametrize(
    "damage",
    [
        {"voters": []},
        {"voters": [-1]},
        {"voters": [2**31]},
        {"added": [-4]},
        {"version": 2},
        {"voters": [1, 1, 2]},
        {"added": [1]},
        {"cluster_id": ""},
    ],  # fmt: skip
)
def test_a_description_that_names_no_quorum_is_refused(
    tmp_path: Path, damage: dict[str, Any]
) -> None:
    """As one that is cut: by the name of the file, and with what the replicas say instead."""
    path = tmp_path / "q"
    format_quorum(str(path), 3)
    file = path / "quorum.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | damage))
    with pytest.raises(ForeignDirectory, match="quorum.json does not parse"):
        read_description(str(path))
    with pytest.raises(ForeignDirectory, match=r'it is \{.*"voters":\[1,2,3\]'):
        open_or_format(str(path), None, None, None, 1)


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("durability", "most", "durability is 'most', not 'majority' or 'all' or 'memory'"),
        ("records", "none", "records is 'none', not 'any' or 'kafka-raft'"),
        ("kraft_version", 2, "kraft_version is 2, not 0 or 1"),
        ("kraft_version", -1, "kraft_version is -1, not 0 or 1"),
        ("durability", "all", "durability is 'all', but replica 1 was formatted with 'majority'"),
        ("topic", "", "topic is '', but replica 1 was formatted with '__cluster_metadata'"),
    ],
)
def test_a_description_that_promises_something_else_is_refused(
    tmp_path: Path, key: str, value: Any, said: str
) -> None:
    """A promise of quorum.json that no replica keeps was told to users as it stood there."""
    path = tmp_path / "q"
    format_quorum(str(path), 3)
    file = path / "quorum.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(
        ForeignDirectory, match=r'quorum.json.*it is \{.*"voters":\[1,2,3\]'
    ) as caught:
        open_or_format(str(path), None, None, None, 1)
    assert said in str(caught.value)


def test_what_holds_no_quorum_is_told_for_what_it_is(tmp_path: Path) -> None:
    format_quorum(str(tmp_path / "q"), 1)
    there = f"{tmp_path}/q"
    for path, why in (
        (f"{there}/1", f"there is no quorum.json; the one that it lies in does: {there}"),
        (f"{there}x", "there is no such directory"),
        (str(tmp_path), "there is no quorum.json"),
    ):
        with pytest.raises(NotFormatted) as caught:
            read_description(path)
        assert str(caught.value) == f"{path} holds no quorum: {why}"


def test_a_replica_that_is_not_there_is_just_missing(tmp_path: Path) -> None:
    """Whoever looks for the leader asks for the id that a replica names: -1, if it knows none."""
    path = str(tmp_path / "q")
    format_quorum(path, 2)
    for places in (LiveDirectories(path), replica_directories(path, [1, 2])):
        assert 2 in places and places.get(2) == f"{path}/2"
        for id in (-1, 7):
            assert id not in places and places.get(id) is None
            with pytest.raises(InvalidOption):
                places[id]


def test_replicas_are_added_once(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    format_quorum(path, 2, "all", "kafka-raft", "t")
    places = LiveDirectories(path)
    assert dict(places) == {1: f"{path}/1", 2: f"{path}/2"}
    added = add_to_description(path, 7)
    assert added[0] == 7 and add_to_description(path, 7) == added
    assert read_description(path).added == [7]
    assert sorted(places) == [1, 2, 7] and places[7] == f"{path}/7"
    assert read_options(Disk(), places[7]) == read_options(Disk(), places[1])
    os.rename(os.path.join(path, "7"), os.path.join(path, "8"))
    with pytest.raises(ForeignDirectory, match="another quorum"):
        add_to_description(path, 8)
    os.unlink(os.path.join(path, "quorum.json"))
    with pytest.raises(NotFormatted):
        list(places)


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Their results, all of them begun at the same time."""
    results: list[Any] = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def run(number: int, call: Callable[[], Any]) -> None:
        gate.wait()
        results[number] = call()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_replicas_that_are_made_at_once_are_all_described(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    format_quorum(path, 1)
    ids = range(2, 8)
    made = at_once([lambda id=id: add_to_description(path, id) for id in (*ids, *ids)])
    assert sorted(read_description(path).added) == [*ids]
    found = [read_meta(Disk(), os.path.join(path, str(id))).directory_id for id in ids]
    assert made == [*zip(ids, found), *zip(ids, found)]


@pytest.mark.parametrize("begins", [True, False])
def test_no_call_goes_on_after_an_interruption(
    begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may come while a thread is started: it has ended then, or makes no call later."""
    begun, steps, late = threading.Event(), [], []

    def call() -> None:
        steps.append("begins")
        begun.set()
        time.sleep(0.1)
        steps.append("ends")

    real_start = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if begins:
            real_start(thread)
            assert begun.wait(20)
        else:
            late.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        local_layout.at_once([call])
    assert steps == ["begins", "ends"] * begins
    for thread in late:
        thread.run()
    assert steps == ["begins", "ends"] * begins


def test_the_next_id_is_given_once(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    format_quorum(path, 1)
    made = at_once([lambda: add_to_description(path, None) for _ in range(6)])
    assert sorted(id for id, _ in made) == [*range(2, 8)]
    assert sorted(read_description(path).added) == [*range(2, 8)]


def test_a_quorum_is_made_by_one_of_many(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    made = at_once([lambda: open_or_format(path, 3, None, None, 1) for _ in range(6)])
    cluster_id = read_description(path).cluster_id
    assert {each.cluster_id for each, _ in made} == {cluster_id}
    assert sum(is_new for _, is_new in made) == 1
    for id in (1, 2, 3):
        assert read_meta(Disk(), os.path.join(path, str(id))).cluster_id == cluster_id


def test_a_change_that_fails_is_not_stored(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    format_quorum(path, 1)
    before = read_description(path)
    with pytest.raises(KeyError), changing(path) as description:
        description.added.append(9)
        raise KeyError
    assert read_description(path) == before


def test_who_waits_too_long_for_the_lock_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "q")
    format_quorum(path, 1)
    monkeypatch.setattr("kraftfast.node.storage.description.LOCK_S_MAX", 0.05)
    with locked(path), pytest.raises(DirectoryInUse, match="another process is changing"):
        add_to_description(path, 2)


class Killed(BaseException):
    """Ends a process as a signal would."""


class KilledAt(Disk):
    """A disk whose process is killed at one of its steps."""

    left = 0

    def _step(self) -> None:
        type(self).left -= 1
        if type(self).left < 0:
            raise Killed

    def replace_file(self, path: str, data: bytes) -> None:
        self._step()
        super().replace_file(path, data)

    def make_directory(self, path: str) -> None:
        self._step()
        super().make_directory(path)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)


def test_a_quorum_is_made_after_a_kill_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again after a kill at any step of that, with as many voters as are asked for then."""
    steps, done = 0, False
    while not done:
        path = str(tmp_path / str(steps))
        with monkeypatch.context() as patch:
            patch.setattr("kraftfast.node.storage.storage_host.Disk", KilledAt)
            for voters, left in ((3, steps), (2, steps // 2)):
                KilledAt.left = left
                try:
                    open_or_format(path, voters, None, None, 1)
                    done = voters == 3
                    break
                except (Killed, InvalidOption):  # the latter: it was all there
                    pass
        if not os.path.exists(os.path.join(path, "quorum.json")):
            made, is_new = open_or_format(path, 1, None, None, 1)
            assert made.voters == [1] and is_new
            assert not os.path.exists(os.path.join(path, "quorum.json.new"))
        made = read_description(path)
        for id in made.voters:
            assert read_meta(Disk(), os.path.join(path, str(id))).cluster_id == made.cluster_id
        steps += 1
    assert steps > 20


def test_what_is_left_of_a_quorum_is_not_formatted_over(tmp_path: Path) -> None:
    """A plan that stayed behind gives no right to the directories of a quorum that ran."""
    path = tmp_path / "q"
    format_quorum(str(path), 1)
    meta = read_meta(Disk(), str(path / "1"))
    ids = {"1": uuid_text(meta.directory_id)}
    plan = {"log_name": "__cluster_metadata-0", "directory_ids": ids}
    (path / "quorum.json.new").write_text(json.dumps(plan))
    (path / "quorum.json").unlink()
    (path / "1" / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(b"")
    with pytest.raises(ForeignDirectory, match="holds a log"):
        format_quorum(str(path), 1)
    assert read_meta(Disk(), str(path / "1")) == meta


@pytest.mark.parametrize("below", ["", "nursery", "nursery/deep"])
def test_no_quorum_is_made_in_the_directory_of_a_replica(tmp_path: Path, below: str) -> None:
    """Its log, and what stands ready for it, are the replica's own."""
    format_quorum(str(tmp_path / "q"), 1)
    replica = tmp_path / "q" / "1"
    (replica / below).mkdir(parents=True, exist_ok=True)
    with pytest.raises(ForeignDirectory, match=f"^{replica} is the directory of one replica"):
        format_quorum(str(replica / below), 1)
    assert not (replica / below / "1").exists()
    format_quorum(str(tmp_path / "q" / "beside"), 1)  # beside replicas there may be another


def test_setting_aside_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(3):
        path = str(tmp_path / str(step))
        format_quorum(path, 3)
        with monkeypatch.context() as patch:
            patch.setattr("kraftfast.node.storage.storage_host.Disk", KilledAt)
            KilledAt.left = step
            with contextlib.suppress(Killed):
                set_others_aside(path, 2)
        set_others_aside(path, 2)
        assert read_description(path).replicas == [2]
        assert sorted(os.listdir(path)) == [
            "1.set-aside", "2", "3.set-aside", "quorum.json", "quorum.json.lock",
        ]  # fmt: skip


def test_replicas_on_one_device_are_named(tmp_path: Path) -> None:
    """D19: they are one failure domain."""
    made = {id: str(tmp_path / str(id)) for id in (1, 2)}
    for directory in made.values():
        os.mkdir(directory)
    other = {3: "/proc", 4: str(tmp_path / "missing")}
    assert on_one_device(made | other) == [[1, 2]]
    assert on_one_device({1: made[1]} | other) == []
    assert "replicas 1, 2 are on one device" in shared_device_text([1, 2])


class Watched(Disk):
    """Notes what is made durable; ``dies``: at the first sync of a directory."""

    dies = False
    done: list[str] = []  # noqa: RUF012 - of all, since each call makes one

    def sync_directory(self, path: str) -> None:
        if self.dies:
            raise Killed
        self.done.append(path)
        super().sync_directory(path)

    def replace_file(self, path: str, data: bytes) -> None:
        super().replace_file(path, data)
        self.done.append(path)


class WatchedHost(KernelStorageHost):
    disk = Watched()


def test_a_directory_that_a_killed_process_made_is_durable_before_it_holds_a_quorum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D18: else all of the quorum is gone with the power, whatever was flushed in it."""
    path = str(tmp_path / "q")
    monkeypatch.setattr(Watched, "dies", True)
    with pytest.raises(Killed):
        format_quorum(path, 1, host=WatchedHost())
    assert os.path.isdir(path)
    monkeypatch.setattr(Watched, "dies", False)
    monkeypatch.setattr(Watched, "done", [])
    format_quorum(path, 1, host=WatchedHost())
    done = Watched.done
    assert str(tmp_path) in done[: done.index(os.path.join(path, "quorum.json"))]


def test_what_a_killed_process_wrote_of_a_quorum_is_durable_before_others_go_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D18: it may have renamed ``quorum.json``, and not synced that. Whoever finds a replica added,
    or starts the quorum, takes it for done; with the power it would be gone."""
    path = str(tmp_path / "q")
    format_quorum(path, 1, host=WatchedHost())
    for goes_by_it in (
        lambda: add_to_description(path, 1, WatchedHost()),
        lambda: open_or_format(path, None, None, None, 1, host=WatchedHost()),
    ):
        monkeypatch.setattr(Watched, "done", [])
        goes_by_it()
        assert Watched.done == [path]
