"""What ``kraftfast start`` says of replicas that end, wait for space, and run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.cli.start import Events
from kraftfast.errors import CorruptLog, DiskFull, KraftfastError, PeerGone
from kraftfast.node.config import NodeConfig
from kraftfast.node.processes.supervisor import Supervisor
from tests.cli.kit import fails, run

SHORT = "no space left in the directory"


class Quorum:
    """A quorum whose workers are never started: the test sets what their supervisor has seen."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.directories = {id: str(path / str(id)) for id in (1, 2, 3)}
        self.supervisor = Supervisor(
            [NodeConfig(directory=self.directories[id], node_id=id, voters=()) for id in (1, 2, 3)]
        )
        for id in self.directories:
            self.supervisor.workers[id].restarts = 0
            self.runs(id)

    @property
    def faults(self) -> dict[int, KraftfastError]:
        return self.supervisor.faults()

    def watch(self, id: int) -> Any:
        raise PeerGone(f"replica {id} does not run")

    def runs(self, id: int, restarted: bool = False) -> None:
        """What the supervisor keeps of a worker that has opened its log."""
        worker = self.supervisor.workers[id]
        worker.error = None
        worker.restarts += restarted
        worker.process = SimpleNamespace(pid=1000 * id)  # type: ignore[assignment]
        worker.ready.set()

    def fails(self, id: int, error: KraftfastError) -> None:
        """What it keeps of one that ended with ``error``."""
        worker = self.supervisor.workers[id]
        worker.error, worker.process = error, None
        worker.ready.clear()

    def starts(self, id: int) -> None:
        """What it keeps of one that was started and has not opened its log yet."""
        self.runs(id, restarted=True)
        self.supervisor.workers[id].ready.clear()


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path)
    yield quorum
    quorum.supervisor.disown()


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines since the last call, without the time of day."""
    return [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]


def test_every_replica_may_be_short_of_space_once(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    events = Events(quorum)
    for id in (1, 2, 3):
        quorum.fails(id, DiskFull(SHORT))
        events.look()
        assert said(capsys) == [f"replica {id} does not run -> it is tried again: {SHORT}"]
        for _ in range(2):  # the space is still not there
            quorum.starts(id)
            events.look()
            quorum.fails(id, DiskFull(SHORT))
            events.look()
            assert said(capsys) == []
        quorum.runs(id, restarted=True)
        events.look()
        assert said(capsys) == [f"replica {id} ended -> started again as process {id}000"]
        events.look()
        assert said(capsys) == []


def test_all_of_them_short_of_space_at_once_do_not_end_the_quorum(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    events = Events(quorum)
    for id in (1, 2, 3):
        quorum.fails(id, DiskFull(SHORT))
    events.look()
    assert len(said(capsys)) == 3
    for id in (1, 2, 3):
        quorum.runs(id, restarted=True)
    events.look()
    assert len(said(capsys)) == 3


def test_the_last_replica_that_cannot_run_ends_it(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    events = Events(quorum)
    quorum.fails(3, DiskFull(SHORT))
    for id in (1, 2):
        quorum.fails(id, CorruptLog(f"replica {id} is damaged"))
        events.look()
        events.look()
    assert [line.partition(":")[0] for line in said(capsys)] == [
        "replica 1 cannot run -> it stays down",
        "replica 3 does not run -> it is tried again",
        "replica 2 cannot run -> it stays down",
    ]
    quorum.fails(3, CorruptLog("replica 3 is damaged too"))
    with pytest.raises(CorruptLog):
        events.look()


def test_a_worker_that_ends_is_told_once_for_each_time(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    events = Events(quorum)
    for _ in range(2):
        quorum.starts(2)
        events.look()
        events.look()
        assert said(capsys) == ["replica 2 ended -> started again as process 2000"]


def test_one_fault_is_one_line(tmp_path: Path) -> None:
    """Three workers that cannot start for the same reason are told of once."""
    assert run("storage", "format", "--dir", tmp_path / "q").returncode == 0
    for id in (1, 2, 3):
        (tmp_path / "q" / str(id) / "meta.properties").write_text("nonsense")
    text = fails(run("start", "--dir", tmp_path / "q"), 35)
    assert "meta.properties" in text
