"""One replica's process: node, loop and sockets themselves.

Where the loop sleeps, the world goes on; it comes back when something is ready. Where the node
waits for its disk (a cut beside a flush) the process is ``blocked``: it reads nothing until that
wait is over.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.node.loop import Loop
from kraftfast.node.node import Node
from kraftfast.sim.clients.door import Door, DoorSockets
from kraftfast.sim.machines.files import Files
from kraftfast.sim.machines.local import SimLocalPeer
from kraftfast.sim.machines.paged_file import SimSegmentFile
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.machines.sim_host import SimFlusher, SimHost
from kraftfast.sim.machines.threads import (
    SimThread,
    drop,
    getcurrent,
    greenlet,
    is_world,
    leave,
    switch_to,
)

if TYPE_CHECKING:
    from kraftfast.node.event_log import Entry
    from kraftfast.sim.clients.clients import Append
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.workers import WorkerProcess
    from kraftfast.sim.oracles.answers import Answers
    from kraftfast.types import ElectionState

REQUEST_US_MAX = 5_000_000
"""A request to a slow disk: shorter than what a healed world has to catch up in (L6)."""
HANGS_US = 2_000  # until a flush that hangs is looked at again
LATE_US = 200
"""A loop wakes so much later than it wanted, at most."""
NEVER_US = 1 << 62


class Process(Node):
    """A running replica. What the world does to it goes through :meth:`enter`."""

    host: SimHost
    flusher: SimFlusher
    alive: bool
    paused: bool  # SIGSTOP: nothing runs until it is resumed
    blocked: bool  # the loop waits for its disk; flusher and threads go on
    closed: bool  # it has ended in order
    asleep: bool  # the loop waits for something to do
    persisted: ElectionState | None  # what quorum-state holds
    steps: int  # of the core
    steps_in_a_row: int  # since the world last called
    away_us: int  # when it last took up what had waited for it, the world's time
    ticked: bool  # the core was told the time in this turn
    seen: tuple[int, ...]  # steps taken and ends of the log when the oracles looked last
    heard: dict[int, bytes]  # while it leads: the directory that it heard of last, by id (D19)
    answers: Answers  # what it was asked and has not answered
    threads: list[SimThread]
    door: Door  # of producers that the world has
    loop: Loop
    worker: WorkerProcess | None  # that a supervisor started, and that has become this replica
    shows: Callable[[Entry], None] | None  # tells its supervisor what happens

    def __init__(self, machine: Machine, worker: WorkerProcess | None = None) -> None:
        """Open the directory, and the listeners unless it is a worker, which does so itself.

        Raises StorageError or a subclass, and Crash.
        """
        self.machine, self.world, self.id = machine, machine.world, machine.id
        self.settings = machine.settings
        self.alive = True
        self.paused = self.closed = self.blocked = self.asleep = False
        self.away_us = self.steps = self.steps_in_a_row = 0
        self.heard, self.seen = {}, ()
        self.worker, self.shows = worker, None
        self.files = Files(self.world, self.id) if worker is None else worker.files
        self.pid = self.world.local.began(self) if worker is None else worker.pid
        self.door = Door(self)
        self.threads = []
        self._late: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._stack: greenlet | None = None
        self._maps: list[SimSegmentFile] = []
        self._wake_us, self._alarm_us = NEVER_US, NEVER_US
        self._news = False
        self._opened_rotten = machine.rotten
        super().__init__(machine.node_config(), SimHost(self))
        if worker is None:
            self._open_doors()

    def _open_doors(self) -> None:
        self.loop = Loop(self, DoorSockets, SimLocalPeer)
        assert self.loop.sockets is not None
        self.loop.door.open()
        self.loop.sockets.open()

    @property
    def rots(self) -> bool:
        """Whether the disk has changed by itself since this process opened it."""
        return self.machine.rotten and not self._opened_rotten

    # --- the loop -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Run the loop until it sleeps for the first time."""
        self.world.trace_step(self, "start", None)
        self._stack = greenlet(self.loop.run)
        switch_to(self._stack)

    def runs_in(self, stack: greenlet) -> None:
        """Note in which stack its loop is about to run."""
        self.world.trace_step(self, "start", None)
        self._stack = stack

    def enter(self, call: Callable[..., None], *arguments: Any) -> None:
        """Do something in the loop, now or when it runs again."""
        if not self.alive:
            return
        if getcurrent() is self._stack:
            call(*arguments)
            return
        told, self._news = self._news, True  # it may not run while a lock of it is held
        self.background.tell(lambda: call(*arguments))
        self._news = told
        if is_world():
            self.run_on()
        else:
            self.wake()

    def sleep(self, timeout_ms: int) -> None:
        """Leave the loop until something wakes it, or its time has passed; -1: for ever."""
        world, self._wake_us = self.world, NEVER_US
        if timeout_ms >= 0:
            shown_ms = self.machine.clock.ms(world.now_us) + timeout_ms
            delay_us = max(1, self.machine.clock.delay_us(shown_ms, world.now_us))
            self._wake_us = world.now_us + delay_us + world.random.randint(0, LATE_US)
            self._set_alarm()
        self.asleep = True
        leave()
        self.asleep = False

    def _set_alarm(self) -> None:
        if self._wake_us < self._alarm_us:
            self._alarm_us = self._wake_us
            self.world.at(self._wake_us, self._alarm)

    def _alarm(self) -> None:
        """Wake it, unless it has slept again since this was set."""
        if not self.alive or self.world.now_us < self._alarm_us:
            return  # an earlier one took its place
        self._alarm_us = NEVER_US
        if self._wake_us <= self.world.now_us:
            self.run_on()
        else:
            self._set_alarm()

    def wake(self) -> None:
        """There is something to do."""
        if self.asleep and not self._news:
            if is_world():
                self.run_on()
            else:
                self._news = True
                self.world.later(self.world.random.randint(1, LATE_US), self._heard)

    def ring(self) -> None:
        """Ring the doorbell of the loop."""
        self.wake()

    def _heard(self) -> None:
        self._news = False
        self.run_on()

    def run_on(self) -> None:
        """Let the loop go on, if it sleeps and is not stopped."""
        if self.alive and self.asleep and not self.paused:
            assert self._stack is not None
            self.steps_in_a_row = 0
            self.world.guard(self, switch_to, self._stack)

    def block(self) -> None:
        """Leave the loop where it is, until a flush has ended."""
        assert getcurrent() is self._stack, "it waits in its loop"
        self.blocked = True
        leave()
        self.blocked = False

    def pause(self, delay_us: int) -> None:
        """Leave the loop where it is for a while."""
        self.world.later(delay_us, self._go_on)
        self.block()

    def _go_on(self) -> None:
        """Let the loop go on: what it waits for has come."""
        if self.alive and self.blocked:
            if self.paused:
                self._late.append((self._go_on, ()))
                return
            self.steps_in_a_row = 0
            self.world.guard(self, switch_to, self._stack)
            if self.alive and not self.blocked:
                self.away_us = self.world.now_us

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        late, self._late = self._late, []
        for call, arguments in late:
            call(*arguments)
        self.away_us = self.world.now_us
        self.run_on()

    # --- threads ------------------------------------------------------------------------------

    def beside_later(self, piece: Callable[[], None], delay_us: int) -> None:
        """Do a piece of a thread's work: beside a blocked loop, but not in a stopped process."""
        self.world.later(delay_us, self._piece, piece)

    def prepare_later(self, piece: Callable[[], None]) -> None:
        """Run the nursery's thread, which stands still while ``nursery_hangs``."""
        self.world.later(self.disk_delay_us(), self._prepare, piece)

    def _prepare(self, piece: Callable[[], None]) -> None:
        if self.machine.nursery_hangs:
            self.world.later(HANGS_US, self._prepare, piece)
        else:
            self._piece(piece)

    def thread_later(self, thread: SimThread, delay_us: int) -> None:
        """Let a thread go on after a while."""
        self.beside_later(thread.go_on, delay_us)

    def disk_delay_us(self) -> int:
        """Return how long the next disk request takes: one begun as the world healed ends."""
        drawn: int = self.world.disk_delays.draw(self.world.random)
        return min(drawn * self.machine.disk_factor, REQUEST_US_MAX)

    def _piece(self, piece: Callable[[], None]) -> None:
        if self.paused:
            self._late.append((self._piece, (piece,)))
        elif self.alive and self.machine.process is self:  # else its start has failed
            self.world.guard(self, piece)

    # --- the flusher --------------------------------------------------------------------------

    def flush_later(self) -> None:
        """Let the flusher's thread get on."""
        self.world.later(self.disk_delay_us(), self._piece, self.flush_step)

    def flush_step(self) -> None:
        """Take one step of the flusher's thread; its end is news for the loop."""
        if self.machine.flushes_hang:
            self.world.later(HANGS_US, self._piece, self.flush_step)
        elif not self.flusher.step():
            self.flush_later()
        elif self.blocked:
            self.world.later(0, self._go_on)
        else:
            self.world.later(0, self.run_on)

    # --- rings --------------------------------------------------------------------------------

    def hidden_rings(self) -> set[Any]:
        """Return the rings of those that this process is cut off from."""
        network = self.world.network
        peers = self.loop.ring_peers.peers if network.cut else ()
        return {each.link.inbox for each in peers if network.is_cut(each.id, self.id)}

    def open_segment(self, path: str, inode: int) -> SimSegmentFile | None:
        """Return another replica's segment, held until this process ends or closes it (D20)."""
        for machine in self.world.machines:
            if path.startswith(f"{machine.path}/"):
                paged = machine.disk.paged_file(path)
                if paged is None or paged.number != inode:
                    return None
                file = machine.disk.open_segment(path, False)
                self._maps.append(file)
                return file
        return None

    # --- clients ------------------------------------------------------------------------------

    def offer(self, append: Append) -> None:
        """Put a producer's batch into its ring, whether this process runs or not."""
        self.door.queue.append(append)
        self.wake()

    def has_offers(self) -> bool:
        """Return whether producers wait for it."""
        return bool(self.door.queue) and not self.appends_held

    def resign(self) -> None:
        """Ask the leader to step down, as an operator does."""
        if self.core.role == "leader":
            self.step(ev.ResignRequested(self.core.epoch))

    def settle_doubt(self) -> None:
        """Forget a phantom tail or a lost memory on disk once the core has (D10)."""
        self.uncertainty.tend(self.core, self.now_ms())
        if not self.core.in_doubt:
            self.machine.memory_in_doubt = False

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """End gracefully: everything flushed and left as Kafka would."""
        super().close()
        self.closed = True
        self.vanish(power=False)

    def abandon(self) -> None:
        """Let go after a failed flush (D9); the oracle looks at the log once more before that."""
        self.world.oracle.crashed(self, False)
        super().abandon()

    def vanish(self, power: bool) -> None:
        """End the process; what producers gave it has an unknown outcome."""
        self.alive = False
        self.door.vanish()
        if self.worker is None:
            self.world.local.ended(self.pid)
            self.files.vanish(power)
        elif not self.closed:  # else the worker ends by itself
            self.worker.leave(-signal.SIGKILL)
        for file in self._maps:
            file.close()
        self._maps.clear()
        with self.machine.disk.out_of_reach():
            for stack in (self._stack, *self.threads):
                with suppress(Crash):
                    drop(stack)
