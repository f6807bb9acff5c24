"""``kraftfast quorum`` by hand: of a quorum on this host, and of servers; every exit code."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftfast.node.storage.description import run_lock
from tests.cli.kit import Completed, Program, fails, run
from tests.cli.test_quorum import free_ports

pytestmark = pytest.mark.processes
PATIENCE_S = 60.0


def said(done: Completed[bytes]) -> str:
    """What a command that went well printed."""
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def describe(*where: object) -> dict[str, Any]:
    return dict(json.loads(said(run("quorum", "describe", *where, "--json"))))


def ids(replicas: list[dict[str, Any]]) -> list[int]:
    return [each["id"] for each in replicas]


def wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)
    return found


def test_a_quorum_of_this_host(tmp_path: Path, program: Callable[..., Program]) -> None:
    """From static voters to others altogether, every command on the way."""
    where = ("--dir", tmp_path / "q")
    running = program(
        "start", "--voters", 3, *where, "--segment-bytes", "8MiB", "--fetch-timeout-ms", 700,
        "--kraft-version", 0,
    )  # fmt: skip
    running.wait_for("leads")
    for each in (
        ("add-controller",), ("remove-controller", "-i", 2), ("reassign", "--to", "1,2"),
        ("remove-controller", "-i", 2, "--dry-run"),
    ):  # fmt: skip
        text = fails(run("quorum", *each, *where, "--timeout", 20), 10)
        assert "UNSUPPORTED_VERSION: kraft.version is 0: upgrade it" in text
        assert "kraftfast quorum upgrade --feature kraft.version=1" in text
    upgrade = ("quorum", "upgrade", *where)
    done = run(*upgrade, "--feature", "kraft.version=1", "--dry-run")
    assert said(done) == "kraft.version can be upgraded to 1.\n"
    assert said(run(*upgrade, "--release-version", "4.0")) == "kraft.version was upgraded to 1.\n"
    for more in ((), ("--dry-run",)):
        done = run(*upgrade, "--feature", "kraft.version=1", *more)
        assert said(done) == "kraft.version is at 1 already.\n"
    assert "cannot go back" in fails(run(*upgrade, "--feature", "kraft.version=0"), 10)
    assert "there is no kraft.version 7" in fails(run(*upgrade, "--feature", "kraft.version=7"), 10)
    add = ("quorum", "add-controller", *where)
    text = said(run(*add, "-i", 4, "--dry-run"))
    assert text.startswith("DRY RUN of adding controller 4 with directory id ")
    text = said(run(*add, "-i", 4))
    assert text.startswith("Added controller 4 with directory id ")
    assert text.endswith(" and endpoints: CONTROLLER://localhost:0\n")
    assert "DUPLICATE_VOTER" in fails(run(*add, "-i", 4, "--dry-run"), 10)
    found = describe(*where)
    assert ids(found["currentVoters"]) == [1, 2, 3, 4]
    directory_id = found["currentVoters"][3]["directoryId"]
    remove = ("quorum", "remove-controller", *where, "-i", 4, "-d", directory_id)
    named = f" KRaft controller 4 with directory id {directory_id}\n"
    assert said(run(*remove, "--dry-run")) == "DRY RUN of removing " + named
    assert said(run(*remove)) == "Removed " + named
    assert "VOTER_NOT_FOUND" in fails(run(*remove), 10)
    assert "VOTER_NOT_FOUND" in fails(run(*remove, "--dry-run"), 10)
    reassign = ("quorum", "reassign", *where)
    text = said(run(*reassign, "--to", "4,5", "--dry-run"))
    assert text.startswith("DRY RUN of reassigning voters 1,2,3 to 4,5 ")
    assert text.endswith(" (added 4, 5, removed 1, 2, 3)\n")
    assert said(run(*reassign, "--to", "4,5")).startswith("Reassigned voters 1,2,3 to 4,5 ")
    assert said(run(*reassign, "--to", "4,5")).endswith(" (added none, removed none)\n")
    assert "NO_REASSIGNMENT_IN_PROGRESS" in fails(run(*reassign, "--cancel"), 10)
    transfer = ("quorum", "transfer", *where)
    leader = describe(*where)["leaderId"]
    other = 9 - leader
    assert said(run(*transfer, "--to", leader)) == f"{leader} leads already\n"
    assert said(run(*transfer, "--to", other, "--dry-run")).startswith("DRY RUN of handing")
    told = json.loads(said(run(*transfer, "--json")))
    assert told == {"leaderBefore": leader, "leader": other, "dryRun": False}
    assert "VOTER_NOT_FOUND" in fails(run(*transfer, "--to", 1), 10)
    text = said(run("quorum", "describe", *where, "--status"))
    assert f"LeaderId:               {other}\n" in text

    def all_follow() -> bool:
        text = said(run("quorum", "describe", *where, "--replication", "--human-readable"))
        return text.count("Observer") == 3 and text.count(" ms ago") == 10

    wait_for(all_follow)  # a new leader knows of observers as they come
    rows = [line.split()[:2] for line in said(run("status", *where)).splitlines()[2:]]
    assert [state for id, state in rows if id in "123"] == ["observer"] * 3, rows
    assert sorted(state for id, state in rows if id in "45") == ["follower", "leader"]
    assert running.stop() == 0


def test_who_leads_in_the_end_may_not_have_been_there(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    """The command that made the replica finds it when it leads."""
    where = ("--dir", tmp_path / "q")
    running = program("start", "--voters", 1, *where, "--segment-bytes", "8MiB")
    running.wait_for("leads")
    said(run("quorum", "upgrade", *where, "--feature", "kraft.version=1"))
    done = run("quorum", "reassign", *where, "--to", "2", "--timeout", 20)
    assert said(done).startswith("Reassigned voters 1 to 2 ")
    assert describe(*where)["leaderId"] == 2
    assert running.stop() == 0


def test_usage(tmp_path: Path) -> None:
    """What cannot be meant is refused before anybody is asked."""
    here = ("--dir", tmp_path)
    for wrong in (
        ("describe", "--status"),
        ("describe", *here, "--bootstrap-server", "h:1", "--status"),
        ("describe", "--bootstrap-server", "h:1", "--bootstrap-controller", "h:1", "--status"),
        ("describe", "--bootstrap-server", "h", "--status"),
        ("describe", *here),
        ("describe", *here, "--status", "--replication"),
        ("describe", *here, "--status", "--human-readable"),
        ("add-controller", "--bootstrap-server", "h:1"),
        ("remove-controller", *here),
        ("remove-controller", "--bootstrap-server", "h:1", "-i", 1, "-d", "no"),
        ("reassign", *here),
        ("reassign", *here, "--to", "1", "--cancel"),
        ("upgrade", *here),
        ("upgrade", *here, "--feature", "metadata.version=1"),
        ("upgrade", *here, "--feature", "kraft.version"),
        ("upgrade", *here, "--release-version", "new"),
        ("transfer", *here, "--to", "-1"),
        ("vote",),
    ):
        fails(run("quorum", *wrong), 2)
    (tmp_path / "quorum.json").write_text('{"cluster_id": "c", "voters": [1]}')
    fails(run("quorum", "reassign", "--bootstrap-server", "h:1", "--to", "1,x"), 2)
    done = run("quorum")
    assert done.returncode == 0 and b"add-controller" in done.stdout


def test_nobody_answers(tmp_path: Path) -> None:
    fails(run("quorum", "describe", "--dir", tmp_path / "none", "--status"), 36)
    (port,) = free_ports(1)
    where = ("--bootstrap-controller", f"127.0.0.1:{port}", "--timeout", 0.3)
    fails(run("quorum", "describe", *where, "--status"), 12)
    fails(run("quorum", "transfer", *where), 12)
    fails(run("quorum", "add-controller", *where, "-c", tmp_path / "none"), 3)
    done = run("storage", "format", "--dir", tmp_path / "q", "--voters", 1)
    assert done.returncode == 0
    where = ("--dir", tmp_path / "q", "--timeout", 0.3)
    fails(run("quorum", "describe", *where, "--status"), 12)
    fails(run("quorum", "add-controller", *where), 12)  # made, but nobody starts it


def test_a_wait_is_told_and_ends_with_the_timeout(tmp_path: Path) -> None:
    """A quorum that stops: its process holds the lock, and no replica answers."""
    assert run("storage", "format", "--dir", tmp_path / "q", "--voters", 1).returncode == 0
    with run_lock(str(tmp_path / "q")):
        begun = time.monotonic()
        done = run("quorum", "add-controller", "--dir", tmp_path / "q", "--timeout", 4)
    assert time.monotonic() - begun < 8
    waiting, refused = done.stderr.decode().splitlines()
    assert done.returncode == 12 and "no leader could be asked" in refused
    told = r"kraftfast: waiting for an answer of the leader, for up to (2|1\.\d+) s \(--timeout\)"
    assert re.fullmatch(told, waiting), waiting  # what is left by then


class Servers:
    """Servers of one dynamic quorum, each with its properties; node N's port is ``ports[N]``."""

    def __init__(self, path: Path, program: Callable[..., Program], count: int) -> None:
        self.path, self.program = path, program
        self.ports = dict(enumerate(free_ports(count), 1))
        self.cluster = run("storage", "random-uuid").stdout.decode().strip()
        self.running: dict[int, Program] = {}
        self.where = ("--bootstrap-controller", f"127.0.0.1:{self.ports[1]}")

    def properties(self, id: int, role: str = "controller", **more: str) -> Path:
        listener = "CONTROLLER" if role == "controller" else "CLIENT"
        fields = {
            "process.roles": role,
            "node.id": str(id),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.ports[1]}",
            "listeners": f"{listener}://127.0.0.1:{self.ports[id]}",
            "controller.listener.names": "CONTROLLER",
            "metadata.log.dir": str(self.path / str(id)),
            "controller.quorum.election.timeout.ms": "300",
            "controller.quorum.fetch.timeout.ms": "600",
            "kraftfast.prepare.stride.bytes": "1048576",
        } | {key.replace("_", "."): value for key, value in more.items()}
        file = self.path / f"{id}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in fields.items()))
        return file

    def format(self, id: int, *how: str, **more: str) -> None:
        file = self.properties(id, **more)
        done = run("storage", "format", "--config", file, "--cluster-id", self.cluster, *how)
        assert done.returncode == 0, done.stderr

    def serve(self, id: int) -> None:
        self.running[id] = self.program("serve", "--config", self.path / f"{id}.properties")
        self.running[id].wait_for("listener ")

    def stop(self, id: int, signo: int = signal.SIGTERM) -> None:
        running = self.running.pop(id)
        running.process.send_signal(signo)
        running.process.communicate(timeout=PATIENCE_S)

    def voters(self) -> list[int]:
        return ids(describe(*self.where)["currentVoters"])


