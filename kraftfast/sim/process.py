"""One replica's process: the node itself without its loop.

What the loop does, the world does here: it calls the process when something has come. Where the
node waits for its disk (a cut beside a flush) the process is ``blocked``: the world goes on around
it, and it reads nothing until its wait is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.errors import HostUnsupported
from kraftfast.node.node import Node
from kraftfast.sim.door import Door, SimProber
from kraftfast.sim.host import SimFlusher, SimHost
from kraftfast.sim.network import Link, Message, Source
from kraftfast.sim.paged_file import SimSegmentFile
from kraftfast.sim.peer import SimPeer
from kraftfast.sim.state_machine import SimStateMachine
from kraftfast.types import ZERO_UUID, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.core.config import QuorumConfig
    from kraftfast.types import QuorumState
    from kraftfast.core.replica import Replica
    from kraftfast.log.recovery import Recovered
    from kraftfast.node.floor import CommittedFloor
    from kraftfast.sim.clients import Append
    from kraftfast.sim.machine import Machine

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ModuleNotFoundError:
    text = "the simulator needs the package greenlet -> pip install 'kraftfast[sim]'"
    raise HostUnsupported(text) from None

MAPPED_SEGMENTS_MAX = 2
RETRY_US = 1_000
REQUEST_US_MAX = 5_000_000
"""A request to a slow disk: shorter than what a healed world has to catch up in (L6)."""
HANGS_US = 2_000  # until a flush that hangs is looked at again
TEND_SHARE = 0.05  # of its turns after which a process looks after its files


class Process(Node):
    """A running replica. Everything that happens to it goes through :meth:`enter`."""

    core: Replica
    log: Any
    recovered: Recovered
    floor: CommittedFloor
    flusher: SimFlusher
    quorum_config: QuorumConfig
    links: dict[int, SimPeer]
    durability: str
    alive: bool
    paused: bool  # SIGSTOP: nothing runs until it is resumed
    closed: bool  # it has ended in order
    persisted: QuorumState | None  # what quorum-state holds
    steps: int  # of the core
    steps_in_a_row: int  # since the world last called
    away_us: int  # when it last took up what had waited for it, the world's time
    seen: tuple[int, ...]  # steps taken and ends of the log when the oracles looked last
    heard: dict[int, bytes]  # while it leads: the directory that it heard of last, by id (D19)

    def __init__(self, machine: Machine) -> None:
        """Open the directory. Raises StorageError or a subclass, and Crash."""
        self.machine, self.world, self.id = machine, machine.world, machine.id
        self.settings = machine.settings
        self.alive = True
        self.paused = self.closed = False
        self.away_us = self.steps = self.steps_in_a_row = 0
        self.heard, self.seen = {}, ()
        self.door = Door(self)
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._threads: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._waiting: greenlet | None = None
        self._maps: dict[tuple[int, str, int], SimSegmentFile] = {}
        self._tick_at_us = -1
        self._turning = self._tending = False
        self._opened_rotten = machine.rotten
        super().__init__(machine.node_config(), SimHost(self))
        self.sockets, self.prober = self.door, SimProber(self)

    @property
    def rots(self) -> bool:
        """Whether the disk has changed by itself since this process opened it."""
        return self.machine.rotten and not self._opened_rotten

    @property
    def state_machine(self) -> SimStateMachine | None:
        """What applies the log, if anything."""
        found: SimStateMachine | None = self.applier
        return found

    # --- the one door -------------------------------------------------------------------------

    def enter(self, call: Callable[..., None], *arguments: Any) -> None:
        """Do something in this process, now or when it runs again."""
        if not self.alive:
            return
        beside_the_loop = call in (self.flush_step, self._tend)
        if self.paused and beside_the_loop:
            self._threads.append((call, arguments))
        elif self.paused or (self.blocked and not beside_the_loop):
            self._inbox.append((call, arguments))
        else:
            self.steps_in_a_row = 0
            self.world.guard(self, self._in_loop, call, arguments)

    @property
    def blocked(self) -> bool:
        """Whether the loop waits for its disk; flush and nursery go on."""
        return self._waiting is not None

    def block(self) -> None:
        """Leave the loop where it is, until a flush has ended."""
        self._waiting = getcurrent()
        assert self._waiting.parent is not None, "it waits in its loop"
        self._waiting.parent.switch()

    def _in_loop(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Call this on a stack that may be left; the flush it asked for comes at its end."""
        if getcurrent().parent is not None:
            call(*arguments)
            return

        idle = self.world.idle_stacks
        (idle.pop() if idle else greenlet(_take_turns)).switch(self, call, arguments)

    def turn(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Call this, then flush what it asked to have flushed in the loop."""
        call(*arguments)
        while self.alive and not self.blocked and self.flush_inline():
            pass

    def _unblock(self) -> None:
        """A flush has ended: go on where it was waited for."""
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        waiting.switch()

    def begin(self) -> None:
        """Take up the first role; links come after."""
        self.world.trace_step(self, "start", None)
        self.start()

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        threads, self._threads = self._threads, []
        for call, arguments in threads:
            if self.alive:
                self.world.guard(self, self._in_loop, call, arguments)
        self.read_on()

    def read_on(self) -> None:
        """Look at what came while nothing was looked at."""
        self.away_us = self.world.now_us
        while self._inbox and self.alive and not self.paused and not self.blocked:
            call, arguments = self._inbox.popleft()
            self.world.guard(self, self._in_loop, call, arguments)
        for peer in list(self.links.values()):
            peer.link.read(self)

    # --- time ---------------------------------------------------------------------------------

    def schedule(self) -> None:
        """See to it that a Tick comes when the core wants one, and a turn while appends wait."""
        world = self.world
        delay_us = self.machine.clock.delay_us(self.core.deadline_ms, world.now_us)
        due_us = world.now_us + max(delay_us, 1000) + world.random.randint(0, 200)
        if self._tick_at_us < world.now_us or due_us < self._tick_at_us:
            self._tick_at_us = due_us
            world.at(due_us, self.enter, self._tick, due_us)
        if self.door.queue and not self.appends_held and not self._turning:
            self._turning = True
            self.world.later(RETRY_US, self.enter, self._turn)
        waits = self.stalled is not None or self.control is not None or self.appends_held
        waits = waits or self.snapshots.is_waiting or self.log.error is not None
        if waits or world.random.random() < TEND_SHARE:
            self.tend_soon()

    def _tick(self, due_us: int) -> None:
        if due_us != self._tick_at_us:
            return  # an earlier one took its place
        self._tick_at_us = -1
        if self.now_ms() >= self.core.deadline_ms:
            self.step(ev.Tick())
            self.flush_inline()
            self.world.oracle.flushes.check(self, True)

    def _turn(self) -> None:
        self._turning = False
        self.door.turn()

    def beside_later(self, piece: Callable[[], None]) -> None:
        """In a thread: it runs beside a blocked loop, but not in a stopped process."""
        self.world.later(self.disk_delay_us(), self._piece, piece)

    def prepare_later(self, piece: Callable[[], None]) -> None:
        """The nursery's thread, which stands still while ``nursery_hangs``."""
        self.world.later(self.disk_delay_us(), self._prepare, piece)

    def _prepare(self, piece: Callable[[], None]) -> None:
        if self.machine.nursery_hangs:
            self.world.later(HANGS_US, self._prepare, piece)
        else:
            self._piece(piece)

    def disk_delay_us(self) -> int:
        """How long the next request of its disk takes: one that began as the world healed ends."""
        drawn: int = self.world.disk_delays.draw(self.world.random)
        return min(drawn * self.machine.disk_factor, REQUEST_US_MAX)

    def _piece(self, piece: Callable[[], None]) -> None:
        if self.paused:
            self._threads.append((piece, ()))
        elif self.alive:
            self.world.guard(self, piece)

    def tend_soon(self) -> None:
        """Have files looked after."""
        if not self._tending:
            self._tending = True
            self.world.later(RETRY_US, self.enter, self._tend)

    def _tend(self) -> None:
        """What the loop does now and then; in a blocked one only the nursery gets on."""
        self._tending = False
        if self.world.random.random() < 0.3:
            self.log.retire()
        if self.blocked:
            self.log.tend(self.now_ms())
            return
        self.tend()
        self.world.early.floors(self)
        self.release_appends()

    # --- the flusher --------------------------------------------------------------------------

    def flush_later(self) -> None:
        """The flusher's thread gets on."""
        self.world.later(self.disk_delay_us(), self.enter, self.flush_step)

    def flush_step(self) -> None:
        """One step of the flusher's thread."""
        if self.machine.flushes_hang:
            self.world.later(HANGS_US, self.enter, self.flush_step)
        elif not self.flusher.step():
            self.flush_later()
        elif self.blocked:
            self.world.later(0, self._go_on)
        else:
            self.take_flush()

    def _go_on(self) -> None:
        """The flush that the loop waits for has ended: it goes on, then reads what came."""
        if self.alive and self.blocked:
            if self.paused:
                self._threads.append((self._go_on, ()))
                return
            self.world.guard(self, self._unblock)
            if self.alive and not self.blocked:
                self.read_on()

    # --- links --------------------------------------------------------------------------------

    def can_read(self) -> bool:
        """Whether rings are looked at: not while a copy waits for room."""
        return self.alive and not self.paused and not self.blocked and self.stalled is None

    def attach(self, link: Link) -> None:
        """A link stands."""
        if not link.open:
            return
        peer = SimPeer(self, link)
        old = self.links.get(peer.id)
        if old is not None:
            self.detach(old.link, False)
        self.links[peer.id] = peer
        link.attached.add(self.id)
        told = link.other(self).machine.key.directory_id if link.ring else ZERO_UUID
        self.step(ev.LinkUp(peer.id, link.ring, True, told))
        link.read(self)

    def detach(self, link: Link, ended: bool) -> None:
        """A link broke; ``ended``: its peer's process is gone."""
        id = link.other(self).id
        peer = self.links.get(id)
        waited = False
        if peer is not None and peer.link is link:
            del self.links[id]
            if self.stalled is not None and self.stalled[0] is peer:
                waited = True
                self.drop_stalled()
            self.queue(ev.LinkDown(id))
            for failure in self.world.network.failed(link):
                self.queue(failure)
        if ended and id not in self.links:
            self.queue(ev.PeerEnded(id))
        self.run_events()
        if waited:  # what other links brought meanwhile was not looked at
            self.read_on()

    def receive(self, link: Link, message: Message) -> None:
        """A message is here."""
        if message.is_request:
            self.step(ev.RequestReceived(Source(link, self, message), message.body))
            return
        peer = self.links.get(link.other(self).id)
        if peer is not None and peer.link is link:
            peer.take(message)

    def map_segment(self, machine: Machine, path: str, inode: int) -> SimSegmentFile | None:
        """Another replica's segment, mapped and held by its shared lock (D20)."""
        key = (machine.id, path, inode)
        file = self._maps.get(key)
        if file is None:
            paged = machine.disk.paged_file(path)
            if paged is None or paged.number != inode:
                return None
            file = machine.disk.open_segment(path, False)
            if not file.share():
                file.close()
                return None  # its owner is about to trim or cut it
            self._maps[key] = file
            while len(self._maps) > MAPPED_SEGMENTS_MAX:
                self._maps.pop(next(iter(self._maps))).close()
        return file

    # --- clients ------------------------------------------------------------------------------

    def offer(self, append: Append) -> None:
        """A producer puts a batch into its ring, whether this process runs or not."""
        self.door.queue.append(append)
        self.enter(self._turn)

    def resign(self) -> None:
        """An operator asks the leader to step down."""
        if self.core.role == "leader":
            self.step(ev.ResignRequested(self.core.epoch))

    def snapshot_made(self, snapshot_id: OffsetAndEpoch) -> None:
        """By the state machine: the core is told, if nothing later took its place meanwhile."""
        if snapshot_id.offset > self.log.log_start_offset:
            self.world.oracle.snapshots.created(self, snapshot_id)
        self.snapshots.created(snapshot_id)

    def settle_doubt(self) -> None:
        """Forget a phantom tail or a lost memory on disk once the core has (D10)."""
        self.uncertainty.tend(self.core)
        if not self.core.in_doubt:
            self.machine.memory_in_doubt = False

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """The graceful end: everything flushed and left as Kafka would."""
        super().close()
        self.closed = True
        self.vanish()

    def vanish(self) -> None:
        """The process is no more; what producers gave it has an unknown outcome."""
        self.alive = False
        self.door.vanish()
        for file in self._maps.values():
            file.close()
        self._maps.clear()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.throw(GreenletExit)


def _take_turns(process: Any, call: Any, arguments: Any) -> None:
    """Take turns of any process on this stack, which is far quicker than a new one for each.

    A turn that raises, or is given up where it waits, ends its stack. A stack that waits for a turn
    refers to nothing: the collector does not look into it.
    """
    while True:
        process.turn(call, arguments)
        world, process, call, arguments = process.world, None, None, None
        stack = getcurrent()
        world.idle_stacks.append(stack)
        parent, world, stack = stack.parent, None, None
        process, call, arguments = parent.switch()
