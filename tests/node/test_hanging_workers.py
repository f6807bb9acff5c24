"""Workers that hang, in a call of the kernel or stopped: nothing waits for them beyond its time."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import TimedOut
from kraftfast.node.node_config import NodeConfig
from kraftfast.node.processes import supervisor
from kraftfast.node.processes.launching import Launch, Launched, Sibling
from kraftfast.node.processes.supervisor import Supervisor
from kraftfast.node.processes.supervisor_host import KernelSupervisorHost
from kraftfast.quorum import LocalQuorum
from tests.node.inside import SMALL
from tests.node.kit import TIMEOUT_S
from tests.node.test_supervisor import children


class Stuck(Sibling):
    """A process in a call of the kernel that hangs: a kill comes after it."""

    def poll(self) -> int | None:
        return None

    def kill(self) -> None:
        pass


def test_a_process_that_no_kill_ends_is_waited_for_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk hangs. The close of a quorum waited for ever."""
    monkeypatch.setattr("kraftfast.node.processes.ending.KILLED_S_MAX", 0.05)
    found, told = Supervisor([NodeConfig(1, "one", [])]), list[str]()
    note = staticmethod(lambda event, *_, **_fields: told.append(event))
    monkeypatch.setattr(KernelSupervisorHost, "tell", note)
    worker = found.workers[1]
    worker.sock, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker.process = Stuck(os.getpid())
    closing = threading.Thread(target=lambda: found.close(0.1), daemon=True)
    closing.start()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive() and worker.process is None
    assert told == ["worker_hangs"]
    far.close()


@pytest.mark.parametrize("what", ["all", "one", "without a pidfd", "a sibling without a pidfd"])
def test_what_was_launched_and_no_kill_ends_is_waited_for_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It imports from a disk that hangs. A supervisor that closed held its lock for ever."""
    monkeypatch.setattr("kraftfast.node.processes.ending.KILLED_S_MAX", 0.05)

    class StuckHost(KernelSupervisorHost):
        def spawn(self, fds: list[int]) -> Stuck:
            return Stuck(os.getpid())

        def open_pidfd(self, pid: int) -> int:
            if "without" in what and (pid != os.getpid() or "sibling" not in what):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return os.open(os.devnull, os.O_RDONLY)

    def run() -> None:
        if what == "without a pidfd":
            with pytest.raises(OSError):
                Launch(2, StuckHost())
            return
        launch = Launch(2, StuckHost())
        if what == "a sibling without a pidfd":
            assert launch._sibling(1) is None
        launch.end() if what == "all" else launch.first.end()

    monkeypatch.setattr("kraftfast.node.processes.launching.Sibling", Stuck)
    before = len(os.listdir("/proc/self/fd"))
    ending = threading.Thread(target=run, daemon=True)
    ending.start()
    ending.join(5)
    assert not ending.is_alive()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_one_that_does_not_start_in_time_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has said nothing itself: what a quorum told of it was "None"."""
    found, told = Supervisor([NodeConfig(1, "one", [])]), list[Any]()
    note = staticmethod(lambda event, id, **fields: told.append((event, id, str(fields["why"]))))
    monkeypatch.setattr(KernelSupervisorHost, "tell", note)
    late = TimedOut("replica 1 did not start in time")
    found.workers[1].opened = True
    found.tell_error(1, late)
    assert told == [], "it has come meanwhile"
    found.workers[1].opened = False
    found.tell_error(1, late)
    found.tell_error(1, late)
    assert told == [("worker_waits", 1, "replica 1 did not start in time")]
    found.close()


def test_one_that_is_not_added_in_time_is_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears nothing: its disk hangs, say. It was given 10 s more, which the caller waited."""
    with LocalQuorum(tmp_path / "q", 1, **SMALL) as quorum:
        before, start = children(), supervisor.Worker.start

        def stopped(self: supervisor.Worker, launched: Launched | None = None) -> None:
            start(self, launched)
            assert self.process is not None
            os.kill(self.process.pid, signal.SIGSTOP)

        monkeypatch.setattr(supervisor.Worker, "start", stopped)
        began = time.monotonic()
        with pytest.raises(TimedOut, match="replica 2 did not start in time"):
            quorum.add_replica(timeout=0.5)
        assert time.monotonic() - began < 8 and children() <= before
        monkeypatch.undo()
        assert quorum.add_replica(2, timeout=TIMEOUT_S) == 2


def test_a_replica_that_hangs_does_not_take_all_the_time_to_find_a_leader(tmp_path: Path) -> None:
    """It was asked for 5 s, and then the time was over, though two others had a leader."""
    with LocalQuorum(tmp_path / "q", 3, **SMALL) as quorum:
        if quorum.wait_leader(TIMEOUT_S) != 3:
            quorum.transfer(3, timeout=TIMEOUT_S)
        quorum.kill(1, signal.SIGSTOP)
        try:
            assert quorum.wait_leader(3.0) == 3
        finally:
            quorum.kill(1, signal.SIGCONT)
