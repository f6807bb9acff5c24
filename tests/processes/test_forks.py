"""A process that a state machine forks is no replica, and what ends it does not end one (R11)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import RequestRefused
from kraftfast.node.state_machine import StateMachine
from kraftfast.quorum import LocalQuorum
from tests.processes.kit import SMALL, wait_until

pytestmark = pytest.mark.processes


class Forks(StateMachine):
    """Its queries fork; what the child does is their argument."""

    def __init__(self) -> None:
        self.applied = 0

    def apply(self, batch: Any) -> None:
        self.applied += batch.last_offset - batch.base_offset + 1

    def query(self, what: str) -> Any:
        if what == "applied":
            return self.applied
        pid = os.fork()
        if pid == 0:
            if what == "sleep":
                time.sleep(600)
            elif what == "fail":
                raise RuntimeError("in the child")
            elif what == "exit":
                sys.exit(0)
            return "from the child"
        if what == "ended at once":
            os.kill(pid, signal.SIGTERM)
        return pid


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    path = tmp_path_factory.mktemp("forks")
    with LocalQuorum(path, **SMALL | {"voters": 1}, state_machine=f"{__file__}:Forks") as quorum:
        yield quorum


def ended(pid: int) -> bool:
    """Whether it runs no more; nobody may have collected it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("what", ["sleep", "ended at once", "fail", "exit", "return"])
def test_a_child_of_a_state_machine(quorum: LocalQuorum, what: str) -> None:
    replica = quorum.supervisor.pid(1)
    with quorum.producer() as producer:
        producer.append_wait(b"before")
        for _ in range(5):
            child = quorum.query(1, what)
            assert isinstance(child, int) and child != replica
            if what == "sleep":
                os.kill(child, signal.SIGTERM)
            wait_until(lambda child=child: ended(child))
        end = producer.append_wait(b"after") + 1
        assert quorum.query(1, "applied", at_least=end) > 0
    assert quorum.supervisor.pid(1) == replica


def test_a_child_that_fails_is_not_a_machine_that_does(quorum: LocalQuorum) -> None:
    with pytest.raises(RequestRefused):
        quorum.query(1)  # without its argument: told to who asked
    assert quorum.query(1, "applied") >= 0


MACHINE = """
import os, sys, kraftfast

def fork():
    child = os.fork()
    if child == 0:
        {does}
    else:
        open({noted!r}, "w").write(str(child))

{at_import}

class Machine(kraftfast.StateMachine):
    def __init__(self):
        {at_making}

    def apply(self, batch):
        pass

    def query(self):
        return os.getpid()
"""


@pytest.mark.parametrize("does", ["pass", "sys.exit(0)"])
@pytest.mark.parametrize("where", ["at_import", "at_making"])
def test_a_child_of_a_machine_that_is_made(
    tmp_path: Path, where: str, does: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It went on as a second process of its replica; one that exits was told as a failed start."""
    noted, file = tmp_path / "child", tmp_path / "forking.py"
    code = {"at_import": "", "at_making": "pass"} | {where: "fork()"}
    file.write_text(MACHINE.format(does=does, noted=str(noted), **code))
    settings: dict[str, Any] = SMALL | {"voters": 1, "state_machine": f"{file}:Machine"}
    with LocalQuorum(tmp_path / "quorum", **settings) as quorum, quorum.producer() as producer:
        end = producer.append_wait(b"record") + 1
        assert quorum.query(1, at_least=end) == quorum.supervisor.pid(1)
        wait_until(lambda: ended(int(noted.read_text())))
    assert ("child_returned" in capfd.readouterr().err) == (does == "pass")
