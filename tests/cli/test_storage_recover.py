"""``kraftfast storage inspect`` and ``recover``: replicas that nobody runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast import LocalQuorum
from kraftfast.cli import root
from kraftfast.cli.storage import recover as storage_recover
from kraftfast.errors import CorruptLog, DirectoryInUse, ForeignDirectory
from kraftfast.log.disk import Disk
from kraftfast.log.recovery import LogSettings
from kraftfast.log.small_files import marks, quorum_state
from kraftfast.log.snapshots.log_start import install_snapshot
from kraftfast.node.storage.recovering import make_sole_voter
from kraftfast.node.storage.stored_replica import stored_replica
from kraftfast.types import ElectionState
from tests.cli.logs import CORRUPT, FOREIGN, IN_USE, UNFORMATTED, USAGE, Done, contents
from tests.log.kit import Home, snapshot
from tests.processes.kit import wait_until

Command = Callable[..., Done]
RECORDS = [b"record %d" % number for number in range(20)]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is left of a quorum that was stopped; replica 2 missed the last records."""
    path = tmp_path_factory.mktemp("left") / "quorum"
    made = LocalQuorum(path, voters=3, kraft_version=0)
    with made as quorum, quorum.producer() as producer:
        producer.append_many(RECORDS[:10])
        producer.flush(timeout=30)
    older = path.parent / "older"
    shutil.copytree(path / "2", older)
    with LocalQuorum(path) as quorum, quorum.producer() as producer:
        producer.append_many(RECORDS[10:])
        producer.flush(timeout=30)
    shutil.rmtree(path / "2")
    older.rename(path / "2")
    return path


@pytest.fixture
def quorum_left(left: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(left, tmp_path / "quorum"))


def inspected(kraftfast: Command, *paths: object) -> dict[int, dict[str, Any]]:
    done = kraftfast("storage", "inspect", *paths, "--json")
    assert done.code == 0, done
    return {each["node_id"]: each for each in json.loads(done.out)}


def longest(found: dict[int, dict[str, Any]]) -> int:
    """Whose log it is."""
    return max(found, key=lambda id: found[id]["end_offset"])


def test_inspect_tells_all_that_a_start_would_find(left: Path, kraftfast: Command) -> None:
    before = contents(left)
    found = inspected(kraftfast, left)
    assert sorted(found) == [1, 2, 3]
    assert found[2]["end_offset"] < found[longest(found)]["end_offset"]
    for id, each in found.items():
        assert kraftfast("log", "verify", left / str(id)).code == 0
        assert each["static_voters"] == [1, 2, 3] and each["voters"] == []
        assert each["last_epoch"] <= each["epoch"] and each["kraft_version"] == 0
        assert not each["running"] and each["snapshots"] == []
    assert inspected(kraftfast, left / "3")[3] == found[3], "one directory by itself"
    out = kraftfast("storage", "inspect", left).out
    assert "LogEndOffset" in out and str(found[2]["end_offset"]) in out and "1,2,3" in out
    assert "are on one device" in out  # D19
    assert contents(left) == before


def test_recover_says_what_it_would_do(left: Path, kraftfast: Command) -> None:
    before = contents(left)
    done = kraftfast("storage", "recover", left / "1", left / "2", "--dry-run")
    assert done.code == 0 and "nothing was changed" in done.out
    assert "What is lost" in done.out and "never start them again" in done.out
    assert kraftfast("storage", "recover", left / "1").code == USAGE, "nobody is there to ask"
    assert contents(left) == before


def test_recover_says_that_a_witness_does_not_lead(quorum_left: Path, kraftfast: Command) -> None:
    told = kraftfast("storage", "recover", quorum_left, "--dry-run").out
    assert "kraftfast.campaign" not in told
    for options in quorum_left.glob("*/kraftfast.properties"):
        options.write_text(options.read_text().replace("records=any", "records=kafka-raft"))
    told = kraftfast("storage", "recover", quorum_left, "--dry-run").out
    assert "a leader, until it is started with kraftfast.campaign=true" in told


