"""What ``kraftfast start`` does where no replica, or not every replica, can run."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.cli.start import AGAIN_S, Added
from kraftfast.errors import (
    CannotListen,
    CorruptLog,
    DirectoryMoved,
    DiskFull,
    KraftfastError,
    NoQuorum,
    StorageError,
)
from kraftfast.node.event_log import Entry
from kraftfast.node.node_config import NodeConfig
from kraftfast.node.processes.supervisor import Supervisor
from kraftfast.node.processes.telling import tell
from kraftfast.node.processes.tuning import free_port
from tests.cli.kit import Program, fails, run

SHORT = "no space left in the directory"


class Quorum:
    """A quorum whose workers are never started: the test sets what their supervisor has seen."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.directories = {id: str(path / str(id)) for id in (1, 2, 3)}
        self.supervisor = Supervisor(
            [NodeConfig(directory=self.directories[id], node_id=id, voters=()) for id in (1, 2, 3)]
        )

    @property
    def faults(self) -> dict[int, KraftfastError]:
        return self.supervisor.faults()

    def fails(self, id: int, error: KraftfastError) -> None:
        """What it keeps of one that ended with ``error``, which it tells."""
        worker = self.supervisor.workers[id]
        worker.error, worker.process = error, None
        self.supervisor.tell_error(id)

    def adopt(self) -> None:
        self.directories[4] = f"{self.path}/4"
        self.supervisor.pid = lambda id: 1000 * id  # type: ignore[method-assign]


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path)
    yield quorum
    quorum.supervisor.disown()


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replica, event and message of each event of this process."""
    found: list[str] = []

    def show(entry: Entry) -> None:
        found.append(f"{entry.node_id} {entry.event}: {entry.message}")

    monkeypatch.setattr(tell, "show", show)
    return found


def test_what_a_replica_waits_for_is_told_once(quorum: Quorum, told: list[str]) -> None:
    added = Added(quorum, tell)
    for _ in range(3):
        quorum.fails(2, DiskFull(SHORT))
        added.look()
    assert told == [f"2 worker_waits: it does not run -> it is tried again: {SHORT}"]
    quorum.supervisor.workers[2].told = ""  # as once it has opened its log
    quorum.fails(2, DiskFull(SHORT))
    assert len(told) == 2


def test_a_wrong_permission_needs_no_other_disk(quorum: Quorum, told: list[str]) -> None:
    added = Added(quorum, tell)
    quorum.fails(2, StorageError("cannot open q/2/.lock: Permission denied"))
    added.look()
    assert "; change its owner or its permissions" in told[0] and "replace" not in told[0]


def test_the_last_replica_that_cannot_run_ends_it(quorum: Quorum, told: list[str]) -> None:
    """What rebuilds one of them is said while others are left."""
    added = Added(quorum, tell)
    for id in (1, 2):
        quorum.fails(id, CorruptLog(f"replica {id} is damaged"))
        added.look()
    quorum.fails(3, CorruptLog("replica 3 is damaged too"))
    with pytest.raises(CorruptLog):
        added.look()
    assert [each.partition(" ")[2].partition(":")[0] for each in told] == ["replica_down"] * 3
    place = quorum.directories[1]
    assert f"kraftfast storage replace {place} rebuilds it from the others" in told[0]
    assert "rebuilds" not in told[1] + told[2]


def test_a_replica_that_was_moved_is_not_to_be_rebuilt(quorum: Quorum, told: list[str]) -> None:
    """What it acknowledged is where it was moved to."""
    quorum.fails(1, DirectoryMoved("q/1 was moved: it is m/1 now"))
    Added(quorum, tell).look()
    assert told == ["1 replica_down: it cannot run -> it stays down: q/1 was moved: it is m/1 now"]


def test_replicas_that_were_added_are_started(
    quorum: Quorum, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    added = Added(quorum, tell)
    Path(quorum.path, "quorum.json").write_text("{}")
    added.look()
    added.look()
    assert told == ["4 replica_added: it was added -> started as process 4000"]

    def refuse() -> None:
        raise NoQuorum("none leads")

    monkeypatch.setattr(quorum, "adopt", refuse)
    added.described_ns = 0
    added.look()
    assert told[1:] == ["-1 replica_not_added: a replica that was added cannot run: none leads"]


def test_a_replica_that_could_not_be_added_is_tried_again(
    quorum: Quorum, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause, without another command; why it cannot run is told once for each."""
    clock, tried = Clock(), list[float]()
    monkeypatch.setattr("kraftfast.cli.start.time", clock)

    def adopt() -> None:
        tried.append(clock.now)
        if len(tried) < 3:
            raise CannotListen("the port is taken")
        Quorum.adopt(quorum)

    monkeypatch.setattr(quorum, "adopt", adopt)
    added = Added(quorum, tell)
    Path(quorum.path, "quorum.json").write_text("{}")
    for _ in range(5):
        added.look()
        added.look()
        clock.now += AGAIN_S
    assert tried == [100.0, 100.0 + AGAIN_S, 100.0 + 2 * AGAIN_S]
    assert told == [
        "-1 replica_not_added: a replica that was added cannot run: the port is taken",
        "4 replica_added: it was added -> started as process 4000",
    ]


def test_one_fault_is_one_line(tmp_path: Path) -> None:
    """Three workers that cannot start for the same reason are told of once."""
    assert run("storage", "format", "--dir", tmp_path / "q").returncode == 0
    for id in (1, 2, 3):
        (tmp_path / "q" / str(id) / "meta.properties").write_text("nonsense")
    text = fails(run("start", "--dir", tmp_path / "q"), 35)
    assert "meta.properties" in text


@pytest.mark.processes
def test_events_as_json(tmp_path: Path, program: Callable[..., Program]) -> None:
    """Every line is a document: those of the replicas, which other processes are, too."""
    running = program(
        "start", "--dir", tmp_path / "q", "--voters", 1, "--log-format", "json",
        "--segment-bytes", "8MiB",
    )  # fmt: skip
    running.wait_for("quorum_started")
    assert running.stop(signal.SIGINT) == 0, running.log
    lines: list[dict[str, Any]] = [json.loads(line) for line in running.log.splitlines()]
    names = [(line["node_id"], line["event"]) for line in lines]
    assert {(1, "log_opened"), (1, "leader_elected"), (1, "replica_stopped")} <= set(names)
    assert names[-1] == (None, "quorum_stopped")
    (elected,) = (line for line in lines if line["event"] == "leader_elected")
    assert (elected["role"], elected["leader_id"], elected["level"]) == ("leader", 1, "info")
    assert elected["message"] == f"epoch {elected['epoch']}: leader, replica 1 leads"
    assert SimpleNamespace(**elected).time.endswith("Z")


@pytest.mark.processes
def test_a_server_writes_what_its_properties_say(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    port = free_port("127.0.0.1")
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path}/log\nnum.io.threads=8\nkraftfast.log.format=json\n"
    )
    cluster = run("storage", "random-uuid").stdout.decode().strip()
    assert run("storage", "format", "--config", file, "--cluster-id", cluster).returncode == 0
    running = program("serve", "--config", file)
    running.wait_for("leader_elected")
    assert running.stop() == 0, running.log
    lines = [json.loads(line) for line in running.log.splitlines()]
    names = [line["event"] for line in lines]
    assert names[:3] == ["configuration_noted", "listening", "log_opened"]
    assert names[-1] == "replica_stopped" and {line["node_id"] for line in lines} == {1}
    assert lines[1]["port"] == port
