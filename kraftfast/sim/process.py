"""One replica's process: the real core and the real log, and what carries effects out.

The counterpart of ``kraftfast.node.node``, effect by effect. Where that process would wait for
its disk (the first batch of an epoch without room, a cut beside a flush) this one is ``blocked``:
the world goes on around it, and it reads nothing until its wait is over.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.messages import FetchResponse
from kraftfast.core.quorum_state import QuorumState
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.errors import ErrorCode
from kraftfast.log import quorum_state
from kraftfast.log.directory import ReplicaDirectory
from kraftfast.log.marks import PHANTOM_TAIL
from kraftfast.log.recovery import Settings as LogSettings
from kraftfast.log.recovery import open_log
from kraftfast.record.control import LeaderChange, control_batch
from kraftfast.sim.network import Link, Message, Source
from kraftfast.sim.paged_file import SimSegmentFile, SteppedFlush, append_batch, copy_reference
from kraftfast.sim.preparer import SimPreparer
from kraftfast.types import ReplicaKey

if TYPE_CHECKING:
    from kraftfast.sim.clients import Append
    from kraftfast.sim.machine import Machine

BLOCKED = object()
INLINE_BYTES_MAX = 512  # answers up to here travel as bytes
MAPPED_SEGMENTS_MAX = 2
RETRY_US = 1_000
STEPS_IN_A_ROW_MAX = 2_000


class Records:
    """The records of a Fetch answer, as bytes.

    ``pushed``: on a stream, which goes on behind all of them; else the answer may end in a part.
    """

    def __init__(self, data: bytes, pushed: bool) -> None:
        self.data, self.pushed = data, pushed

    def copy(self, process: Process, epoch: int) -> tuple[bool, bool]:
        """Into the log: (all taken, a part rejected). Neither: no room yet."""
        log = process.log
        taken = log.copy(self.data, epoch)
        if self.pushed:
            return taken == len(self.data), log.damaged() or log.cut_off()
        return taken == len(self.data) or log.cut_off(), log.damaged()


class Reference(Records):
    """Records that stay in the leader's segment until they are copied (D20)."""

    def __init__(self, machine: Machine, segment: Any, position: int, length: int) -> None:
        super().__init__(b"", True)
        self.machine = machine
        self.path, self.inode = segment.file.path, segment.file.inode()
        self.position, self.length = position, length
        self.generation = segment.generation()

    def copy(self, process: Process, epoch: int) -> tuple[bool, bool]:
        file = process.map_segment(self.machine, self.path, self.inode)
        if file is None or self.position + self.length > file.size:
            return False, True
        log = process.log
        taken = copy_reference(log, file, self.position, self.length, epoch, self.generation)
        return taken == self.length, log.damaged() or log.cut_off()