def test_servers_that_join(tmp_path: Path, program: Callable[..., Program]) -> None:
    """--standalone, an added one, one that joins by itself, and an observer; all by sockets."""
    servers = Servers(tmp_path, program, 4)
    servers.format(1, "--standalone")
    servers.format(2, "--no-initial-controllers")
    servers.format(3, "--no-initial-controllers", controller_quorum_auto_join_enable="true")
    servers.format(4, "--no-initial-controllers", role="broker")
    for id in (1, 2, 3, 4):
        servers.serve(id)
    where = servers.where
    wait_for(lambda: ids(describe(*where)["currentObservers"]) == [2, 4])
    assert servers.voters() == [1, 3]  # 3 joined by itself
    servers.format(1, "--standalone", "-g")  # as at each boot: it is asked of nobody who leads
    add = ("quorum", "add-controller", *where, "-c", tmp_path / "2.properties")
    assert said(run(*add, "--dry-run")).startswith("DRY RUN of adding controller 2 ")
    assert said(run(*add)).endswith(f"CONTROLLER://127.0.0.1:{servers.ports[2]}\n")
    wait_for(lambda: servers.voters() == [1, 2, 3])
    leader = describe(*where)["leaderId"]
    done = run("quorum", "describe", "--dir", tmp_path / str(leader % 3 + 1), "--status")
    said_at_last = done.stderr.decode().splitlines()[-1]  # after a first word on the wait
    assert f"{leader} leads, and is not here: ask by --bootstrap-controller" in said_at_last
    assert done.returncode == 12 and said_at_last.startswith("kraftfast: ")
    broker = ("quorum", "add-controller", *where, "-c", tmp_path / "4.properties")
    assert "no controller listener" in fails(run(*broker), 2)

    assert run("append", "--bootstrap-server", where[1], data=b"one\ntwo\n").returncode == 0
    observer = ("--bootstrap-server", f"127.0.0.1:{servers.ports[4]}")
    assert said(run("consume", *observer, "--from", 0)) == "one\ntwo\n"
    assert "beyond what is committed" in fails(run("consume", *observer, "--from", 999), 17)

    assert said(run("quorum", "remove-controller", *where, "-i", 3)).startswith("Removed  KRaft")
    time.sleep(1.5)  # it stays out, although it would join by itself: it was removed
    assert servers.voters() == [1, 2]
    moved = servers.ports[2]
    servers.stop(2)
    (servers.ports[2],) = free_ports(1)
    servers.properties(2)
    servers.serve(2)
    assert servers.ports[2] != moved

    def follows() -> bool:
        (found,) = (each for each in describe(*where)["currentVoters"] if each["id"] == 2)
        return bool(found["endpoints"] == [f"CONTROLLER://127.0.0.1:{servers.ports[2]}"])

    wait_for(follows)  # UpdateRaftVoter
    to = 3 - int(describe(*where)["leaderId"])  # mostly 2; a busy machine may have elected it
    assert said(run("quorum", "transfer", *where, "--to", to)).startswith("Leadership was handed")
    assert describe(*where)["leaderId"] == to
    for id in list(servers.running):
        assert servers.running[id].stop() == 0


