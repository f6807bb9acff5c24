"""A replica whose directory is bad: the majority starts without it, and it is made anew."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import (
    CorruptLog,
    DirectoryInUse,
    ForeignDirectory,
    InvalidOption,
    NoQuorum,
    NotFormatted,
    RequestRefused,
)
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import read_meta
from kraftfast.node.storage import replacing
from kraftfast.node.storage.description import read_description
from kraftfast.node.storage.local_layout import add_to_description, place_of, set_aside
from kraftfast.node.storage.replacing import fault_of, refuse_place, refuse_running
from kraftfast.quorum import LocalQuorum
from tests.processes.kit import PATIENCE_S, a_quorum, settled, wait_until

pytestmark = pytest.mark.processes
RECORDS = [b"record %d" % number for number in range(200)]


def log_of(path: Path) -> Path:
    return path / "__cluster_metadata-0"


def damage_log(path: Path) -> None:
    with open(log_of(path) / f"{0:020d}.log", "r+b") as file:
        file.seek(600)
        byte = file.read(1)[0]
        file.seek(600)
        file.write(bytes([byte ^ 1]))


def empty_state(path: Path) -> None:
    (log_of(path) / "quorum-state").write_bytes(b"")


DAMAGES: dict[Callable[[Path], Any], type[Exception]] = {
    damage_log: CorruptLog,
    empty_state: ForeignDirectory,
    shutil.rmtree: NotFormatted,
}


def made(path: Path, **settings: Any) -> None:
    with a_quorum(path, **settings) as quorum, quorum.producer() as producer:
        producer.append_many(RECORDS)
        settled(quorum)  # all have them: any of the directories may be damaged in its records


def directory_id(path: Path) -> bytes:
    return read_meta(Disk(), str(path)).directory_id


def values(quorum: LocalQuorum, id: int) -> list[bytes]:
    return [record.value for record in quorum.consumer(replica=id)]


@pytest.mark.parametrize(
    "damage, kraft_version", [(damage_log, 0), *((damage, 1) for damage in DAMAGES)]
)
def test_a_majority_starts_without_a_bad_directory(
    tmp_path: Path, damage: Callable[[Path], Any], kraft_version: int
) -> None:
    path = tmp_path / "q"
    made(path, kraft_version=kraft_version)
    damage(path / "2")
    with a_quorum(path) as quorum:
        assert list(quorum.faults) == [2] and isinstance(quorum.faults[2], DAMAGES[damage])
        with quorum.producer() as producer:
            offset = producer.append_wait(b"after")
        wait_until(lambda: quorum.status(1)["high_watermark"] > offset)  # if it follows, later
        assert values(quorum, 1) == [*RECORDS, b"after"]


def test_a_minority_does_not_start_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "q"
    made(path)
    damage_log(path / "2")
    shutil.rmtree(path / "3")
    with pytest.raises(CorruptLog):
        LocalQuorum(path, timeout=PATIENCE_S)


def test_a_replica_is_made_anew_while_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "q"
    made(path)
    old = directory_id(path / "2")
    damage_log(path / "2")
    with a_quorum(path) as quorum, quorum.producer() as producer:
        with pytest.raises(DirectoryInUse):
            quorum.replace(1)
        with pytest.raises(InvalidOption, match="its replicas are 1, 2, 3"):
            quorum.replace(4)
        quorum.replace(2, timeout=PATIENCE_S)
        new = directory_id(path / "2")
        voters = {each.id: each.directory_id for each in quorum.describe().voters}
        assert new != old and voters[2] == new and sorted(voters) == [1, 2, 3]
        assert directory_id(path / "2.set-aside") == old
        assert quorum.faults == {} and read_description(str(path)).replacing == {}
        offset = producer.append_wait(b"after")
        wait_until(lambda: quorum.status(2)["high_watermark"] > offset)
        assert values(quorum, 2) == [*RECORDS, b"after"]
    with a_quorum(path) as quorum:
        assert quorum.describe().voter_ids == (1, 2, 3) and quorum.faults == {}


def test_a_replica_that_cannot_start_is_in_the_way_of_no_other(tmp_path: Path) -> None:
    """L1: it was added, and its directory is bad; another one is replaced, and others are added."""
    path = tmp_path / "q"
    made(path)
    damage_log(path / "2")
    with a_quorum(path) as quorum:
        add_to_description(str(path), 4)
        add_to_description(str(path), 5)
        (path / "4" / "meta.properties").unlink()
        assert quorum.add_replica(6, timeout=PATIENCE_S) == 6
        assert sorted(quorum.directories) == [1, 2, 3, 6] and list(quorum.faults) == [2]
        quorum.replace(2, timeout=PATIENCE_S)
        assert quorum.describe().voter_ids == (1, 2, 3) and quorum.faults == {}
        with pytest.raises(NotFormatted, match="/4 is not formatted"):
            quorum.adopt(timeout=PATIENCE_S)
        assert sorted(quorum.directories) == [1, 2, 3, 5, 6]
        wait_until(lambda: values(quorum, 5) == RECORDS)


def test_what_is_no_directory_is_set_aside_too(tmp_path: Path) -> None:
    """A file, or a link to a disk that is gone, stands where the new directory has to be."""
    (tmp_path / "1").write_text("file")
    (tmp_path / "2").symlink_to(tmp_path / "gone" / "2")
    for id in (1, 2):
        directory = str(tmp_path / str(id))
        refuse_running(directory)
        assert fault_of(directory)
        assert set_aside(directory) == directory + ".set-aside"
        assert not os.path.lexists(directory) and os.path.lexists(directory + ".set-aside")
        assert set_aside(directory) is None


def linked(path: Path, disk: Path) -> None:
    """Move a replica's directory to another disk, with a link in its place."""
    disk.mkdir()
    path.rename(disk / path.name)
    path.symlink_to(disk / path.name)


