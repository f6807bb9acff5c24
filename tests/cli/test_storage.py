"""``kraftfast storage format`` and ``info`` of one replica: Kafka's rules and Kafka's files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftfast.log.snapshots import snapshot_files
from tests.cli.kit import fails, run
from tests.cli.logs import Done

Command = Callable[..., Done]
CLUSTER = "Z29sZGVuLWR5bmFtaWM0Mw"
A, B = "gloQqc7jQAKaaOvQp1HVVA", "_n7IB1SBQ9iE10iD3dGFLw"
DYNAMIC = "controller.quorum.bootstrap.servers=localhost:9093"
STATIC = "controller.quorum.voters=1@localhost:9093"


def properties(tmp_path: Path, voters: str = DYNAMIC, id: int = 1, port: int = 9093) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=controller\nnode.id={id}\n{voters}\nmetadata.log.dir={tmp_path / 'data'}\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
    )
    return file


def bootstrap(tmp_path: Path, kraftfast: Command) -> list[Any]:
    """The control records of the bootstrap checkpoint, as ``log dump`` tells them."""
    name = snapshot_files.snapshot_name(snapshot_files.BOOTSTRAP)
    file = tmp_path / "data" / "__cluster_metadata-0" / name
    if not file.exists():
        return []
    lines = kraftfast("log", "dump", file, "--records").out.splitlines()
    found = [line.split("headerKeys: [] ")[1].partition(" ") for line in lines if line[0] == "|"]
    return [(kind, json.loads(value)) for kind, _, value in found]


def formatted(kraftfast: Command, file: Path, *more: object) -> Done:
    return kraftfast("storage", "format", "-c", file, "-t", CLUSTER, *more)


def test_standalone_makes_the_replica_the_first_voter(tmp_path: Path, kraftfast: Command) -> None:
    done = formatted(kraftfast, properties(tmp_path), "--standalone")
    assert done.code == 0, done
    assert done.out == (
        f"Formatting dynamic metadata voter directory {tmp_path / 'data'} for node 1.\n"
    )
    header, version, voters, footer = bootstrap(tmp_path, kraftfast)
    assert [header[0], footer[0]] == ["SnapshotHeader", "SnapshotFooter"]
    assert version == ("KRaftVersion", {"version": 0, "kRaftVersion": 1})
    (voter,) = voters[1]["voters"]
    assert voter["voterId"] == 1
    assert voter["endpoints"] == [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9093}]
    assert voter["kRaftVersionFeature"] == {"minSupportedVersion": 0, "maxSupportedVersion": 1}
    meta = (tmp_path / "data" / "meta.properties").read_text()
    assert f"directory.id={voter['voterDirectoryId']}" in meta


# covers: testParseDynamicVoter*, testParsingThreeDynamicVoters
def test_initial_controllers_get_the_ids_of_the_list(tmp_path: Path, kraftfast: Command) -> None:
    initial = f"1@localhost:9093:{A},2@[::1]:9094:{B}"
    assert formatted(kraftfast, properties(tmp_path), "-I", initial).code == 0
    voters = dict(bootstrap(tmp_path, kraftfast))["KRaftVoters"]["voters"]
    places = [(v["voterId"], v["voterDirectoryId"], v["endpoints"][0]["host"]) for v in voters]
    assert places == [(1, A, "localhost"), (2, B, "::1")]
    assert f"directory.id={A}" in (tmp_path / "data" / "meta.properties").read_text()


def test_one_who_is_not_in_the_list_knows_it_but_is_no_voter(
    tmp_path: Path, kraftfast: Command
) -> None:
    done = formatted(kraftfast, properties(tmp_path, id=7), "-I", f"1@localhost:9093:{A}")
    assert done.code == 0 and "Formatting dynamic metadata directory" in done.out
    assert A not in (tmp_path / "data" / "meta.properties").read_text()


def test_without_initial_controllers_nothing_is_known(tmp_path: Path, kraftfast: Command) -> None:
    done = formatted(kraftfast, properties(tmp_path), "-N")
    assert done.code == 0 and "Formatting metadata directory" in done.out
    assert bootstrap(tmp_path, kraftfast) == []


# covers: malformed-voters, testParsingInvalidStringWithDuplicateNodeIds
@pytest.mark.parametrize(
    ("voters", "more", "word"),
    [
        (DYNAMIC, (), "--standalone"),
        (STATIC, ("-s",), "controller.quorum.voters"),
        (STATIC, ("-N",), "controller.quorum.voters"),
        (DYNAMIC, ("-s", "-N"), "one of"),
        (DYNAMIC, ("-s", "-f", "kraft.version=0"), "kraft.version 0"),
        (STATIC, ("-f", "kraft.version=1"), "kraft.version 1"),
        (DYNAMIC, ("-s", "-f", "kraft.version=2"), "0 and 1 are known"),
        (DYNAMIC, ("-s", "-f", "metadata.version=25"), "the one feature"),
        (DYNAMIC, ("-s", "-f", "kraft.version"), "NAME=LEVEL"),
        (DYNAMIC, ("-I", "1@localhost:9093"), "DIRECTORY_ID"),
        (DYNAMIC, ("-I", f"1@localhost:0:{A}"), "host:port"),
        (DYNAMIC, ("-I", f"1@:9093:{A}"), "the host is missing"),
        (DYNAMIC, ("-I", "1@localhost:9093:short"), "1@localhost:9093:short"),
        (DYNAMIC, ("-I", f"1@h:1:{A},1@h:2:{B}"), "twice"),
        (DYNAMIC, ("-I", "1@h:1:AAAAAAAAAAAAAAAAAAAAAA"), "reserved"),
        (DYNAMIC, ("-I", ","), "no voter"),
        (DYNAMIC, ("-I", f"2147483648@h:1:{A}"), "an id up to 2147483647"),
    ],
)
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, kraftfast: Command, voters: str, more: tuple[str, ...], word: str
) -> None:
    done = formatted(kraftfast, properties(tmp_path, voters), *more)
    assert done.code == 2 and word in done.err, done
    assert not (tmp_path / "data").exists(), "nothing was made"


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (("-t", ""), "cluster id"),  # an unset variable of a shell: a new id was made up
        (("-f", "kraft.version=0", "-f", "kraft.version=1"), "contradict each other"),
    ],
)
def test_what_a_quorum_of_this_host_is_not_made_of(
    tmp_path: Path, kraftfast: Command, more: tuple[str, ...], word: str
) -> None:
    done = kraftfast("storage", "format", "--dir", tmp_path / "q", *more)
    assert done.code == 2 and word in done.err, done
    assert not (tmp_path / "q").exists(), "nothing was made"


def test_a_quorum_of_another_cluster_is_not_told_to_be_formatted(
    tmp_path: Path, kraftfast: Command
) -> None:
    again = ("storage", "format", "--dir", tmp_path / "q", "-g", "-t")
    assert kraftfast(*again, CLUSTER).code == 0
    assert "is formatted already" in kraftfast(*again, CLUSTER).out
    done = kraftfast(*again, A)
    assert done.code == 35 and f"belongs to cluster {CLUSTER}" in done.err, done


def test_a_voter_needs_a_port(tmp_path: Path, kraftfast: Command) -> None:
    assert "port" in formatted(kraftfast, properties(tmp_path, port=0), "-s").err


def test_info_tells_what_is_there(tmp_path: Path, kraftfast: Command) -> None:
    def info(id: int = 1) -> tuple[int, str]:
        done = run("storage", "info", "-c", properties(tmp_path, id=id))
        return done.returncode, done.stdout.decode()

    data = tmp_path / "data"
    assert info() == (1, f"Found problem:\n  {data} does not exist\n\n")
    data.mkdir()
    assert info() == (
        1, f"Found log directory:\n  {data}\n\nFound problem:\n  {data} is not formatted.\n\n"
    )  # fmt: skip
    formatted(kraftfast, properties(tmp_path), "-s")
    code, out = info()
    found = f"Found log directory:\n  {data}\n\nFound metadata: {{cluster.id={CLUSTER}, "
    assert code == 0 and out.startswith(found + "directory.id=")
    assert "node.id=1, version=1}\n" in out
    code, out = info(2)
    assert code == 1 and "belongs to node 1, not 2" in out


def test_nobody_serves_anothers_directory(tmp_path: Path, kraftfast: Command) -> None:
    assert formatted(kraftfast, properties(tmp_path), "-s").code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    file = properties(tmp_path, id=2)
    said = fails(run("serve", "--config", file), 35)
    assert f"{tmp_path / 'data'} belongs to node 1, not 2" in said
    assert all(path.read_bytes() == data for path, data in before.items() if path != file)