def test_a_wiped_disk_joins_again(tmp_path: Path, program: Callable[..., Program]) -> None:
    """Two steps by itself: the entry of the disk that is gone goes, then the new one comes."""
    servers = Servers(tmp_path, program, 3)
    servers.format(1, "--standalone")
    auto = {"controller_quorum_auto_join_enable": "true"}
    for id in (2, 3):
        servers.format(id, "--no-initial-controllers", **auto)
    for id in (1, 2, 3):
        servers.serve(id)
    wait_for(lambda: servers.voters() == [1, 2, 3])
    assert run("append", "--bootstrap-server", servers.where[1], data=b"kept\n").returncode == 0
    before = {each["id"]: each for each in describe(*servers.where)["currentVoters"]}[3]
    servers.stop(3, signal.SIGKILL)
    shutil.rmtree(tmp_path / "3")
    servers.format(3, "--no-initial-controllers", **auto)
    servers.serve(3)

    def joined() -> bool:
        voters = {each["id"]: each for each in describe(*servers.where)["currentVoters"]}
        return 3 in voters and voters[3]["directoryId"] != before["directoryId"]

    wait_for(joined)
    assert servers.voters() == [1, 2, 3]
    servers.stop(1, signal.SIGKILL)  # the two that are left are a majority, with all of the log
    servers.where = ("--bootstrap-controller", f"127.0.0.1:{servers.ports[3]}")
    done = run("consume", "--bootstrap-server", servers.where[1], "--from", 0)
    assert said(done) == "kept\n"
    for id in list(servers.running):
        servers.stop(id)


