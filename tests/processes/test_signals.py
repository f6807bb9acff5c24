"""SIGTERM, SIGSTOP and SIGCONT, and a supervisor that is gone: nothing is lost, nobody is left."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.processes.kit import (
    PATIENCE_S,
    SMALL,
    a_quorum,
    followers_of,
    go_on,
    leader_of,
    loads,
    log_path,
    settled,
    status_of,
    verify,
    wait_back,
    wait_until,
)

pytestmark = pytest.mark.processes
TRANSPORTS = ("ring", "socket")
TIMEOUT_MS = 600
"""Fetch timeout where replicas are stopped for longer than that."""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_is_told_to_end_under_load(tmp_path: Path, transport: str) -> None:
    """SIGTERM: it ends by itself with 0, and what it led another leads; then it comes back."""
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with loads(quorum) as running:
            for id in [*followers_of(quorum)[:1], leader_of(quorum)]:
                process = quorum.supervisor.workers[id].process
                assert process is not None
                quorum.kill(id, signal.SIGTERM)
                go_on(running)
                wait_back(quorum, id, process.pid)
                assert process.returncode == 0
        verify(quorum, settled(quorum), running)


# covers: KafkaRaftClientDriverTest.testShutdown
def test_all_are_told_to_end(tmp_path: Path) -> None:
    """Files are left as Kafka leaves them, trimmed to their length; and all is there again."""
    with a_quorum(tmp_path / "q", restart=False) as quorum:
        with loads(quorum) as running:
            pass
        end_offset = settled(quorum)
        processes = [worker.process for worker in quorum.supervisor.workers.values()]
        for id in quorum.directories:
            quorum.kill(id, signal.SIGTERM)
        for process in processes:
            assert process is not None
            wait_until(lambda process=process: process.returncode is not None)
            assert process.returncode == 0
        for id in quorum.directories:
            segment = sorted(Path(log_path(quorum, id)).glob("*.log"))[-1].read_bytes()
            assert segment.rstrip(b"\0") and len(segment) < SMALL["stride_bytes"], "not trimmed"
    with a_quorum(tmp_path / "q", voters=None) as quorum:
        assert settled(quorum) > end_offset, "a new epoch has a record of its own"
        verify(quorum, settled(quorum), running)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_leader_is_stopped_for_longer_than_the_timeouts(tmp_path: Path, transport: str) -> None:
    """Another leads meanwhile. Resumed, the old one finds that out before it serves anything."""
    with a_quorum(tmp_path / "q", transport=transport, fetch_timeout_ms=TIMEOUT_MS) as quorum:
        with loads(quorum, "ring", "ring") as running:
            stopped = leader_of(quorum)
            epoch = quorum.status(stopped)["epoch"]
            quorum.kill(stopped, signal.SIGSTOP)
            others = [id for id in quorum.directories if id != stopped]

            def another_leads() -> bool:
                found = [status_of(quorum, id) for id in others]
                return any(
                    s is not None and s["role"] == "leader" and s["epoch"] > epoch for s in found
                )

            wait_until(another_leads)
            go_on(running)
            quorum.kill(stopped, signal.SIGCONT)
            wait_until(lambda: (status_of(quorum, stopped) or {}).get("epoch", 0) > epoch)
            go_on(running)
        verify(quorum, settled(quorum), running)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_follower_is_stopped_for_longer_than_the_timeouts(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport, fetch_timeout_ms=TIMEOUT_MS) as quorum:
        with loads(quorum) as running:
            stopped = followers_of(quorum)[0]
            quorum.kill(stopped, signal.SIGSTOP)
            time.sleep(2.5 * TIMEOUT_MS / 1000)
            go_on(running)
            quorum.kill(stopped, signal.SIGCONT)
            go_on(running)
        verify(quorum, settled(quorum), running)


def test_both_followers_are_stopped(tmp_path: Path) -> None:
    """Without a majority the leader resigns, and nothing is acknowledged; with one it goes on."""
    with a_quorum(tmp_path / "q", fetch_timeout_ms=TIMEOUT_MS) as quorum:
        with loads(quorum, "ring") as running:
            leader = leader_of(quorum)
            followers = followers_of(quorum)
            for id in followers:
                quorum.kill(id, signal.SIGSTOP)
            wait_until(
                lambda: (status_of(quorum, leader) or {"role": ""})["role"] not in ("", "leader")
            )
            acknowledged = running[0].acknowledged
            time.sleep(TIMEOUT_MS / 1000)
            assert running[0].acknowledged == acknowledged
            for id in followers:
                quorum.kill(id, signal.SIGCONT)
            go_on(running)
        verify(quorum, settled(quorum), running)


SUPERVISOR = """
import json, sys, time
import kraftfast
settings = json.loads(sys.argv[2])
if __name__ == "__main__":
    quorum = kraftfast.LocalQuorum(sys.argv[1], voters=3, **settings)
    with quorum.producer() as producer:
        offset = producer.append_wait(b"committed")
    pids = [quorum.supervisor.pid(id) for id in quorum.directories]
    print(json.dumps({"offset": offset, "pids": pids}), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_the_supervisor_is_killed(tmp_path: Path, stopped: bool) -> None:
    """No orphan holds a directory; one that was stopped at that moment ends when it goes on."""
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(SUPERVISOR),
        str(tmp_path / "q"),
        json.dumps(SMALL),
    ]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    told = json.loads(parent.stdout.readline())
    pidfds = [os.pidfd_open(pid) for pid in told["pids"]]
    if stopped:
        signal.pidfd_send_signal(pidfds[0], signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    if stopped:
        signal.pidfd_send_signal(pidfds[0], signal.SIGCONT)
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), "a worker outlives its supervisor"
        os.close(pidfd)
    with (
        a_quorum(tmp_path / "q", voters=None) as quorum,
        quorum.consumer(told["offset"]) as consumer,
    ):
        assert next(iter(consumer)).value == b"committed"


def test_an_interrupt_of_the_terminal_is_for_the_supervisor_alone(tmp_path: Path) -> None:
    """Ctrl-C reaches a process group: workers have their own, in the session of their starter."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "kraftfast", "start", "--voters", "3", "--dir"]
        os.execv(sys.executable, [*command, str(tmp_path / "q")])
    said = b""
    try:
        while b"leads" not in said:
            assert select.select([terminal], [], [], PATIENCE_S)[0], f"only {said!r}"
            said += os.read(terminal, 4096)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        workers = [int(child) for child in children]
        assert len(workers) == 3
        assert {os.getsid(worker) for worker in workers} == {os.getsid(pid)}
        assert {os.getpgid(worker) for worker in workers} == set(workers)
        os.write(terminal, b"\x03")
        with contextlib.suppress(OSError):  # EIO: all of them have ended
            while data := os.read(terminal, 4096):
                said += data
    finally:
        os.close(terminal)  # hangs up, should it still run
        _, status = os.waitpid(pid, 0)
    assert b"Traceback" not in said and b"cannot run" not in said
    assert os.waitstatus_to_exitcode(status) in (0, 130)
