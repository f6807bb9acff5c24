"""One replica's process: the real core and the real log, and what carries effects out.

The counterpart of ``kraftfast.node.node`` and its loop. Where that process would wait for its disk
(a cut beside a flush) this one is ``blocked``: the world goes on around it, and it reads nothing
until its wait is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.core.messages import FetchResponse
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.errors import MalformedFrame
from kraftfast.log.directory import ReplicaDirectory
from kraftfast.log.recovery import Settings as LogSettings
from kraftfast.log.recovery import open_log
from kraftfast.node.diverging import check_cut
from kraftfast.node.floor import CommittedFloor
from kraftfast.node.own_directory import state_path, stored_state
from kraftfast.node.producer_ids import ProducerIds
from kraftfast.node.retention import Retention
from kraftfast.node.snapshots import Snapshots
from kraftfast.node.uncertainty import Uncertainty
from kraftfast.node.voter_records import voter_history
from kraftfast.sim.beside import Around
from kraftfast.sim.carrying import BLOCKED, Carrying, log_is_full
from kraftfast.sim.network import Link, Message, Source
from kraftfast.sim.paged_file import SimSegmentFile, SteppedFlush
from kraftfast.sim.preparer import SimPreparer
from kraftfast.sim.state_machine import SimStateMachine
from kraftfast.types import ZERO_UUID

if TYPE_CHECKING:
    from kraftfast.sim.clients import Append
    from kraftfast.sim.machine import Machine

MAPPED_SEGMENTS_MAX = 2
RETRY_US = 1_000
REQUEST_US_MAX = 5_000_000
"""A request to a slow disk: shorter than what a healed world has to catch up in (L6)."""
STEPS_IN_A_ROW_MAX = 2_000
STALL_MS_MAX = 200
FULL_MS_MAX = 500
TEND_SHARE = 0.05  # of its turns after which a process looks after its files


class Process(Carrying):
    """A running replica. Everything that happens to it goes through :meth:`enter`."""

    alive: bool
    paused: bool  # SIGSTOP: nothing runs until it is resumed
    blocked: bool  # waits for its disk; flush and nursery go on
    full_ms: int  # since when the disk has been full, -1 if it is not
    yielded: bool  # leadership was given up for that already
    steps: int  # of the core

    def __init__(self, machine: Machine) -> None:
        """Open the directory. Raises StorageError or a subclass, and Crash."""
        self.machine, self.world, self.id = machine, machine.world, machine.id
        self.settings = machine.settings
        self.alive = True
        self.paused = self.blocked = self.appends_held = self.stopped = False
        self.links = {}
        self.stalled = self.control = self.at_hand = None
        self.stalled_ms, self.full_ms, self.yielded = 0, -1, False
        self.queue, self.runs, self.answered = deque(), deque(), -1
        self.steps = 0
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._threads: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._events: deque[ev.Event] = deque()
        self._effects: deque[Any] = deque()
        self._maps: dict[tuple[int, str, int], SimSegmentFile] = {}
        self._tick_at_us = -1
        self._steps_in_a_row = 0
        self._turning = self._tending = False
        self.flush = SteppedFlush()
        self.preparer = SimPreparer(self.beside_later, self._tend_soon)
        self._opened_rotten = machine.rotten
        self._open()

    @property
    def rots(self) -> bool:
        """Whether the disk has changed by itself since this process opened it."""
        return self.machine.rotten and not self._opened_rotten

    def _open(self) -> None:
        machine, settings = self.machine, self.settings
        disk = self.disk = machine.disk
        self.directory = ReplicaDirectory(disk, machine.path)
        options = self.directory.options
        self.uncertainty = Uncertainty(self.directory, machine.boot_id)
        log_settings = LogSettings(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            stride_bytes=settings.stride_bytes,
            prepare_bytes=settings.prepare_bytes,
            how="mapped" if options.durability == "memory" else "written",
        )
        self.recovered = open_log(disk, self.directory, log_settings, self.preparer)
        self.log = self.recovered.log
        self.floor = CommittedFloor(disk, self.directory.path, self.log)
        self.uncertainty.opened(self.recovered.phantom_tail)
        self.durability, self.witness = options.durability, False
        self.state_path = state_path(self.directory)
        self.persisted = stored_state(disk, self.directory, self.recovered, self.floor.stored)
        self.config = settings.quorum_config(machine.endpoints)
        self.core = Replica(
            self.config,
            machine.key,
            machine.voters,
            Random(self.world.random.getrandbits(64)),
            self.now_ms(),
            self.persisted,
            EpochTrail(self.recovered.epochs),
            self.log.end_offset,
            self.log.flushed_end_offset,
            log_start_offset=self.log.log_start_offset,
            phantom_tail=self.recovered.phantom_tail,
            memory_uncertain=self.uncertainty.memory_lost,
            cluster_id=self.world.cluster_id,
            history=voter_history(disk, self.directory.log_path, self.log),
            snapshots=self.recovered.snapshots,
            floor_offset=self.floor.stored.offset,
        )
        self.around = Around(self)
        self.snapshots = Snapshots(self.around)
        machine_runs = settings.snapshots == "machine"
        self.state_machine = SimStateMachine(self) if machine_runs else None
        self.around.applier = self.state_machine
        self.names = ProducerIds(self.around, lambda: self.world.now_us // 1000)
        self.retention = Retention(self.snapshots, settings, machine_runs)

    # --- the one door -------------------------------------------------------------------------

    def enter(self, call: Callable[..., None], *arguments: Any) -> None:
        """Do something in this process, now or when it runs again."""
        if not self.alive:
            return
        beside_the_loop = call in (self.flush_step, self._tend)
        if self.paused and beside_the_loop:
            self._threads.append((call, arguments))
            return
        if self.paused or (self.blocked and not beside_the_loop):
            self._inbox.append((call, arguments))
            return
        self._steps_in_a_row = 0
        self.world.guard(self, call, *arguments)

    def now_ms(self) -> int:
        """The machine's monotonic clock."""
        return self.machine.clock.ms(self.world.now_us)

    def begin(self) -> None:
        """Take up the first role; links come after."""
        self.world.trace_step(self, "start", None)
        self._effects.extend(self._checked(self.core.start(self.now_ms())))
        self._run()

    def tell(self, event: ev.Event) -> None:
        """For the core, after what is under way."""
        self._events.append(event)

    def go_through(self) -> None:
        """Everything that was told."""
        self._run()

    def step(self, event: ev.Event) -> None:
        """One event, and everything that follows from it."""
        self._events.append(event)
        self._run()

    def _run(self) -> None:
        if self.blocked:
            return
        effects, events = self._effects, self._events
        while effects or events:
            while effects:
                if self._carry_out(effects[0]) is BLOCKED:
                    self.blocked = True
                    return
                effects.popleft()
            if events:
                event = events.popleft()
                self.world.trace_step(self, "event", event)
                if self.core.role == "candidate":
                    self.world.oracle.counts_votes(self, self.core.epoch)
                effects.extend(self._checked(self.core.step(event, self.now_ms())))

    def _checked(self, effects: list[Any]) -> list[Any]:
        self.steps += 1
        self._steps_in_a_row += 1
        assert self._steps_in_a_row < STEPS_IN_A_ROW_MAX, "L7: one event leads to steps without end"
        self.core.check_invariants()
        self.world.trace_effects(self, effects)
        return effects

    def _carry_out(self, effect: Any) -> Any:
        return getattr(self, f"_do_{type(effect).__name__}")(effect)

    def go_on(self) -> None:
        """A flush has ended: go on where it was waited for, then with what came meanwhile."""
        blocked, self.blocked = self.blocked, False
        self._run()
        if blocked:
            self.read_on()

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        threads, self._threads = self._threads, []
        for call, arguments in threads:
            if self.alive:
                self.world.guard(self, call, *arguments)
        self.read_on()

    def read_on(self) -> None:
        """Look at what came while nothing was looked at."""
        while self._inbox and self.alive and not self.paused and not self.blocked:
            call, arguments = self._inbox.popleft()
            self.world.guard(self, call, *arguments)
        for link in list(self.links.values()):
            link.read(self)

    # --- time ---------------------------------------------------------------------------------

    def schedule(self) -> None:
        """See to it that a Tick comes when the core wants one, and a turn while appends wait."""
        world = self.world
        delay_us = self.machine.clock.delay_us(self.core.deadline_ms, world.now_us)
        due_us = world.now_us + max(delay_us, 1000) + world.random.randint(0, 200)
        if self._tick_at_us < world.now_us or due_us < self._tick_at_us:
            self._tick_at_us = due_us
            world.at(due_us, self.enter, self._tick, due_us)
        if self.queue and not self.appends_held and not self._turning:
            self._turning = True
            self.world.later(RETRY_US, self.enter, self._turn)
        waits = self.stalled is not None or self.control is not None or self.appends_held
        waits = waits or self.snapshots.is_waiting
        if waits or log_is_full(self.log) or world.random.random() < TEND_SHARE:
            self._tend_soon()

    def _tick(self, due_us: int) -> None:
        if due_us != self._tick_at_us:
            return  # an earlier one took its place
        self._tick_at_us = -1
        if self.now_ms() >= self.core.deadline_ms:
            self.step(ev.Tick())
            self.world.oracle.flushes.check(self, True)

    def _turn(self) -> None:
        """The loop looks at producers."""
        self._turning = False
        if self.queue and not self.appends_held:
            before = self.log.bytes_appended
            self.step(ev.AppendsQueued())
            if self.log.bytes_appended == before and self.queue:
                self.hold_appends()  # the core takes none now (D14)

    def beside_later(self, piece: Callable[[], None]) -> None:
        """In a thread: it runs beside a blocked loop, but not in a stopped process."""
        self.world.later(self.disk_delay_us(), self._piece, piece)

    def disk_delay_us(self) -> int:
        """How long the next request of its disk takes: one that began as the world healed ends."""
        drawn: int = self.world.disk_delays.draw(self.world.random)
        return min(drawn * self.machine.disk_factor, REQUEST_US_MAX)

    def _piece(self, piece: Callable[[], None]) -> None:
        if self.paused:
            self._threads.append((piece, ()))
        elif self.alive:
            self.world.guard(self, piece)

    def _tend_soon(self) -> None:
        if not self._tending:
            self._tending = True
            self.world.later(RETRY_US, self.enter, self._tend)

    def _tend(self) -> None:
        """The nursery's progress, and what waited for it."""
        self._tending = False
        self.log.tend(self.now_ms())
        if self.world.random.random() < 0.3:
            self.log.retire()
        if self.blocked:
            return
        if self.stalled is not None:
            self._go_on_copying()
        if self.control is not None:
            self._do_AppendControl(self.control)
            self._run()
        self._mind_the_disk()
        self.snapshots.tend()
        self.retention.tend(self.now_ms())
        self.names.tend(self.now_ms())
        self.floor.tend(self.core, self.now_ms(), lambda job, done: done(job()))
        self.appends_held = False

    def _go_on_copying(self) -> None:
        """A copy that waited for room; too long, and the follower sends Fetches instead."""
        assert self.stalled is not None
        self.copy(*self.stalled)
        if self.stalled is not None:
            if self.now_ms() - self.stalled_ms < STALL_MS_MAX:
                return
            self._drop_stalled()
        self._run()
        self.read_on()

    def _drop_stalled(self) -> None:
        """Give up a copy that waits for room."""
        self.stalled = None
        self._events.append(ev.FetchedWritten(self.log.end_offset, 0, (), True))

    def _mind_the_disk(self) -> None:
        """A leader whose disk stays full lets another try, once until there is space again."""
        if not log_is_full(self.log):
            self.full_ms, self.yielded = -1, False
        elif self.full_ms < 0:
            self.full_ms = self.now_ms()
        elif self.core.role == "leader" and not self.yielded:
            refuses = self.appends_held or self.control is not None
            if refuses and self.now_ms() - self.full_ms >= FULL_MS_MAX:
                self.yielded = True
                self.world.count("leadership given up")
                self.step(ev.ResignRequested(self.core.epoch))

    # --- links --------------------------------------------------------------------------------

    def can_read(self) -> bool:
        """Whether rings are looked at: not while a copy waits for room."""
        return self.alive and not self.paused and not self.blocked and self.stalled is None

    def attach(self, link: Link) -> None:
        """A link stands."""
        if not link.open:
            return
        peer = link.other(self)
        old = self.links.get(peer.id)
        if old is not None:
            self.detach(old, False)
        self.links[peer.id] = link
        link.attached.add(self.id)
        told = peer.machine.key.directory_id if link.ring else ZERO_UUID
        self.step(ev.LinkUp(peer.id, link.ring, True, told))
        link.read(self)

    def detach(self, link: Link, ended: bool) -> None:
        """A link broke; ``ended``: its peer's process is gone."""
        peer = link.other(self)
        waited = self.stalled is not None and self.stalled[0] is link
        if self.links.get(peer.id) is link:
            del self.links[peer.id]
            if waited:
                self._drop_stalled()
            self._events.append(ev.LinkDown(peer.id))
            self._events.extend(self.world.network.failed(link))
        if ended and peer.id not in self.links:
            self._events.append(ev.PeerEnded(peer.id))
        self._run()
        if waited:  # what other links brought meanwhile was not looked at
            self.read_on()

    def receive(self, link: Link, message: Message) -> None:
        """A message is here."""
        if message.is_request:
            self.step(ev.RequestReceived(Source(link, self, message), message.body))
            return
        peer_id = link.other(self).id
        if self.links.get(peer_id) is not link:
            return
        if isinstance(message.records, bytes):
            self.around.slice_arrived(message.records)
        elif message.records is not None:
            self.at_hand = (link, message.records)
        if isinstance(message.body, FetchResponse) and message.body.diverging is not None:
            try:
                check_cut(self.core, self.log, message.body)
            except MalformedFrame:
                self.world.count("links ended by a wrong cut")
                first, second = sorted(end.id for end in link.ends)
                self.world.network.reset((first, second))
                return
        self.step(ev.ResponseReceived(peer_id, message.correlation, message.body))

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
        self.queue.append(append)
        self.enter(self._turn)

    def resign(self) -> None:
        """An operator asks the leader to step down."""
        if self.core.role == "leader":
            self.step(ev.ResignRequested(self.core.epoch))

    def settle_doubt(self) -> None:
        """Forget a phantom tail or a lost memory on disk once the core has (D10)."""
        self.uncertainty.tend(self.core)
        if not self.core.in_doubt:
            self.machine.memory_in_doubt = False

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """The graceful end: everything flushed and left as Kafka would."""
        while self.flush.running:
            state = self.flush.step(self.disk)
            if state <= 0:
                self.flush.finish(self.log, -state)
        self.log.close(0.0)  # those who map a segment keep it: it is trimmed at the next start
        self.floor.close(self.core)
        self.uncertainty.closed()
        self.snapshots.close()
        self.directory.close()
        self.vanish()

    def vanish(self) -> None:
        """The process is no more; what producers gave it has an unknown outcome."""
        self.alive = False
        for append in (*self.runs, *self.queue):
            append.lost_sight_of(self.world.now_us)
        self.runs.clear()
        self.queue.clear()
        for file in self._maps.values():
            file.close()
        self._maps.clear()
