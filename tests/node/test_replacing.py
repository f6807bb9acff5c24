"""The steps of ``storage replace``, without processes: no directory id is ever formatted twice."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from kraftfast.cli import reach
from kraftfast.cli.quorum.reassign import reassign
from kraftfast.cli.quorum.voters import add_controller, remove_controller
from kraftfast.errors import (
    DirectoryInUse,
    ErrorCode,
    InvalidOption,
    NotFormatted,
    RequestRefused,
    StorageError,
)
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.node.storage import description, local_layout, replacing
from kraftfast.node.storage.description import (
    Replacement,
    changing,
    forget_replacements,
    read_description,
)
from kraftfast.node.storage.local_layout import format_quorum, on_device_of
from kraftfast.node.storage.replacing import ReplacementPlan, plan_replacement, stored_id
from kraftfast.types import Endpoint, Uuid, uuid_text


class Killed(BaseException):
    """Ends the command as a signal would."""


class Quorum:
    """A quorum of three whose voters are a dict, and whose processes are locks."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "fsync", lambda fd: None)  # no power is cut here
        self.path = str(path)
        format_quorum(self.path, 3)
        self.voters: dict[int, Uuid] = {id: self.stored(id) for id in (1, 2, 3)}
        self.running: dict[int, ReplicaDirectory] = {}
        self.formatted = list(self.voters.values())
        self.steps_left = 10**9  # until the command is killed
        self.committed = True
        real = local_layout.format_directory

        def format_directory(disk: Disk, path: str, meta: Any, *rest: Any) -> None:
            self.formatted.append(meta.directory_id)
            real(disk, path, meta, *rest)

        monkeypatch.setattr(local_layout, "format_directory", format_directory)
        for owner, name in [
            (local_layout, "format_directory"),
            (replacing, "set_aside"),
            (replacing, "write_description"),
            (description, "write_description"),
            (self, "remove_voter"),
            (self, "start"),
            (self, "add_voter"),
        ]:
            monkeypatch.setattr(owner, name, self.killable(getattr(owner, name)))

    def killable(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **settings: Any) -> Any:
            self.tick()
            result = real(*args, **settings)
            self.tick()
            return result

        return step

    def tick(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise Killed

    def directory(self, id: int) -> Path:
        return Path(self.path) / str(id)

    def stored(self, id: int) -> Uuid:
        found = stored_id(str(self.directory(id)))
        assert found is not None
        return found

    @property
    def begun(self) -> dict[int, Replacement]:
        return read_description(self.path).replacing

    # --- what an admin is asked -------------------------------------------------------------------

    def describe(self, *, timeout: float) -> Any:
        voters = [
            SimpleNamespace(id=id, directory_id=its, endpoints=())
            for id, its in self.voters.items()
        ]
        ids = tuple(self.voters)
        known = SimpleNamespace(directory_id=None)
        return SimpleNamespace(
            voters=voters, voter_ids=ids, voters_committed=self.committed, find=lambda id: known
        )

    def remove_voter(self, id: int, directory_id: Uuid, *, timeout: float) -> None:
        if self.voters.get(id) != directory_id:
            raise RequestRefused("VOTER_NOT_FOUND", ErrorCode.VOTER_NOT_FOUND)
        del self.voters[id]

    def add_voter(
        self, id: int, directory_id: Uuid, endpoints: Any, *, timeout: float, **_: Any
    ) -> None:
        if id in self.voters:
            raise RequestRefused("DUPLICATE_VOTER", ErrorCode.DUPLICATE_VOTER)
        assert id in self.running and self.stored(id) == directory_id, "a leader adds no other"
        self.voters[id] = directory_id

    def reassign(self, target: Any, *, wait: bool, timeout: float) -> None:
        pass

    # --- what a supervisor does -------------------------------------------------------------------

    def start(self, directory: str, deadline: float) -> tuple[Endpoint, ...]:
        id = int(os.path.basename(directory))
        if id not in self.running:
            self.running[id] = ReplicaDirectory(Disk(), directory)
        return ()

    def stop(self, id: int) -> None:
        if id in self.running:
            self.running.pop(id).close()

    # --- the command ------------------------------------------------------------------------------

    def plan(self, id: int = 2, **settings: Any) -> ReplacementPlan:
        return plan_replacement(self.path, id, self, 1.0, **settings)

    def replace(self, id: int = 2, **settings: Any) -> ReplacementPlan:
        plan = self.plan(id, **settings)
        plan.run(self.start, 0.0)
        return plan

    def replace_until_killed(self, steps: int) -> bool:
        """Replace 2 and end after so many steps; return whether it was killed."""
        self.steps_left = steps
        try:
            self.replace()
        except Killed:
            return True
        finally:
            self.steps_left = 10**9
        return False


@pytest.fixture
def quorum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quorum:
    return Quorum(tmp_path / "q", monkeypatch)


def nothing(quorum: Quorum) -> None:
    pass


def crash(quorum: Quorum) -> None:
    quorum.stop(2)


def lose(quorum: Quorum) -> None:
    quorum.stop(2)
    shutil.rmtree(quorum.directory(2), ignore_errors=True)


def damage(quorum: Quorum) -> None:
    quorum.stop(2)
    if (quorum.directory(2) / "__cluster_metadata-0").exists():
        (quorum.directory(2) / "__cluster_metadata-0" / "quorum-state").write_bytes(b"")


@pytest.mark.parametrize("event", [nothing, crash, lose, damage])
def test_after_every_step_it_goes_on_with_an_id_that_was_never_formatted(
    quorum: Quorum, event: Callable[[Quorum], None]
) -> None:
    """D19. Killed after each step, and something happens to the disk before the next attempt."""
    steps, attempts = 0, 0
    while True:
        lose(quorum)
        killed = quorum.replace_until_killed(steps)
        done_before = not quorum.begun and 2 in quorum.running
        event(quorum)
        named = quorum.voters.get(2)
        if not done_before or event is not nothing:
            done = quorum.replace()
            goes_on = done.made and event in (nothing, crash)
            assert goes_on or quorum.stored(2) != named
        assert quorum.voters[2] == quorum.stored(2) and 2 in quorum.running
        assert quorum.begun == {}
        assert len(set(quorum.formatted)) == len(quorum.formatted), "an id was formatted again"
        attempts += killed
        if not killed:
            break
        steps += 1
    assert attempts > 15


def joined_and_left(quorum: Quorum) -> Uuid:
    """Replace 2 by a command that is killed when its voter is added; return its directory id."""
    lose(quorum)
    steps = 0
    while quorum.replace_until_killed(steps) and not (2 in quorum.voters and 2 in quorum.running):
        steps += 1
    assert list(quorum.begun) == [2], "it was killed before it forgot"
    return quorum.stored(2)


@pytest.mark.parametrize("event", [lose, damage, crash])
def test_a_voter_that_was_replaced_once_is_replaced_again(
    quorum: Quorum, event: Callable[[Quorum], None]
) -> None:
    """D19: it has promised records since; its id leaves the voter set, and another one joins."""
    first = joined_and_left(quorum)
    event(quorum)
    plan = quorum.plan()
    assert plan.old_directory_id == first != plan.directory_id
    assert not plan.joined and not plan.made and plan.votes
    plan.run(quorum.start, 0.0)
    assert quorum.voters[2] == quorum.stored(2) == plan.directory_id
    assert quorum.formatted.count(first) == 1


def test_a_replacement_that_is_done_is_forgotten(quorum: Quorum) -> None:
    first = joined_and_left(quorum)
    plan = quorum.replace()
    assert plan.joined and plan.directory_id == first == quorum.stored(2) and not quorum.begun
    with pytest.raises(DirectoryInUse):
        quorum.plan()


def test_voters_that_are_not_committed_are_no_end(quorum: Quorum) -> None:
    joined_and_left(quorum)
    quorum.committed = False
    with pytest.raises(RequestRefused, match="DUPLICATE_VOTER"):
        quorum.replace()
    assert list(quorum.begun) == [2]


def test_a_plan_of_an_earlier_version_is_taken_up(quorum: Quorum) -> None:
    """The id that it names may have been formatted, or not: another one is drawn."""
    lose(quorum)
    voted = quorum.voters.pop(2)
    file = Path(quorum.path) / "quorum.json"
    known = json.loads(file.read_bytes())
    known["replacing"] = {"2": {"directory_id": uuid_text(voted), "votes": True}}
    file.write_text(json.dumps(known))
    plan = quorum.replace()
    assert plan.directory_id != voted and quorum.voters[2] == plan.directory_id
    assert quorum.begun == {}


def test_one_plan_is_carried_out_once(quorum: Quorum) -> None:
    lose(quorum)
    del quorum.voters[2]
    plan = quorum.replace()
    lose(quorum)
    with pytest.raises(NotFormatted):
        plan.run(quorum.start, 0.0)
    assert quorum.formatted.count(plan.directory_id) == 1


def test_of_two_commands_at_once_the_later_one_goes_on(quorum: Quorum) -> None:
    lose(quorum)
    early, late = quorum.plan(), quorum.plan()
    early._begin()
    with pytest.raises(DirectoryInUse, match="another command replaced"):
        late.run(quorum.start, 0.0)
    done = quorum.replace()  # by a third one, which has seen the first
    with (
        pytest.raises(DirectoryInUse, match="another command replaced"),
        changing(quorum.path) as known,
    ):
        early._make(known)
    assert quorum.stored(2) == done.directory_id == quorum.voters[2]
    assert early.directory_id not in quorum.formatted


def test_who_votes_is_decided_by_whoever_says_so_last(quorum: Quorum) -> None:
    """An observer whose replacement was interrupted long ago does not become a voter by it."""
    for ids in ([2], None):
        with changing(quorum.path) as known:
            known.replacing = {2: Replacement("x" * 22, True)}
        forget_replacements(quorum.path, [3])
        assert list(quorum.begun) == [2]
        forget_replacements(quorum.path, ids)
        assert quorum.begun == {}


def test_the_commands_for_voters_forget_what_was_begun(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ["--dir", quorum.path]
    monkeypatch.setattr(reach, "admin", lambda *words: quorum)
    monkeypatch.setattr("kraftfast.cli.quorum.voters.wait_for", quorum.start)
    monkeypatch.setattr("kraftfast.client.admin.quorum_info.check_addition", lambda info, id: None)
    quorum.start(str(quorum.directory(2)), 0.0)
    for command, words in [
        (remove_controller, ["--controller-id", "2"]),
        (add_controller, ["--controller-id", "2"]),
        (reassign, ["--to", "1,2,3"]),
    ]:
        with changing(quorum.path) as known:
            known.replacing = {2: Replacement("x" * 22, True)}
        result = CliRunner().invoke(command, [*here, *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert quorum.begun == {}


def test_its_voter_stays_where_no_directory_can_be_made(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was mounted read-only: the quorum must not lose a voter for it."""

    def refused(**_words: Any) -> str:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    shutil.rmtree(quorum.directory(2))
    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.raises(StorageError, match="cannot make a directory in .*: Read-only"):
        quorum.plan().run(quorum.start, 0.0)
    assert 2 in quorum.voters and quorum.begun == {}


# --- where it is made -----------------------------------------------------------------------------


def linked(quorum: Quorum, disk: Path, id: int = 2) -> Path:
    """Move a replica to another disk, with a link in its place; return where it is."""
    disk.mkdir()
    quorum.directory(id).rename(disk / str(id))
    quorum.directory(id).symlink_to(disk / str(id))
    return disk / str(id)


@pytest.mark.parametrize("left", ["mount point", "nothing", "what the mount hid"])
def test_it_is_not_made_on_the_disk_of_the_others_unasked(
    quorum: Quorum, tmp_path: Path, left: str
) -> None:
    """Its own is not mounted: below the mount point is the disk of the others."""
    place = linked(quorum, tmp_path / "disk")
    shutil.rmtree(place)
    if left == "nothing":
        place.parent.rmdir()
    elif left == "what the mount hid":
        shutil.copytree(quorum.directory(3), place)  # of another directory id
    before = (Path(quorum.path) / "quorum.json").read_bytes()
    plan = quorum.plan()
    refused = plan.refusal
    assert "is on the device of replica 1, 3: mount the disk of replica 2" in refused
    with pytest.raises(InvalidOption, match="--share-device"):
        plan.run(quorum.start, 0.0)
    assert (Path(quorum.path) / "quorum.json").read_bytes() == before
    assert 2 in quorum.voters, "nothing was done"
    plan = quorum.plan(share_device=True)
    assert plan.move == refused and not plan.refusal
    plan.run(quorum.start, 0.0)
    assert quorum.voters[2] == quorum.stored(2) == plan.directory_id


def test_it_is_made_where_its_damaged_directory_is(quorum: Quorum, tmp_path: Path) -> None:
    """All on one disk, with a link: its directory is there, so its disk is. At every attempt."""
    place = linked(quorum, tmp_path / "disk")
    damage(quorum)
    steps = 0
    while quorum.replace_until_killed(steps):
        steps += 1
        assert place.is_dir() or os.path.lexists(f"{place}.set-aside")
        if not place.is_dir() or stored_id(str(place)) is None:
            break  # it is gone now: the next one has to be told
    assert steps > 3


def test_it_is_made_on_a_disk_of_its_own(
    quorum: Quorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = linked(quorum, tmp_path / "disk")
    shutil.rmtree(place)
    monkeypatch.setattr(replacing, "on_device_of", lambda *words: [])
    quorum.replace()
    assert quorum.directory(2).is_symlink() and stored_id(str(place)) == quorum.voters[2]


def test_a_disk_that_goes_while_the_operator_is_asked_is_noticed(
    quorum: Quorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = linked(quorum, tmp_path / "disk")
    shutil.rmtree(place)
    mounted = [True]
    real = replacing.on_device_of
    monkeypatch.setattr(replacing, "on_device_of", lambda *words: [] if mounted else real(*words))
    plan = quorum.plan()
    monkeypatch.setattr(quorum, "remove_voter", lambda *words, **named: mounted.clear())
    with pytest.raises(InvalidOption, match="mount the disk of replica 2"):
        plan.run(quorum.start, 0.0)
    assert not place.exists()


def test_a_damaged_directory_that_goes_meanwhile_is_noticed(
    quorum: Quorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = linked(quorum, tmp_path / "disk")
    damage(quorum)
    plan = quorum.plan()
    monkeypatch.setattr(quorum, "remove_voter", lambda *words, **named: shutil.rmtree(place))
    with pytest.raises(InvalidOption, match="is not what it was"):
        plan.run(quorum.start, 0.0)
    assert not place.exists()


def test_one_without_a_link_is_made_beside_the_others_as_ever(quorum: Quorum) -> None:
    lose(quorum)
    assert not quorum.plan().move
    quorum.directory(2).mkdir()
    assert not quorum.plan().move
    quorum.replace()


def test_replicas_on_a_device_are_found(tmp_path: Path) -> None:
    directories = {1: str(tmp_path), 2: "/proc/self", 3: str(tmp_path / "gone")}
    assert on_device_of("/proc", directories) == [2]
    assert on_device_of(str(tmp_path), directories) == [1]