@pytest.mark.parametrize("gone", [False, True])
def test_a_replica_behind_a_link_is_made_anew_on_its_own_disk(tmp_path: Path, gone: bool) -> None:
    path, disk = tmp_path / "q", tmp_path / "disk"
    made(path)
    linked(path / "2", disk)
    old = directory_id(disk / "2")
    shutil.rmtree(disk / "2") if gone else damage_log(path / "2")
    with a_quorum(path) as quorum:
        if gone:  # the device is that of the others: is its own not mounted?
            with pytest.raises(InvalidOption, match="mount the disk of replica 2"):
                quorum.replace(2, timeout=PATIENCE_S)
        quorum.replace(2, share_device=gone, timeout=PATIENCE_S)
        assert (path / "2").is_symlink() and directory_id(disk / "2") != old
        assert gone or directory_id(disk / "2.set-aside") == old
        assert not os.path.lexists(path / "2.set-aside")
        assert quorum.describe().voter_ids == (1, 2, 3)
        wait_until(lambda: values(quorum, 2) == RECORDS)


def test_a_link_to_a_disk_that_is_gone_is_replaced_itself(tmp_path: Path) -> None:
    """Nothing says that the disk comes back: the directories above it are not made."""
    (tmp_path / "2").symlink_to(tmp_path / "gone" / "2")
    assert place_of(str(tmp_path / "2")) == str(tmp_path / "2")
    (tmp_path / "gone").mkdir()
    assert place_of(str(tmp_path / "2")) == str(tmp_path / "gone" / "2")


def test_what_takes_more_with_it_is_not_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "q"
    (path / "3").mkdir(parents=True)
    for target, reason in [
        (path / "3", "which is not replaced"),
        (path, "which is not replaced"),
        (tmp_path, "which is not replaced"),
        (Path("/proc"), "mount point"),
    ]:
        (path / "2").symlink_to(target)
        with pytest.raises(InvalidOption, match=reason):
            refuse_place(place_of(str(path / "2")), str(path), [1, 3])
        (path / "2").unlink()
    refuse_place(str(path / "2"), str(path), [1, 3])


