"""The host of a simulated replica: its clock, its disk, its sockets, and threads that are events.

See ``kraftfast.node.ports``. Where the loop of a replica sleeps, its stack is left and the world
goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.errors import KraftfastError
from kraftfast.link.resolver import Resolver
from kraftfast.node.event_log import KINDS, Entry
from kraftfast.node.idle import Idle
from kraftfast.node.threads.applier import embed
from kraftfast.node.threads.background import Background
from kraftfast.node.threads.flusher import Flusher
from kraftfast.sim.machines.files import Poller, SimSignals
from kraftfast.sim.machines.local import SimDoorbell, SimLocal
from kraftfast.sim.machines.paged_file import SimSegmentFile, SteppedFlush
from kraftfast.sim.machines.preparer import SimPreparer
from kraftfast.sim.machines.tcp import SimNetwork
from kraftfast.sim.machines.threads import SimThreads
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraftfast.log.log import Log
    from kraftfast.node.node import Node
    from kraftfast.ring.spsc import RingIn
    from kraftfast.sim.machines.process import Process
    from kraftfast.types import OffsetAndEpoch


INLINE_BYTES_MAX = 512
"""Up to here records travel over rings as bytes."""


SEEN = {name for name, kind in KINDS.items() if kind.part == "core" and kind.words != "{why}"} | {
    "disk_has_room", "flush_failed", "left_out", "log_opened", "log_start_moved", "replica_stopped",
    "snapshot_loaded", "snapshot_written",
}  # fmt: skip
"""Events that a trace shows by the effects of the core, or as what a replica is told."""


MEMORY_BYTES = 30_000_000
"""What a replica says that it takes: what the simulator's process does no seed decides."""

POLLS_MAX = 1_000
"""How often a loop that is busy looks at its descriptors before it has taken what has come."""


class SimHost:
    """What :class:`~kraftfast.node.local_host.LocalHost` is in production."""

    unmap_wait_s = 0.0  # processes that map a segment keep it: it is trimmed at the next start

    def __init__(self, process: Process) -> None:
        self._process, self._machine, self._world = process, process.machine, process.world
        self._clock_us = process.machine.clock.us
        self._asked_us, self._shown_ns = -1, 0  # a turn asks eight times
        # Any: their files, sockets and threads stand in for classes of the standard library.
        self.disk: Any = process.machine.disk
        self.network: Any = SimNetwork(process.files, process.world.tcp)
        self.local: Any = SimLocal(process, process.world.local)
        self.inline_bytes_max = INLINE_BYTES_MAX if process.settings.references else 1 << 62
        self.threads: Any = SimThreads(process)

    def monotonic_ns(self) -> int:
        now_us = self._world.now_us
        if now_us != self._asked_us:
            self._asked_us, self._shown_ns = now_us, self._clock_us(now_us) * 1000
        return self._shown_ns

    def wall_ms(self) -> int:
        return self._world.now_us // 1000

    def memory_bytes(self) -> int:
        return MEMORY_BYTES

    def seed(self) -> int:
        return self._world.random.getrandbits(64)

    def sleep(self, seconds: float) -> None:
        self._process.block()

    def is_kept(self, fd: int) -> bool:
        return False

    def run_on(self, processors: Sequence[int]) -> None:
        machines = self._world.machines
        assert 0 < len(processors) <= len(machines), f"it is to run on {processors}"
        self._world.trace(f"{self._machine.id}: runs on {list(processors)}")

    def show(self, told: Entry) -> None:
        if self._process.shows is not None:
            self._process.shows(told)
        if told.event not in SEEN:
            id = self._machine.id
            self._world.trace(f"{id}: kraftfast replica {told.node_id}: {told.message}")

    def open_segment(self, path: str, inode: int) -> SimSegmentFile | None:
        return self._process.open_segment(path, inode)

    def doorbell(self) -> SimDoorbell:
        return SimDoorbell(self._process)

    def flusher(self, doorbell: Any) -> SimFlusher:
        return SimFlusher(self._process)

    def idle(self, doorbell: Any, flusher: Any) -> SimIdle:
        return SimIdle(self._process)

    def preparer(self, doorbell: Any) -> SimPreparer:
        return SimPreparer(self._process.prepare_later, self._process.ring)

    def background(self) -> Background:
        return Background(self.threads)

    def resolver(self) -> Resolver:
        return Resolver(self.network, self.threads)

    def signals(self) -> SimSignals:
        return SimSignals(self._process.files)

    def embed(self, node: Node, state_machine: str) -> None:
        embed(node, self._world.state_machine(self._process))

    def state_machine_failed(self, error: BaseException, at: OffsetAndEpoch | None) -> None:
        if isinstance(error, KraftfastError):  # which would be the replica's, and judged as such
            raise RuntimeError(f"the state machine raised {error!r}") from error
        raise error