class Process:
    """A running replica. Everything that happens to it goes through :meth:`enter`."""

    machine: Machine
    id: int
    alive: bool
    paused: bool  # SIGSTOP: nothing runs until it is resumed
    blocked: bool  # waits for its disk; flush and nursery go on
    log: Any  # the real Log
    core: Replica
    flush: SteppedFlush
    links: dict[int, Link]
    stalled: tuple[Link, Records, fx.WriteFetched] | None  # a copy that waits for the nursery
    appends_held: bool  # producers are left alone until there is room
    queue: deque[Append]  # what producers handed over and the log has not taken
    runs: deque[Append]  # taken and not committed, in offset order
    persisted: QuorumState | None  # what quorum-state holds (D5)
    steps: int  # of the core

    def __init__(self, machine: Machine) -> None:
        """Open the directory. Raises StorageError or a subclass, and Crash."""
        self.machine, self.world, self.id = machine, machine.world, machine.id
        self.settings = machine.settings
        self.alive = True
        self.paused = self.blocked = self.appends_held = self.stopped = False
        self.links = {}
        self.stalled = None
        self.queue, self.runs = deque(), deque()
        self.steps = 0
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._events: deque[ev.Event] = deque()
        self._effects: deque[Any] = deque()
        self._maps: dict[tuple[int, str, int], SimSegmentFile] = {}
        self._at_hand: tuple[Link, Records] | None = None
        self._tick_at_us = -1
        self._steps_in_a_row = 0
        self._turning = self._tending = False
        self.flush = SteppedFlush()
        self.preparer = SimPreparer(self._later, self._tend_soon)
        self._open()

    def _open(self) -> None:
        machine, settings = self.machine, self.settings
        disk = self.disk = machine.disk
        self.directory = ReplicaDirectory(disk, machine.path)
        options = self.directory.options
        lost = options.durability == "memory" and self.directory.left_in_memory(machine.boot_id)
        log_settings = LogSettings(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            stride_bytes=settings.stride_bytes,
            prepare_bytes=settings.prepare_bytes,
            how="mapped" if options.durability == "memory" else "written",
        )
        self.recovered = open_log(disk, self.directory, log_settings, self.preparer)
        self.log = self.recovered.log
        if options.durability == "memory" and not lost:
            self.directory.write_boot_id(machine.boot_id)
        self._memory_lost = lost
        self.durability = options.durability
        self._state_path = os.path.join(self.directory.log_path, quorum_state.NAME)
        self.persisted = self._stored_state()
        self.core = Replica(
            settings.quorum_config(),
            machine.key,
            machine.voters,
            Random(self.world.random.getrandbits(64)),
            self.now_ms(),
            self.persisted,
            EpochTrail(self.log.epochs),
            self.log.end_offset,
            self.log.flushed_end_offset,
            log_start_offset=self.log.log_start_offset,
            phantom_tail=self.recovered.phantom_tail,
            memory_uncertain=lost,
            cluster_id=self.world.cluster_id,
        )

    def _stored_state(self) -> QuorumState | None:
        try:
            stored = quorum_state.decode(self.disk.read_file(self._state_path), self._state_path)
        except FileNotFoundError:
            return None
        return QuorumState(stored.epoch, stored.leader_id, stored.voted)

    # --- the one door -------------------------------------------------------------------------

    def enter(self, call: Callable[..., None], *arguments: Any) -> None:
        """Do something in this process, now or when it runs again."""
        if not self.alive:
            return
        if self.paused or (self.blocked and call not in (self._flush_step, self._tend)):
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

    def unblock(self) -> None:
        """The wait is over: go on where it began, then with what came meanwhile."""
        if self.blocked:
            self.blocked = False
            self._run()
        self._read_on()

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        self._read_on()

    def _read_on(self) -> None:
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
        if (self.stalled is not None or self.appends_held or self.blocked) and not self._tending:
            self._tend_soon()

    def _tick(self, due_us: int) -> None:
        if due_us != self._tick_at_us:
            return  # an earlier one took its place
        self._tick_at_us = -1
        if self.now_ms() >= self.core.deadline_ms:
            self.step(ev.Tick())

    def _turn(self) -> None:
        """The loop looks at producers."""
        self._turning = False
        if self.queue and not self.appends_held:
            self.step(ev.AppendsQueued())

    def _later(self, piece: Callable[[], None]) -> None:
        """The nursery's thread: it runs beside a blocked loop, but not in a stopped process."""
        delay_us = self.world.disk_delays.draw(self.world.random) * self.machine.disk_factor
        self.world.later(delay_us, self._piece, piece)

    def _piece(self, piece: Callable[[], None]) -> None:
        if self.paused:
            self._inbox.append((piece, ()))
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
            if not self.flush.running:
                self.unblock()
            return
        self.appends_held = False
        if self.stalled is not None:
            self._copy(*self.stalled)
            if self.stalled is None:
                self._run()
                self._read_on()

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
        self.step(ev.LinkUp(peer.id, streaming=link.ring, pre_vote=True))
        link.read(self)

    def detach(self, link: Link, ended: bool) -> None:
        """A link broke; ``ended``: its peer's process is gone."""
        peer = link.other(self)
        if self.links.get(peer.id) is link:
            del self.links[peer.id]
            if self.stalled is not None and self.stalled[0] is link:
                self.stalled = None
                self._events.append(ev.FetchedWritten(self.log.end_offset, 0, (), True))
            self._events.append(ev.LinkDown(peer.id))
            self._events.extend(self.world.network.failed(link))
        if ended and peer.id not in self.links:
            self._events.append(ev.PeerEnded(peer.id))
        self._run()

    def receive(self, link: Link, message: Message) -> None:
        """A message is here."""
        if message.is_request:
            self.step(ev.RequestReceived(Source(link, self, message), message.body))
            return
        peer_id = link.other(self).id
        if self.links.get(peer_id) is not link:
            return
        if message.records is not None:
            self._at_hand = (link, message.records)
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

    # --- effects: what leaves -----------------------------------------------------------------

    def _assert_after(self, after: fx.After) -> None:
        if type(after) is fx.Persisted:
            assert self.persisted is not None and self.persisted.epoch >= after.epoch, "D5"
        elif type(after) is fx.FlushedTo:
            assert self.log.flushed_end_offset >= after.end_offset, "D3"

    def _do_PersistQuorumState(self, effect: fx.PersistQuorumState) -> None:
        state = quorum_state.StoredQuorumState(effect.epoch, effect.leader_id, effect.voted)
        data = quorum_state.encode(state, 0, self.machine.voters.ids)
        self.disk.replace_file(self._state_path, data)
        self.persisted = self._stored_state()
        self.world.oracle.persisted(self)

    def _do_Send(self, effect: fx.Send) -> None:
        self._assert_after(effect.after)
        self.world.oracle.request_leaves(self, effect.request)
        link = self.links.get(effect.peer_id)
        if link is None or not link.ask(self, effect.correlation, effect.request):
            if effect.correlation:
                error = ErrorCode.BROKER_NOT_AVAILABLE
                self._events.append(ev.RequestFailed(effect.peer_id, effect.correlation, error))

    def _do_Reply(self, effect: fx.Reply) -> None:
        self._assert_after(effect.after)
        self.world.oracle.response_leaves(self, effect.source, effect.response)
        effect.source.reply(effect.response)

    def _do_AnswerFetch(self, effect: fx.AnswerFetch) -> None:
        response, source = effect.response, effect.source
        self.world.oracle.response_leaves(self, source, response)
        if response.stream:
            end_offset = self._push(source, response, effect)
            if effect.read_offset >= 0:
                self.core.sent(source.peer_id, response.stream, end_offset)
            return
        records = None
        if effect.read_offset >= 0:
            bound = min(effect.max_bytes, self.settings.fetch_max_bytes)
            found = self.log.locate(effect.read_offset, bound, effect.read_end_offset)
            if found is not None:
                segment, position, length = found
                records = Records(bytes(segment.file.view(position, position + length)), False)
        self._answer(source, response, records)

    def _push(self, source: Source, response: FetchResponse, effect: fx.AnswerFetch) -> int:
        """Onto a ring; how far the records go that it took."""
        read_offset, link = effect.read_offset, source.link
        if not link.has_room(self):
            return read_offset
        records, end_offset = None, read_offset
        if 0 <= read_offset < self.log.end_offset:
            found = self.log.locate(read_offset, effect.max_bytes)
            if found is None:
                return read_offset
            segment, position, length = found
            end_offset = self.log.span(segment, position, length)[1]
            if length > INLINE_BYTES_MAX and self.settings.references and segment is self.log.active:
                records = Reference(self.machine, segment, position, length)
                response.records_bytes = length
            else:
                records = Records(bytes(segment.file.view(position, position + length)), True)
        self._answer(source, response, records)
        return end_offset

    def _answer(self, source: Source, response: FetchResponse, records: Records | None) -> None:
        if records is not None and records.data:
            records.data = self.world.nemesis.on_the_wire(source, records.data)
            response.records_bytes = len(records.data)
        source.reply(response, records)

    # --- effects: the log ---------------------------------------------------------------------

    def _do_DrainAppends(self, effect: fx.DrainAppends) -> None:
        log, before = self.log, self.log.bytes_appended
        self.world.oracle.appends(self, effect.epoch)
        while self.queue and log.bytes_appended - before < effect.max_bytes:
            append = self.queue[0]
            base_offset = log.end_offset
            if append_batch(log, append.batch, effect.epoch):
                assert not append.poisoned, "D20: a batch that does not check was taken"
                append.taken(base_offset, log.end_offset)
                self.runs.append(append)
            elif log.damaged() or log.cut_off():  # a batch that does not check is refused
                assert append.poisoned, f"a good batch was refused: {log.fault_text()}"
                append.refused(self.world.now_us)
            else:
                break
            self.queue.popleft()
        taken = log.bytes_appended - before
        if taken == 0:
            self.appends_held = True
        self._events.append(ev.Appended(effect.epoch, log.end_offset, taken))

    def _do_RefuseAppends(self, effect: fx.RefuseAppends) -> None:
        self._refuse_queue(effect.leader_id)

    def _do_AppendControl(self, effect: fx.AppendControl) -> Any:
        voters = tuple(ReplicaKey(id) for id in effect.voter_ids)
        granting = tuple(ReplicaKey(id) for id in effect.granting_voter_ids)
        record = LeaderChange(effect.leader_id, voters, granting)
        batch = control_batch([record], timestamp=self.now_ms(), leader_epoch=effect.epoch)
        self.world.oracle.appends(self, effect.epoch)
        if not self.log.append(batch, effect.epoch, True):
            return BLOCKED  # the first of an epoch waits for room
        self._events.append(ev.Appended(effect.epoch, self.log.end_offset, len(batch)))
        return None

    def _do_WriteFetched(self, effect: fx.WriteFetched) -> None:
        assert self.log.end_offset == effect.offset, "a copy goes to the log's end"
        assert self._at_hand is not None
        link, records = self._at_hand
        self._at_hand = None
        self._copy(link, records, effect)

    def _copy(self, link: Link, records: Records, effect: fx.WriteFetched) -> None:
        log = self.log
        before, began_at = log.bytes_appended, log.end_offset
        whole, rejected = records.copy(self, effect.epoch)
        if not whole and not rejected and log.end_offset == began_at:
            self.stalled = (link, records, effect)  # the nursery is behind
            return
        self.stalled = None
        if rejected:
            self.world.count("rejected copies")
        epochs = tuple(entry for entry in log.epochs if entry[1] >= began_at)
        size = log.bytes_appended - before
        self._events.append(ev.FetchedWritten(log.end_offset, size, epochs, not whole))

    def _do_Truncate(self, effect: fx.Truncate) -> Any:
        if self.flush.running:
            return BLOCKED  # its end would raise `flushed` again above the cut (D2)
        self.world.oracle.truncates(self, effect.end_offset)
        self.log.truncate(effect.end_offset)
        self.world.oracle.truncated(self)
        assert self.log.truncations == effect.truncations, "D2: the core counts along"
        return None

    def _do_Flush(self, effect: fx.Flush) -> None:
        self.flush.ask(self.log)
        if not effect.inline:
            self._flush_later()
            return
        state = 1
        while state > 0:
            state = self.flush.step(self.disk)
        self._flushed(-state)

    def _flush_later(self) -> None:
        delay_us = self.world.disk_delays.draw(self.world.random) * self.machine.disk_factor
        self.world.later(delay_us, self.enter, self._flush_step)

    def _flush_step(self) -> None:
        state = self.flush.step(self.disk)
        if state > 0:
            self._flush_later()
            return
        self._flushed(-state)
        if self.blocked:
            self.unblock()
        else:
            self._run()

    def _flushed(self, error: int) -> None:
        self.flush.finish(self.log, error)
        self._events.append(ev.Flushed(self.log.flushed_end_offset, self.flush.truncations))

    # --- effects: what others see -------------------------------------------------------------

    def _do_AdvanceHighWatermark(self, effect: fx.AdvanceHighWatermark) -> None:
        self.world.oracle.advances(self, effect.offset)
        if self.durability != "all":
            self._commit(effect.offset)

    def _do_AcknowledgedByAll(self, effect: fx.AcknowledgedByAll) -> None:
        self.world.oracle.acknowledged_by_all(self, effect.offset)
        self._commit(min(effect.offset, self.core.high_watermark))

    def _commit(self, offset: int) -> None:
        while self.runs and self.runs[0].end_offset <= offset:
            self.runs.popleft().acknowledged(self.world.now_us)

    def _do_RoleChanged(self, effect: fx.RoleChanged) -> None:
        if effect.role == "leader":
            self.world.oracle.elected(self, effect.epoch)
        else:
            self._refuse_queue(effect.leader_id)
            while self.runs:
                self.runs.popleft().lost_sight_of(self.world.now_us)
        if self.stalled is not None:  # what was not written by now is not wanted any more
            self.stalled = None
            self.world.later(1, self.enter, self._read_on)

    def _refuse_queue(self, leader_id: int) -> None:
        while self.queue:
            self.queue.popleft().refused(self.world.now_us, leader_id)

    def _do_Stopped(self, effect: fx.Stopped) -> None:
        self.stopped = True

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
        if self.core.in_doubt:
            return
        if self.recovered.phantom_tail is not None:
            self.disk.unlink(os.path.join(self.directory.path, PHANTOM_TAIL))
            self.disk.sync_directory(self.directory.path)
            self.recovered.phantom_tail = None
        if self._memory_lost:
            self.directory.write_boot_id(self.machine.boot_id)
            self._memory_lost = False

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """The graceful end: everything flushed and left as Kafka would."""
        while self.flush.running:
            state = self.flush.step(self.disk)
            if state <= 0:
                self.flush.finish(self.log, -state)
        self.log.close()
        if self.durability == "memory" and not self._memory_lost:
            self.directory.clear_boot_id()
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