def test_recover_takes_the_longest_log_far_into_the_future(
    quorum_left: Path, kraftfast: Command
) -> None:
    before = inspected(kraftfast, quorum_left)
    id = longest(before)
    given = quorum_left / "2", quorum_left / str(id)
    done = kraftfast("storage", "recover", *given, "--yes", "--json")
    plan = json.loads(done.out)
    assert plan["node_id"] == id and plan["done"] and plan["voters_before"] == [1, 2, 3]
    aside = {2: quorum_left / "2.set-aside", id: quorum_left / str(id)}
    others = sorted({1, 2, 3} - {id})
    assert sorted(plan["set_aside"]) == [f"{quorum_left / str(n)}.set-aside" for n in others]
    after = {n: inspected(kraftfast, directory)[n] for n, directory in aside.items()}
    assert after[2] == before[2] | {"directory": str(aside[2])}, "nothing of it is lost"
    assert [voter["id"] for voter in after[id]["voters"]] == [id]
    assert after[id]["voters"][0]["directory_id"] == after[id]["directory_id"]
    assert after[id]["kraft_version"] == 1
    assert after[id]["epoch"] == after[id]["last_epoch"] == plan["epoch"]
    assert plan["epoch"] > before[id]["epoch"] + 999
    assert after[id]["end_offset"] == plan["end_offset_after"] == before[id]["end_offset"] + 2
    assert kraftfast("log", "verify", quorum_left / str(id)).code == 0
    again = kraftfast("storage", "recover", quorum_left / str(id), "--yes")
    assert again.code == USAGE and "only voter already" in again.err


def begun_behind_its_snapshot(path: Path) -> None:
    """Have all records of a replica stand in a snapshot that it fetched, and none behind it."""
    stored = stored_replica(str(path))
    home = Home.on(Disk(), str(path), "__cluster_metadata-0")
    log = home.open()
    install_snapshot(log, snapshot(home, stored.end_offset, stored.last_epoch))
    home.close()


def test_a_log_that_stands_in_a_snapshot_is_as_long_as_its_end(
    quorum_left: Path, kraftfast: Command
) -> None:
    """Its records are those that were acknowledged last: a log with fewer must not be chosen."""
    before = inspected(kraftfast, quorum_left)
    id = longest(before)
    begun_behind_its_snapshot(quorum_left / str(id))
    found = inspected(kraftfast, quorum_left / str(id))[id]
    assert found["log_start_offset"] == found["end_offset"] == before[id]["end_offset"]
    assert found["last_epoch"] == before[id]["last_epoch"] > 0
    done = kraftfast("storage", "recover", quorum_left / "2", quorum_left / str(id), "--dry-run")
    assert f"replica {id} of cluster" in done.out, "what 2 does not hold would be lost"
    assert kraftfast("log", "trim", quorum_left / str(id)).code == 0
    mark = marks.read(Disk(), str(quorum_left / str(id) / "__cluster_metadata-0"), "durable-end")
    assert mark == (found["end_offset"], found["last_epoch"])


def test_a_directory_behind_a_link_is_held_by_the_process_that_starts_its_replica(
    quorum_left: Path, tmp_path: Path, kraftfast: Command
) -> None:
    """Its replica may have just ended, and be about to start again: beside it nothing recovers."""
    target = tmp_path / "disk"
    (quorum_left / "1").rename(target)
    (quorum_left / "1").symlink_to(target)
    before = inspected(kraftfast, target)[1]
    with LocalQuorum(quorum_left, restart=False) as quorum:
        quorum.kill(1)
        wait_until(lambda: not inspected(kraftfast, target)[1]["running"])
        done = kraftfast("storage", "recover", target, "--yes")
        assert done.code == IN_USE and f"this process holds {target}" in done.err
        assert inspected(kraftfast, target)[1]["last_epoch"] < before["epoch"] + 999
    assert kraftfast("storage", "recover", target, "--yes").code == 0