class Killed(BaseException):
    """Ends the command as a signal would."""


STEPS = ["remove_voter", "set_aside", "format_replica", "write_description", "add_voter"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_replacement_that_was_interrupted_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """At every step, one after the other in one quorum: the next attempt gets one step further."""
    path = tmp_path / "q"
    made(path)
    shutil.rmtree(path / "2")

    def interrupted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **settings: Any) -> Any:
            if when == "after":
                real(*args, **settings)
            raise Killed

        return step

    with a_quorum(path) as quorum:
        for name in STEPS:
            with monkeypatch.context() as patch:
                owner = replacing if hasattr(replacing, name) else type(quorum.admin())
                patch.setattr(owner, name, interrupted(getattr(owner, name)))
                with pytest.raises(Killed):
                    quorum.replace(2, timeout=PATIENCE_S)
            assert list(read_description(str(path)).replacing) == [2]
        quorum.replace(2, timeout=PATIENCE_S)
        assert quorum.describe().voter_ids == (1, 2, 3)
        assert read_description(str(path)).replacing == {}
        with quorum.producer() as producer:
            assert producer.append_wait(b"after") > 0


def test_static_voters_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "q"
    made(path, kraft_version=0)
    shutil.rmtree(path / "2")
    with a_quorum(path) as quorum:
        with pytest.raises(RequestRefused, match=r"kraft\.version 0"):
            quorum.replace(2)
        assert not (path / "2").exists() and read_description(str(path)).replacing == {}


def test_a_voter_is_not_stopped(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", voters=1) as quorum:
        quorum.add_voter(timeout=PATIENCE_S)
        with pytest.raises(InvalidOption, match="2 is a voter"):
            quorum.stop_replica(2)
        with quorum.producer() as producer:
            producer.append_wait(b"goes on")
        with pytest.raises(InvalidOption, match="1 is among the first voters"):
            quorum.remove_voter(1, stop=True, timeout=PATIENCE_S)
        assert quorum.describe().voter_ids == (1, 2), "what cannot be stopped is not removed either"
        quorum.remove_voter(2, stop=True, timeout=PATIENCE_S)
        assert list(quorum.directories) == [1]


def test_nobody_is_given_static_voters_at_version_1(tmp_path: Path) -> None:
    """Whatever says so first: quorum.json is written as soon as it is known."""
    path = tmp_path / "q"
    with a_quorum(path, kraft_version=0) as quorum:
        assert quorum.supervisor.workers[1].config.voters
        assert read_description(str(path)).kraft_version == 0
        wait_until(lambda: upgraded(quorum))
        assert read_description(str(path)).kraft_version == 1
        assert quorum.supervisor.workers[1].config.voters == []
    with a_quorum(path) as quorum:
        assert all(not worker.config.voters for worker in quorum.supervisor.workers.values())
        assert quorum.describe().voter_ids == (1, 2, 3)


def upgraded(quorum: LocalQuorum) -> bool:
    try:
        quorum.upgrade(1, timeout=PATIENCE_S)
    except (RequestRefused, NoQuorum):
        return False
    return True


def test_a_quorum_of_version_0_opens_as_before(tmp_path: Path) -> None:
    """Its quorum.json says nothing of versions."""
    path = tmp_path / "q"
    made(path, kraft_version=0)
    file = path / "quorum.json"
    known = json.loads(file.read_bytes())
    for name in ("kraft_version", "replacing"):
        del known[name]
    file.write_text(json.dumps(known))
    with a_quorum(path) as quorum:
        assert quorum.status(1)["kraft_version"] == 0
        wait_until(lambda: values(quorum, 1) == RECORDS)
        assert os.path.exists(path / ".lock")
