"""The host of a simulated replica: its clock, its disk, its sockets, and threads that are events.

See ``kraftfast.node.ports``. Where the loop of a replica sleeps, its stack is left and the world
goes on.
"""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kraftfast.errors import CannotListen, PeerGone
from kraftfast.link.resolver import Resolver
from kraftfast.node.beside import Beside
from kraftfast.node.flusher import Flusher
from kraftfast.node.idle import Idle
from kraftfast.sim.files import Poller, SimSignals
from kraftfast.sim.paged_file import SteppedFlush
from kraftfast.sim.preparer import SimPreparer
from kraftfast.sim.tcp import SimNetwork
from kraftfast.sim.threads import SimThreads

if TYPE_CHECKING:
    from kraftfast.sim.process import Process


class SimHost:
    """What :class:`~kraftfast.node.host.LocalHost` is in production."""

    unmap_wait_s = 0.0  # those who map a segment keep it: it is trimmed at the next start

    def __init__(self, process: Process) -> None:
        self._process, self._machine, self._world = process, process.machine, process.world
        self.disk: Any = process.machine.disk
        self.network: Any = SimNetwork(process.files, process.world.tcp)
        self.local: Any = SimLocal()
        self.threads: Any = SimThreads(process)

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
        return SimIdle(self._process)

    def preparer(self, doorbell: Any) -> SimPreparer:
        return SimPreparer(self._process.prepare_later, self._process.ring)

    def beside(self) -> Beside:
        return Beside(self.threads)

    def resolver(self) -> Resolver:
        return Resolver(self.network, self.threads)

    def signals(self) -> SimSignals:
        return SimSignals(self._process.files)

    def embed(self, node: Any, state_machine: str) -> None:
        node.applier = node.world.applier(node)
        node.on_commit.append(node.applier.committed)


class SimLocal:
    """UNIX sockets: there are none, for the world itself makes rings (``network``)."""

    def listen(self, path: str) -> socket.socket:
        raise CannotListen(f"cannot listen on {path}: the world makes rings")

    def connect(self, path: str, _timeout: float) -> socket.socket:
        raise PeerGone(f"no replica answers on {path}: the world makes rings")


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

    def has_ended(self) -> bool:
        """Whether a flush has ended and was not taken."""
        return self._error is not None

    def close(self) -> None:
        """Nothing is left to stop."""


class SimIdle(Idle):  # type: ignore[misc]  # compiled
    """Where a loop sleeps its stack is left, until something it watches is ready."""

    def __init__(self, process: Process) -> None:
        """Watch nothing."""
        self._process = process
        self._poller = Poller(process.files, process.wake)

    def register(self, fd: int, events: int) -> None:
        self._poller.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._poller.modify(fd, events)

    def unregister(self, fd: int) -> None:
        self._poller.unregister(fd)

    def stay_awake(self, keep_us: int) -> None:
        """No processor halts."""

    def keep_awake(self) -> None:
        """No processor halts."""

    def poll(self) -> list[tuple[int, int]]:
        return self._poller.ready()

    def sleep(self, timeout_ms: int) -> list[tuple[int, int]]:
        ready = self._poller.ready()
        process = self._process
        ended = self.flush_asked and process.flusher.has_ended()
        if not ready and not ended and not process.has_offers():
            process.sleep(timeout_ms)
            ready = self._poller.ready()
        return ready

    def close(self) -> None:
        """Nothing was opened."""
