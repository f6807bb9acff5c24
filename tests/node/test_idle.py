"""Where a loop waits, on processors that have other work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kraftfast.link.ring_link import OwnDoorbell
from kraftfast.node.idle import Idle
from kraftfast.node.threads.flusher import Flusher

SPINS = 300


@pytest.fixture
def idle() -> Iterator[Idle]:
    bell = OwnDoorbell()
    flusher = Flusher(bell.bell.address, bell.bell.fd)
    made = Idle(bell.bell, flusher.address)
    yield made
    made.close()
    flusher.close()
    bell.close()


@pytest.fixture
def contended() -> Iterator[None]:
    """This thread has to share its processor with one that never sleeps."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    with subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"],
                          stdout=subprocess.PIPE) as loop:  # fmt: skip
        try:
            assert loop.stdout is not None
            loop.stdout.readline()
            yield
        finally:
            loop.kill()
            os.sched_setaffinity(0, before)


def test_a_loop_does_not_yield_again_and_again_to_a_process_that_never_sleeps(
    idle: Idle, contended: None
) -> None:
    """Each time would take a time slice of that process."""
    for _ in range(SPINS):
        assert idle.spin(300) is None
    if not idle.long_yields:
        pytest.skip("a yield takes no time with this kernel's scheduler")
    assert idle.long_yields < SPINS // 10