def test_what_is_not_this_quorums(tmp_path: Path, program: Callable[..., Program]) -> None:
    """Another cluster's server, one that does not run, one whose directory is another node's."""
    servers = Servers(tmp_path, program, 3)
    servers.format(1, "--standalone")
    servers.serve(1)
    wait_for(lambda: run("quorum", "describe", *servers.where, "--status").returncode == 0)
    servers.format(2, "--no-initial-controllers")
    add = ("quorum", "add-controller", *servers.where, "--timeout", 6)
    done = run(*add, "-c", tmp_path / "2.properties")
    waiting, refused = done.stderr.decode().splitlines()
    assert done.returncode == 15 and "did not answer" in refused
    assert waiting.startswith("kraftfast: waiting for controller 2 to catch up with the leader")
    assert "start it first" in fails(run(*add, "-c", tmp_path / "2.properties", "--dry-run"), 10)
    reassign = ("quorum", "reassign", *servers.where, "--to", "1,2")
    assert "INVALID_REPLICA_ASSIGNMENT: 2 neither vote nor follow" in fails(run(*reassign), 10)
    servers.cluster = run("storage", "random-uuid").stdout.decode().strip()
    servers.format(3, "--no-initial-controllers")
    assert "this is cluster" in fails(run(*add, "-c", tmp_path / "3.properties"), 14)
    file = tmp_path / "3.properties"
    file.write_text(file.read_text().replace("node.id=3", "node.id=2"))
    fails(run(*add, "-c", file), 35)
    assert "last voter" in fails(
        run("quorum", "remove-controller", *servers.where, "-i", 1, "--dry-run"), 10
    )
    assert servers.running[1].stop() == 0
