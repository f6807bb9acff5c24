"""Signals that come to a forked child while its parent's things are taken from it (R11)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftfast import forks
from kraftfast.quorum import LocalQuorum
from tests.client.test_forks import calls_of, in_child, refused


class Asked(BaseException):
    """What a handler raises, as for Ctrl-C."""


@pytest.fixture
def asked() -> Iterator[list[int]]:
    """A handler of SIGUSR1 that notes the process and raises."""
    came: list[int] = []

    def note(_signo: int, _frame: Any) -> None:
        came.append(os.getpid())
        raise Asked

    before = signal.signal(signal.SIGUSR1, note)
    yield came
    signal.signal(signal.SIGUSR1, before)


def ask() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


class Owned:
    """Something that is asked to end whenever it is disowned."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.disowned = 0
        self.then = then
        forks.own(self)

    def disown(self) -> None:
        self.then()
        self.disowned += 1


def test_a_signal_does_not_leave_a_child_what_is_its_parents(
    ring_quorum: LocalQuorum, asked: list[int]
) -> None:
    with ring_quorum.producer() as producer:
        producer.append_wait(b"before")
        owned = [Owned(ask) for _ in range(5)]
        assert in_child(lambda: [each.disowned for each in owned]) == [1] * 5
        assert in_child(lambda: refused(calls_of(producer))) == []
        assert in_child(lambda: len(asked)) == 1  # handled after all of them
        assert in_child(lambda: forks.pending()) is False
        assert producer.append_wait(b"after") > 0
    assert not asked and owned[0].disowned == 0


@pytest.mark.parametrize("how", [signal.SIG_UNBLOCK, signal.SIG_BLOCK])
def test_a_child_blocks_the_signals_that_its_parent_does(how: int) -> None:
    def mask() -> list[int]:
        return sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))

    before = signal.pthread_sigmask(how, [signal.SIGUSR2])
    try:
        ours = mask()
        assert in_child(mask) == ours == mask()
        show = "import signal; print(sorted(map(int, signal.pthread_sigmask(0, []))))"
        command = [sys.executable, "-c", show]
        said = subprocess.run(command, preexec_fn=lambda: None, capture_output=True, text=True)
        assert said.stdout.strip() == str(ours)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_signal_that_comes_to_a_child_at_once_is_handled() -> None:
    """Python forgets those that come before its own part of the fork in the child is done."""
    forgotten = 0
    before = signal.signal(signal.SIGUSR1, lambda _signo, _frame: os._exit(1))
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                time.sleep(0.2)
                os._exit(0)
            os.kill(pid, signal.SIGUSR1)
            forgotten += os.waitpid(pid, 0)[1] == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not forgotten


def test_a_fork_that_fails_leaves_signals_as_they_were() -> None:
    def mask() -> set[int]:
        return set(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    def try_in_vain() -> bool:
        before = mask()
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setuid(65534)
        try:
            pid = os.fork()
        except BlockingIOError:
            return mask() == before
        if pid == 0:
            os._exit(0)
        return False

    if os.geteuid():
        pytest.skip("needs root")
    assert in_child(try_in_vain)


def test_what_a_program_does_at_its_end_a_child_does_not() -> None:
    """A child that calls ``sys.exit`` runs all that was registered, its parent's too."""
    program = (
        "import os, sys, kraftfast.forks as forks\n"
        "forks.at_exit(print, os.getpid())\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "else:\n"
        "    forks.at_exit(print, 'own', flush=True)\n"
        "    sys.exit()\n"
    )
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    said, _ = running.communicate(timeout=60)
    assert said.split() == ["own", str(running.pid)]