class SimFlusher(Flusher):  # type: ignore[misc]  # compiled
    """The flusher's thread, in steps between which anything may happen."""

    # _error: of a flush that ended and was not taken yet, an errno.

    def __init__(self, process: Process) -> None:
        self._process, self._flush = process, SteppedFlush()
        self._error: int | None = None

    def ask(self, log: Log) -> None:
        self._flush.ask(log)
        self.truncations = log.truncations
        self._process.flush_later()

    def run(self, log: Log) -> None:
        self._flush.ask(log)
        self.truncations = log.truncations
        while not self.step():
            pass
        self.take(log)

    def step(self) -> bool:
        """Do the next step; True once the flush has ended."""
        if self._error is not None:
            return True
        state: int = self._flush.step(self._process.disk)
        if state <= 0:
            self._error = -state
        return state <= 0

    def take(self, log: Log) -> bool:
        if self._error is None:
            return False
        error, self._error = self._error, None
        self._flush.finish(log, error)
        return True

    def busy(self) -> bool:
        """Return whether a flush is under way, or has ended and was not taken."""
        return bool(self._flush.running)

    def has_ended(self) -> bool:
        """Return whether a flush has ended and was not taken."""
        return self._error is not None

    def close(self) -> None:
        """End the thread, after the flush under way."""
        while self.busy() and not self.step():
            pass


class SimIdle(Idle):  # type: ignore[misc]  # compiled
    """Where a loop sleeps its stack is left, until something it watches is ready."""

    def __init__(self, process: Process) -> None:
        """Watch nothing."""
        self._process = process
        self._poller = Poller(process.files, process.wake)
        self._rings: dict[RingIn, None] = {}
        self._polls = 0  # since it slept

    def watch(self, ring: RingIn) -> None:
        self._rings[ring] = None

    def unwatch(self, ring: RingIn) -> None:
        del self._rings[ring]

    def register(self, fd: int, events: int) -> None:
        self._poller.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._poller.modify(fd, events)

    def unregister(self, fd: int) -> None:
        self._poller.unregister(fd)

    def stay_awake(self, keep_us: int) -> None:
        """Do nothing: no processor halts here."""

    def keep_awake(self) -> None:
        """Do nothing: no processor halts here."""

    def poll(self) -> list[tuple[int, int]]:
        self._polls += 1
        require(self._polls < POLLS_MAX, f"L7: the loop of {self._process.id} never sleeps")
        return self._poller.ready()

    def sleep(self, timeout_ms: int) -> list[tuple[int, int]]:
        ready = self._poller.ready()
        process = self._process
        self._polls = 0
        ended = self.flush_asked and process.flusher.has_ended()
        if not ready and not ended and not process.has_offers():
            process.sleep(0 if self._has_mail() else timeout_ms)
            ready = self._poller.ready()
        self.woke_ns = process.host.monotonic_ns()
        return ready

    def _has_mail(self) -> bool:
        """Return whether there is something in a ring, which may be looked into."""
        if self.muted:
            return False
        hidden = self._process.hidden_rings()
        return any(ring.waiting() and ring not in hidden for ring in self._rings)

    def close(self) -> None:
        """Do nothing: nothing was opened."""
