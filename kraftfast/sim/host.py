"""The host of a simulated replica: its clock, its disk, and threads that are events.

See ``kraftfast.node.ports``. Where the loop of a replica sleeps, its stack is left (a greenlet)
and the world goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kraftfast.node.flusher import Flusher
from kraftfast.node.idle import Idle
from kraftfast.sim.paged_file import SteppedFlush
from kraftfast.sim.preparer import SimPreparer

if TYPE_CHECKING:
    from kraftfast.sim.process import Process


class SimHost:
    """What :class:`~kraftfast.node.host.LocalHost` is in production."""

    unmap_wait_s = 0.0  # those who map a segment keep it: it is trimmed at the next start

    def __init__(self, process: Process) -> None:
        self._process, self._machine, self._world = process, process.machine, process.world
        self.disk: Any = process.machine.disk

    def boot_id(self) -> str:
        return self._machine.boot_id

    def monotonic_ns(self) -> int:
        return self._machine.clock.us(self._world.now_us) * 1000

    def wall_ms(self) -> int:
        return self._world.now_us // 1000

    def seed(self) -> int:
        return self._world.random.getrandbits(64)

    def sleep(self, seconds: float) -> None:
        self._process.block()

    def print_line(self, text: str) -> None:
        self._world.trace(f"{self._machine.id}: {text}")

    def doorbell(self) -> Any:
        return SimpleNamespace(close=lambda: None)

    def flusher(self, doorbell: Any) -> SimFlusher:
        return SimFlusher(self._process)

    def idle(self, doorbell: Any, flusher: Any) -> SimIdle:
        return SimIdle()

    def preparer(self, doorbell: Any) -> SimPreparer:
        return SimPreparer(self._process.prepare_later, self._process.tend_soon)

    def beside(self) -> SimBeside:
        return SimBeside(self._process)

    def embed(self, node: Any, state_machine: str) -> None:
        node.applier = node.world.applier(node)
        node.on_commit.append(node.applier.committed)


class SimFlusher(Flusher):  # type: ignore[misc]  # compiled
    """The flusher's thread, in steps between which anything may happen."""

    # _error: of a flush that ended and was not taken yet, an errno.

    def __init__(self, process: Process) -> None:
        self._process, self._flush = process, SteppedFlush()
        self._error: int | None = None

    def ask(self, log: Any) -> None:
        self._flush.ask(log)
        self.truncations = log.truncations
        self._process.flush_later()

    def run(self, log: Any) -> None:
        self._flush.ask(log)
        self.truncations = log.truncations
        while not self.step():
            pass
        self.take(log)

    def step(self) -> bool:
        """Do the next step; True once the flush has ended."""
        state: int = self._flush.step(self._process.disk)
        if state <= 0:
            self._error = -state
        return state <= 0

    def take(self, log: Any) -> bool:
        if self._error is None:
            return False
        error, self._error = self._error, None
        self._flush.finish(log, error)
        return True

    def busy(self) -> bool:
        """Whether a flush is under way, or has ended and was not taken."""
        return bool(self._flush.running)

    def close(self) -> None:
        """Nothing is left to stop."""


class SimIdle(Idle):  # type: ignore[misc]  # compiled
    """Nothing sleeps here: the world calls the process when something has come."""

    def __init__(self) -> None:
        """Watch nothing."""

    def keep_awake(self) -> None:
        """No processor halts."""

    def close(self) -> None:
        """Nothing was opened."""


class SimBeside:
    """One job after the other, each an event of its own: ``kraftfast.node.beside.Beside``."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def ask(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Have ``job()`` run beside the loop, then ``done(result)`` in it."""
        self._jobs.append((job, done))
        if len(self._jobs) == 1:
            self._process.beside_later(self._run)

    def _run(self) -> None:
        job, done = self._jobs[0]
        result = job()
        self._jobs.popleft()
        if self._jobs:
            self._process.beside_later(self._run)
        self._process.enter(done, result)

    def close(self) -> None:
        """No more jobs."""
        self._jobs.clear()