def test_a_recovery_keeps_a_replica_behind_a_link_from_starting(
    quorum_left: Path, tmp_path: Path
) -> None:
    target = tmp_path / "disk"
    (quorum_left / "1").rename(target)
    (quorum_left / "1").symlink_to(target)
    stored = stored_replica(str(target))
    with storage_recover.kept_stopped(stored, [stored]):
        with LocalQuorum(quorum_left, restart=False) as quorum:
            assert isinstance(quorum.supervisor.workers[1].error, DirectoryInUse)
            assert quorum.supervisor.workers[1].process is None
    with LocalQuorum(quorum_left, restart=False) as quorum:
        assert quorum.supervisor.workers[1].process is not None


@pytest.mark.parametrize("again", ["1", "1/", "link", "."])
def test_a_replica_that_is_named_twice_is_looked_at_once(
    again: str, quorum_left: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was listed among those whose records are lost beside its own."""
    (quorum_left / "link").symlink_to("1")
    args = ["storage", "recover", "--dry-run", f"{quorum_left}/1", f"{quorum_left}/{again}"]
    assert root.run(args) == 0
    done = Done(0, *capsys.readouterr())
    assert done.err.endswith(f"is {quorum_left}/1, which was named already\n"), done
    assert "replica 1 ends at" not in done.out and done.err.count("\n") == 1


def test_a_replica_of_a_quorum_that_is_gone_is_named(quorum_left: Path, kraftfast: Command) -> None:
    shutil.rmtree(quorum_left / "2")
    done = kraftfast("storage", "recover", "--dry-run", quorum_left)
    assert done.code == UNFORMATTED and f"{quorum_left}/2 is not formatted" in done.err


@pytest.mark.parametrize("named", ["disk", "other", "disk quorum/3"])
def test_the_others_are_found_where_links_lead(
    named: str, quorum_left: Path, tmp_path: Path, kraftfast: Command
) -> None:
    """One that is left out votes again once the quorum is started, beside the only voter."""
    if named == "other":
        (tmp_path / "other").symlink_to(quorum_left / "1")
    else:
        (quorum_left / "1").rename(tmp_path / "disk")
        (quorum_left / "1").symlink_to(tmp_path / "disk")
    paths = [tmp_path / each for each in named.split()]
    told = kraftfast("storage", "recover", "--dry-run", *paths).out
    assert ("name that link instead" in told) == (named == "disk")
    done = kraftfast("storage", "recover", "--json", "--yes", *paths)
    aside = [str(quorum_left / f"{id}.set-aside") for id in (2, 3)]
    assert json.loads(done.out)["set_aside"] == ([] if named == "disk" else aside)


def test_recover_is_refused_if_the_replica_ran_before_it_was_locked(quorum_left: Path) -> None:
    """What was shown, and agreed to, is not what stands there now."""
    path = quorum_left / "1"
    stored = stored_replica(str(path))
    shorter = replace(stored, end_offset=stored.end_offset - 1)
    earlier = replace(stored, state=ElectionState(stored.state.epoch - 1))
    state = path / "__cluster_metadata-0" / "quorum-state"
    before = state.read_bytes()
    for each in (shorter, earlier):
        with pytest.raises(DirectoryInUse, match="was used since"):
            make_sole_voter(each, (), LogSettings())
        assert state.read_bytes() == before


def test_a_replica_that_never_ran_is_recovered(tmp_path: Path, kraftfast: Command) -> None:
    """It has no quorum-state, which is no fault of it."""
    path = tmp_path / "quorum"
    assert kraftfast("storage", "format", "--dir", path, "--voters", 3).code == 0
    assert kraftfast("storage", "recover", path / "1", path / "3", "--yes").code == 0
    assert [voter["id"] for voter in inspected(kraftfast, path / "1")[1]["voters"]] == [1]


def test_what_was_recovered_goes_on_and_grows(quorum_left: Path, kraftfast: Command) -> None:
    assert kraftfast("storage", "recover", quorum_left, "--yes").code == 0
    with LocalQuorum(quorum_left) as quorum, quorum.producer() as producer:
        producer.append_wait(b"after", timeout=30)
        other = 2 if quorum.description.voters != [2] else 1
        quorum.add_voter(other)
        producer.append_wait(b"both", timeout=30)
        values = [record.value for record in quorum.consumer(from_offset=0, follow=False)]
        assert values == [*RECORDS, b"after", b"both"]
        assert set(quorum.describe().voter_ids) == {other, *quorum.description.voters}


def test_recover_refuses_what_is_in_use_or_of_others(
    left: Path, quorum_left: Path, tmp_path: Path, kraftfast: Command
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=controller\nnode.id=7\ncontroller.quorum.voters=7@localhost:9\n"
        f"metadata.log.dir={tmp_path}\nlisteners=CONTROLLER://127.0.0.1:9\n"
        "controller.listener.names=CONTROLLER\n"
    )
    done = kraftfast("storage", "recover", left, "--config", file, "--yes")
    assert done.code == FOREIGN and f"node {longest(inspected(kraftfast, left))}, not 7" in done.err
    assert kraftfast("storage", "recover", tmp_path, "--yes").code == UNFORMATTED
    meta = quorum_left / "2" / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=A"))
    done = kraftfast("storage", "recover", quorum_left / "1", quorum_left / "2", "--yes")
    assert done.code == USAGE and "different clusters" in done.err


@pytest.mark.parametrize("harm", ["deleted", "older"])
def test_a_lost_vote_is_told_and_given_up_only_by_recover(
    quorum_left: Path, kraftfast: Command, harm: str
) -> None:
    """A replica without its vote could vote twice in an epoch (D5): it does not start."""
    from kraftfast.node.node import Node
    from kraftfast.node.node_config import NodeConfig, VoterConfig

    directory = quorum_left / "3"
    file = directory / "__cluster_metadata-0" / "quorum-state"
    state = file.read_text().splitlines()[0]
    assert kraftfast("log", "verify", directory).out.count("quorum-state agrees: epoch") == 1
    if harm == "deleted":
        file.unlink()
    else:
        fields = json.loads(state) | {"leaderEpoch": 0, "leaderId": -1, "votedId": -1}
        file.write_text(json.dumps(fields))
    for words in (("log", "verify", "--json"), ("storage", "inspect"), ("log", "verify")):
        done = kraftfast(*words, directory)
        assert done.code == CORRUPT and "storage replace" in done.err, done
    with pytest.raises(CorruptLog, match="quorum-state"):
        Node(NodeConfig(node_id=3, directory=str(directory), voters=[VoterConfig(3, "a", 1)]))
    for other in ("1", "2"):  # it would be told if one of them had a longer log
        shutil.rmtree(quorum_left / other)
    done = kraftfast("storage", "recover", directory, "--yes")
    assert done.code == 0 and "its vote is lost" in done.out, done
    assert kraftfast("log", "verify", directory).code == 0
    assert inspected(kraftfast, directory)[3]["state_fault"] is None


def test_recover_leaves_a_running_replica_alone(tmp_path: Path, kraftfast: Command) -> None:
    with LocalQuorum(tmp_path / "q", voters=1):
        assert inspected(kraftfast, tmp_path / "q")[1]["running"]
        assert kraftfast("storage", "recover", tmp_path / "q", "--yes").code == IN_USE


def test_whoever_is_asked_must_type_the_id(
    quorum_left: Path, kraftfast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_recover, "asked", lambda id: "no")
    assert "nothing was changed" in kraftfast("storage", "recover", quorum_left).out
    monkeypatch.setattr(storage_recover, "asked", str)
    assert "the only voter" in kraftfast("storage", "recover", quorum_left).out


def test_what_was_committed_while_the_operator_was_asked_is_not_lost(
    quorum_left: Path, kraftfast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log that was the longest is not any longer: what is to be done must be shown again."""
    id = longest(inspected(kraftfast, quorum_left))
    chosen, away = quorum_left / str(id), quorum_left / "away"

    def others_go_on(_id: int) -> str:
        chosen.rename(away)
        with LocalQuorum(quorum_left) as quorum, quorum.producer() as producer:
            producer.append_wait(b"meanwhile", timeout=30)
        away.rename(chosen)
        return str(id)

    monkeypatch.setattr(storage_recover, "asked", others_go_on)
    done = kraftfast("storage", "recover", quorum_left)
    assert done.code == IN_USE and "was used since" in done.err
    after = inspected(kraftfast, quorum_left)
    assert longest(after) != id and not list(quorum_left.glob("*.set-aside"))
    monkeypatch.setattr(storage_recover, "asked", str)
    assert kraftfast("storage", "recover", quorum_left).code == 0
    with LocalQuorum(quorum_left) as quorum:
        values = [record.value for record in quorum.consumer(from_offset=0, follow=False)]
    assert values == [*RECORDS, b"meanwhile"]


def test_a_replica_with_a_longer_log_is_not_set_aside_unnamed(
    quorum_left: Path, kraftfast: Command
) -> None:
    """What it alone holds would be lost, and nothing of what is shown would say so."""
    before = contents(quorum_left)
    for options in (["--yes"], ["--dry-run"]):
        done = kraftfast("storage", "recover", quorum_left / "2", *options)
        assert done.code == USAGE and "has a longer log" in done.err
    assert contents(quorum_left) == before
    for other in ("1", "3"):
        (quorum_left / other).rename(quorum_left / f"{other}.gone")
    assert kraftfast("storage", "recover", quorum_left / "2", "--yes").code == 0


def test_recovery_leaves_an_epoch_that_was_used_up() -> None:
    """2^31 - 1 in quorum-state, but no record of it: the log's own epoch goes on."""
    from kraftfast import limits
    from kraftfast.errors import InvalidOption
    from kraftfast.node.storage.recovering import EPOCH_STEP, next_epoch

    def stored(epoch: int, last_epoch: int) -> Any:
        return SimpleNamespace(
            state=SimpleNamespace(epoch=epoch), last_epoch=last_epoch, path="directory"
        )

    assert next_epoch(stored(7, 5)) == 7 + EPOCH_STEP
    assert next_epoch(stored(limits.EPOCH_MAX, 5)) == 5 + EPOCH_STEP
    with pytest.raises(InvalidOption, match="none is left"):
        next_epoch(stored(limits.EPOCH_MAX, limits.EPOCH_MAX))


def damage_state(directory: Path) -> Path:
    """Change the epoch of a replica's quorum-state, as a flipped bit does."""
    (state,) = directory.glob("*/quorum-state")
    data = state.read_bytes()
    at = data.index(b'"leaderEpoch":') + len(b'"leaderEpoch":')
    state.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return state


def test_inspect_shows_the_sound_beside_the_damaged(quorum_left: Path, kraftfast: Command) -> None:
    damage_state(quorum_left / "1")
    (quorum_left / "3" / "meta.properties").write_text("none")
    done = kraftfast("storage", "inspect", quorum_left, "--json")
    found = {each["node_id"]: each for each in json.loads(done.out)}
    assert done.code == CORRUPT and sorted(found) == [1, 2]
    assert "checksum" in kraftfast("log", "verify", quorum_left / "1").err
    assert "checksum" in found[1]["state_fault"] and found[2]["state_fault"] is None
    out = kraftfast("storage", "inspect", quorum_left).out
    assert out.count("cannot start: ") == 2
    assert "meta.properties" in out and "storage recover" in out


def test_inspect_names_a_directory_in_the_place_of_another(
    quorum_left: Path, kraftfast: Command
) -> None:
    """As a start does, which refuses it: the rows alone look sound."""
    (quorum_left / "1").rename(quorum_left / "one")
    (quorum_left / "2").rename(quorum_left / "1")
    (quorum_left / "one").rename(quorum_left / "2")
    done = kraftfast("storage", "inspect", quorum_left)
    assert done.code == ForeignDirectory.exit_code
    assert f"cannot start: {quorum_left / '1'} belongs to node 2, not 1\n" in done.out
    assert f"cannot start: {quorum_left / '2'} belongs to node 1, not 2\n" in done.out
    assert "not 1" in done.err and "NodeId" in done.out
    for path in (quorum_left / "1", quorum_left):
        done = kraftfast("storage", "recover", path, "--yes")
        assert done.code == ForeignDirectory.exit_code, "it would be the only voter, and not start"


def test_a_directory_of_another_cluster_is_named(
    quorum_left: Path, tmp_path: Path, kraftfast: Command
) -> None:
    """The rows looked sound, and a start refused it."""
    with LocalQuorum(tmp_path / "other", voters=1):
        pass
    shutil.rmtree(quorum_left / "1")
    shutil.copytree(tmp_path / "other" / "1", quorum_left / "1")
    for done in (
        kraftfast("storage", "inspect", quorum_left),
        kraftfast("storage", "inspect", quorum_left / "1"),
    ):
        assert done.code == ForeignDirectory.exit_code
        assert f"{quorum_left / '1'} belongs to cluster " in done.err


def test_recover_goes_on_from_the_log_where_quorum_state_is_damaged(
    tmp_path: Path, kraftfast: Command
) -> None:
    """Nobody else could: a damaged vote of an only voter must not lock its records up."""
    path = tmp_path / "quorum"
    with LocalQuorum(path, voters=1) as quorum, quorum.producer() as producer:
        producer.append_many(RECORDS)
    damage_state(path / "1")
    with pytest.raises(CorruptLog, match="storage recover"):
        LocalQuorum(path)
    done = kraftfast("storage", "recover", path / "1", "--dry-run")
    assert done.code == 0 and "its vote is lost" in done.out
    assert kraftfast("storage", "recover", path / "1", "--yes").code == 0
    with LocalQuorum(path) as quorum, quorum.producer() as producer:
        producer.append_wait(b"after", timeout=30)
        assert [each.value for each in quorum.consumer()] == [*RECORDS, b"after"]


def test_no_quorum_begins_inside_a_replica(quorum_left: Path, kraftfast: Command) -> None:
    """DIR/1 in place of DIR would be a second, empty quorum."""
    before = sorted(os.listdir(quorum_left / "1"))
    for command in (("start", "--dir"), ("storage", "format", "--dir")):
        done = kraftfast(*command, quorum_left / "1")
        assert done.code == FOREIGN and "of one replica" in done.err
    assert set(os.listdir(quorum_left / "1")) - set(before) <= {"quorum.json.lock"}


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_a_lost_description_is_told_by_the_replicas(
    left: Path, quorum_left: Path, kraftfast: Command, damage: str
) -> None:
    file = quorum_left / "quorum.json"
    before = json.loads(file.read_text())
    file.write_text("{")
    if damage == "gone":
        file.unlink()
    done = kraftfast("start", "--dir", quorum_left)
    assert done.code == FOREIGN and len(done.err.splitlines()) == 1
    told = done.err[done.err.index('{"') :]
    assert json.loads(told) == before
    file.write_text(told)
    assert sorted(inspected(kraftfast, quorum_left)) == [1, 2, 3]


def test_a_log_folder_of_another_replica_is_refused(quorum_left: Path, kraftfast: Command) -> None:
    """A copy of it would give its vote twice, or lack what was acknowledged here (D5)."""
    folders = [quorum_left / name / "__cluster_metadata-0" for name in ("1", "3")]
    folders[0].rename(quorum_left / "kept")  # its own
    shutil.copytree(folders[1], folders[0])
    before = contents(folders[0])
    said = f"{folders[0] / 'quorum-state'} was written in the directory with the id"
    for words in ("storage", "inspect"), ("log", "verify"), ("storage", "recover", "--yes"):
        done = kraftfast(*words, quorum_left / "1")
        assert done.code == FOREIGN and said in done.err, (words, done)
    done = kraftfast("storage", "inspect", quorum_left)
    assert done.code == FOREIGN and said in done.err and "replicas 2, 3 " in done.out, done
    with LocalQuorum(quorum_left) as quorum:
        assert "the log of another replica lies here" in str(quorum.faults[1])
    assert contents(folders[0]) == before, "it was not recovered before it was looked at"


def test_recover_resets_no_vote_of_another_replica(quorum_left: Path, kraftfast: Command) -> None:
    """Also where its quorum-state is older than what this directory knows of (D5)."""
    line = quorum_state.encode(ElectionState(0), 0, (1, 2, 3), b"another replica!")
    path = quorum_left / "1" / "__cluster_metadata-0" / "quorum-state"
    path.write_bytes(quorum_state.seal(line))
    done = kraftfast("storage", "recover", quorum_left / "1", "--yes")
    assert done.code == FOREIGN and "the log of another replica lies here" in done.err, done
