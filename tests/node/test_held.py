"""A machine that keeps the interpreter stops the loop, and the replica's clock stands still."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

from kraftfast.node.node import HELD_NS_MIN
from kraftfast.node.state_machine import StateMachine
from kraftfast.node.threads.held import APART_NS, Calls
from tests.node.inside import Inside

HELD_US = 1_500_000
SPIN_US = 50
SLEEP_S_MAX = 0.5  # the loop's longest sleep: it counts as time, whatever the machine does


class Holding(StateMachine):
    """Its first call holds the interpreter, as one long call into C does."""

    def apply(self, batch: Any) -> None: ...

    def query(self) -> int:
        ctypes.PyDLL(None).usleep(HELD_US)
        return 1


def test_what_the_machine_took_is_no_time(tmp_path: Path) -> None:
    replica = Inside(tmp_path / "q", state_machine=f"{__name__}:Holding")
    node = replica.node
    try:
        answers: list[Any] = []
        node.now_ms()
        began_s, began_ms = time.monotonic(), node.now_ms()
        node.applier.ask(lambda: [], -1, answers.append)
        replica.until(lambda: answers)
        elapsed_ms, passed_ms = (time.monotonic() - began_s) * 1000, node.now_ms() - began_ms
        assert answers[0]["value"] == 1
        least_ms = HELD_US / 1000 - SLEEP_S_MAX * 1000
        assert elapsed_ms - passed_ms > least_ms - 2 * HELD_NS_MIN / 1e6
        assert replica.node.core.role == "leader"
    finally:
        replica.close()


def test_only_calls_count() -> None:
    calls = Calls()
    assert calls.between(5, 50) == 0
    calls.began_ns, calls.ended_ns = 10, 30
    times = ((0, 100, 20), (20, 100, 10), (20, 25, 5), (0, 10, 0), (30, 40, 0))
    for since, now, held in times:
        assert calls.between(since, now) == held
    calls.began_ns, calls.inside = 40, True
    assert calls.between(20, 100) == 60
    calls = Calls()
    assert calls.make(lambda a, b: a + b, 1, 2) == 3
    first_ns = calls.began_ns
    calls.ended_ns += 10**12  # the next follows at once: the loop may not have run between
    calls.make(int)
    assert calls.began_ns == first_ns and not calls.inside
    calls.ended_ns -= APART_NS + 1
    calls.make(int)
    assert calls.began_ns > first_ns


def test_the_clock_does_not_go_back_and_sleep_counts(tmp_path: Path) -> None:
    """D13: nor is a wait for the disk taken for the machine's, unless the machine ran then."""
    replica = Inside(tmp_path / "q", state_machine=f"{__name__}:Holding")
    node, second = replica.node, 1_000_000_000
    try:
        node.applier.calls.began_ns = node.applier.calls.ended_ns = node.held_ns = 0
        before = node.now_ms()
        node.seen_ns -= second  # the loop was away for a second, and the machine was not called
        assert node.now_ms() >= before and node.held_ns == 0
        now_ns = time.monotonic_ns()
        node.seen_ns = now_ns - second
        node.applier.calls.began_ns, node.applier.calls.ended_ns = now_ns - second, now_ns
        before = node.now_ms()
        assert node.held_ns == second
        assert node.now_ms() >= before
    finally:
        replica.close()


def test_a_loop_that_does_not_spin_counts_no_call_twice(tmp_path: Path) -> None:
    """L1: a clock that goes back lets no leader resign and no follower campaign."""
    replica = Inside(tmp_path / "q", state_machine=f"{__name__}:Holding")
    node, calls, second = replica.node, replica.node.applier.calls, 1_000_000_000
    try:
        now_ns = time.monotonic_ns()
        node.idle.woke_ns = node.seen_ns = now_ns - second  # the machine was called since then
        calls.began_ns, calls.ended_ns, node.held_ns = now_ns - second, now_ns, 0
        before = node.now_ms()
        assert node.held_ns == second
        replica.loop.spin_us = SPIN_US  # it has not rested since something came
        node.idle.pause_until_ns = now_ns + 60 * second  # others need the processor: no spinning
        replica.loop._rest()
        assert node.held_ns == second
        assert node.now_ms() >= before
    finally:
        replica.close()
