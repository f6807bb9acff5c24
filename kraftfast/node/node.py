"""A replica: the core decides, and this carries it out.

``Node`` owns core, log, links and threads. Events go in through :meth:`step`; every effect has a
method here that does it, in order, and reports back with further events.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.messages import ReadBarrierResponse
from kraftfast.errors import ErrorCode, RecordTooLarge
from kraftfast.link.stats import ROLES, Stats
from kraftfast.log.recovery import open_log
from kraftfast.node.config import NodeConfig
from kraftfast.node.control_records import appended, batch_of, began_at, fetched_written
from kraftfast.node.damage import Damage
from kraftfast.node.disk_space import DiskSpace
from kraftfast.node.event_log import EventLog
from kraftfast.node.failures import Failures
from kraftfast.node.held import HELD_NS_MIN
from kraftfast.node.host import LocalHost
from kraftfast.node.metrics import Metrics
from kraftfast.node.ports import Host, Link, Preparer, Source
from kraftfast.node.requests.producer_ids import ProducerIds
from kraftfast.node.rings.ring_producers import RingProducers
from kraftfast.node.snapshots.replica_snapshots import Snapshots
from kraftfast.node.snapshots.retention import Retention
from kraftfast.node.storage.floor import CommittedFloor
from kraftfast.node.storage.own_directory import (
    core_of,
    open_own,
    state_path,
    state_to_write,
    stored_state,
)
from kraftfast.node.storage.voter_records import copied_controls
from kraftfast.node.translation.translate import API_OF
from kraftfast.node.translation.wire_values import Partition
from kraftfast.node.uncertainty import Uncertainty
from kraftfast.node.witness import is_witness
from kraftfast.types import ReplicaKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftfast.node.applier import Applier
    from kraftfast.node.tcp.prober import Prober
    from kraftfast.node.tcp.sockets import Sockets

STALL_MS_MAX = 200
"""How long a copy waits for room before the follower goes on sending Fetches instead."""
WAIT_S = 0.0001  # between two looks at a flush that is waited for


class Node:
    """One replica of a quorum, without its loop.

    Raises StorageError or a subclass if its directory cannot be used.
    """

    # config, directory, log, core: as named; the core alone decides. witness: see ``witness``.
    # host: clocks, disk and threads. _monotonic_ns: the host's. flusher: at most one flush under
    # way. idle: where the loop sleeps. ring_producers: on this host. sockets: None without
    # listeners. prober: asks new voters for their versions. links: by peer, while it stands.
    # stalled: a copy that waits for the nursery; nothing of it is taken yet. stalled_ms:
    # since when. control: a control batch of this epoch, while the log has no room.
    # persisted_epoch: in quorum-state (D5). flush_wanted: the loop flushes before it waits.
    # appends_held: until the log has room, or the core takes more (D14).

    def __init__(self, config: NodeConfig, host: Host | None = None) -> None:
        self.host = host = LocalHost() if host is None else host
        self.config, self.disk = config, host.disk
        self._monotonic_ns = host.monotonic_ns
        self.directory = open_own(self.disk, config)
        meta, options = self.directory.meta, self.directory.options
        self.cluster_id = meta.cluster_id
        self.key = ReplicaKey(config.node_id, meta.directory_id)
        self.durability, self.witness = options.durability, is_witness(options.records)
        self.partition = Partition(options.topic, options.topic_id, config.controller_listener)
        self.doorbell, self.stats = host.doorbell(), Stats(host.local)
        self.flusher = host.flusher(self.doorbell)
        self.idle = host.idle(self.doorbell, self.flusher)
        self.ring_producers, self.disk_space, self.damage = RingProducers(), DiskSpace(), Damage()
        self.links: dict[int, Link] = {}
        self.sockets: Sockets | None = None
        self.applier: Applier | None = None
        self.prober: Prober = cast(Any, None)  # the loop attaches it before the first event
        self.snapshots: Snapshots = cast(Any, None)  # until the log is open
        self.stalled: fx.WriteFetched | None = None
        self.stalled_ms = self.seen_ns = self.held_ns = 0
        self.control: fx.AppendControl | None = None
        self.appends_held = self.flush_wanted = self.stopped = self._running = False
        self.background = host.background()
        self.on_commit: list[Callable[[int], object]] = []
        self.on_role: list[Callable[[fx.RoleChanged], object]] = []
        self.on_voters: list[Callable[[], object]] = []
        self.producer_ids = ProducerIds(self, host.wall_ms)
        self.event_log = EventLog(config.node_id, host.show, host.monotonic_ns, host.wall_ms)
        self.tell, self.failures = self.event_log.tell, Failures(self)
        self._events: deque[ev.Event] = deque()
        preparer = host.preparer(self.doorbell)
        try:
            self._open(preparer)
        except BaseException:
            preparer.close()
            self._let_go()
            raise

    def _open(self, preparer: Preparer) -> None:
        config = self.config
        settings = config.log_settings(self.durability)
        self.quorum_config = config.quorum_config(self.durability, self.witness)
        self.uncertainty = Uncertainty(self.directory)
        self.recovered = open_log(self.disk, self.directory, settings, preparer)
        self.log = self.recovered.log
        self.floor = CommittedFloor(self.disk, self.directory.path, self.log)
        self.uncertainty.opened(self.recovered.phantom_tail)
        self._state_path = state_path(self.directory)
        stored = stored_state(self.disk, self.directory, self.recovered, self.floor.stored)
        self.persisted_epoch = stored.epoch if stored else 0
        self.seed = config.seed if config.seed >= 0 else self.host.seed()
        self.core = core_of(self, stored)
        self.snapshots = Snapshots(self)
        self.metrics = Metrics(self)
        self.voters = self.core.voters
        self._handlers: dict[type, Callable[[Any], object]] = {
            fx.PersistQuorumState: self._persist,
            fx.Send: self._send,
            fx.Reply: self._reply,
            fx.AnswerFetch: self._answer_fetch,
            fx.DrainAppends: self._drain,
            fx.RefuseAppends: self._refuse,
            fx.AppendControl: self._append_control,
            fx.WriteFetched: self._write_fetched,
            fx.Truncate: self._truncate,
            fx.Flush: self._flush,
            fx.AdvanceHighWatermark: self._advance,
            fx.AcknowledgedByAll: lambda it: self._commit(it.offset),
            fx.RoleChanged: self._role_changed,
            fx.VotersChanged: self._voters_changed,
            fx.LeaderMoved: lambda it: (
                self.sockets.peers.look_for_leader(it) if self.sockets else None
            ),
            fx.Probe: lambda effect: self.prober.probe(effect),
            fx.AnswerReadBarrier: self._answer_barrier,
            fx.Warn: lambda effect: self.tell("leader_refused", why=effect.text),
            fx.Stopped: lambda _effect: setattr(self, "stopped", True),
            **self.snapshots.handlers(),
        }
        if config.state_machine:
            self.host.embed(self, config.state_machine)
        cleans = self.witness or (self.applier is not None and self.applier.makes_snapshots)
        self.retention = Retention(self.snapshots, config, cleans, self.host.wall_ms)
        self.show()

    def attach(self, prober: Prober, sockets: Sockets | None) -> None:
        """Take what the loop makes."""
        self.prober, self.sockets = prober, sockets

    # --- events and effects -----------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the core's time: monotonic, less what the state machine held up (``held``)."""
        now_ns: int = self._monotonic_ns()
        if now_ns - self.seen_ns > HELD_NS_MIN and self.applier is not None:
            self.held_ns += self.applier.calls.between(self.seen_ns, now_ns)
        self.seen_ns = now_ns
        return (now_ns - self.held_ns) // 1_000_000

    def start(self) -> None:
        """Begin: the core looks at what was stored and takes its first role."""
        self._running = True
        try:
            self._carry_out(self.core.start(self.now_ms()))
        finally:
            self._running = False
        self.run_events()

    def step(self, event: ev.Event) -> None:
        """Pass one event to the core, and carry out everything that follows from it."""
        self._events.append(event)
        self.run_events()

    def queue(self, event: ev.Event) -> None:
        """Take an event behind what is being handled; ``run_events`` if nothing is."""
        self._events.append(event)

    def run_events(self) -> None:
        """Handle what was queued."""
        events = self._events
        if self._running:
            return  # further out, this loop is under way and takes them all
        self._running = True
        try:
            while events:
                self._carry_out(self._decide(events.popleft()))
        except BaseException:
            self.failures.lost = True  # sessions catch their own errors: this one ends the replica
            raise
        finally:
            self._running = False

    def _decide(self, event: ev.Event) -> list[fx.Effect]:
        return self.core.step(event, self.now_ms())

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        handlers = self._handlers
        for effect in effects:
            handlers[type(effect)](effect)

    def _assert_after(self, after: fx.After) -> None:
        """Assert what an effect relies on: else this process must not go on (D3, D5)."""
        if type(after) is fx.Persisted:
            assert self.persisted_epoch >= after.epoch, "D5: sent before quorum-state was on disk"
        elif type(after) is fx.FlushedTo:
            flushed = self.log.flushed_end_offset
            assert flushed >= after.end_offset, "D3: acknowledged before the flush"

    def _persist(self, effect: fx.PersistQuorumState) -> None:
        data = state_to_write(effect, self.voters.ids, self.key.directory_id)
        self.publish()  # others go on with what was sent while this process waits for its disk
        self.disk.rewrite_file(self._state_path, data)  # D5: durable first
        self.persisted_epoch = effect.epoch

    def _send(self, effect: fx.Send) -> None:
        if effect.after is not None:
            self._assert_after(effect.after)
        link = self.links.get(effect.peer_id)
        sent = False
        if link is not None and type(effect.request) in API_OF:
            try:
                sent = link.send_request(effect.correlation, effect.request)
            except Exception as error:
                link.failed(error)
        if not sent and effect.correlation:
            unsent = ErrorCode.BROKER_NOT_AVAILABLE
            self._events.append(ev.RequestFailed(effect.peer_id, effect.correlation, unsent))

    def _reply(self, effect: fx.Reply) -> None:
        if effect.after is not None:
            self._assert_after(effect.after)
        self._answer(effect.source, effect.source.reply, effect.response)

    def _answer(self, source: Source, answer: Callable[..., object], *args: object) -> None:
        """Call ``answer(*args)``; what it raises ends the session of ``source`` alone."""
        try:
            answer(*args)
        except Exception as error:
            source.failed(error)

    def _answer_fetch(self, effect: fx.AnswerFetch) -> None:
        response = effect.response
        if response.stream:
            effect.source.answer_stream(effect)
            return
        self._answer(effect.source, effect.source.answer_fetch, response, self.log, effect)

    # --- the log ----------------------------------------------------------------------------------

    def _drain(self, effect: fx.DrainAppends) -> None:
        log, sockets = self.log, self.sockets
        before = log.bytes_appended
        end = before + effect.max_bytes
        self.producer_ids.drain(log, effect.epoch)
        if sockets is not None and sockets.goes_first():
            sockets.drain(log, effect.epoch, end - log.bytes_appended)
        self.ring_producers.drain(log, effect.epoch, end - log.bytes_appended, self.stats)
        if sockets is not None and log.bytes_appended < end:
            sockets.drain(log, effect.epoch, end - log.bytes_appended)
        taken = log.bytes_appended - before
        (self.release_appends if taken else self.hold_appends)()
        self._events.append(ev.Appended(effect.epoch, log.end_offset, taken))

    def _refuse(self, effect: fx.RefuseAppends) -> None:
        self.ring_producers.say_not_leader(effect.leader_id, self.idle)
        if self.sockets is not None:
            self.sockets.refuse_appends(effect.error, effect.leader_id)

    def _append_control(self, effect: fx.AppendControl) -> None:
        """Append control records: an epoch's first ones, voters. They may wait for room."""
        batch = batch_of(effect, self.host.wall_ms())
        if self.log.append(batch, effect.epoch, True):
            self.control = None
            self._events.append(appended(effect, self.log.end_offset, len(batch)))
        else:
            self.control = effect

    def _write_fetched(self, effect: fx.WriteFetched) -> None:
        assert self.log.end_offset == effect.offset, "a copy goes to the log's end"
        self._copy(effect)

    def _copy(self, effect: fx.WriteFetched) -> None:
        log, began = self.log, began_at(self.log)
        try:
            whole, rejected = effect.payload.copy_records(log, effect.epoch, self.stats)
        except RecordTooLarge as error:  # for a segment of this replica; nothing of it was taken
            effect.payload.failed(error)
            whole, rejected = False, True
        if not whole and not rejected and log.end_offset == began.offset:
            if self.stalled is None:
                self.stalled_ms = self.now_ms()
            self.stalled = effect  # the nursery is behind; asked again by tend
            return
        self.stalled = None
        if rejected:
            self.event_log.records_rejected(self.core.leader_id, log)
        # A part for which there was no room is fetched again, like one that did not check.
        controls = copied_controls(log, began) if log.control_batches > began.controls else ()
        self._events.append(fetched_written(log, began, not whole, controls))

    def _truncate(self, effect: fx.Truncate) -> None:
        self.wait_for_flush()  # its end would raise `flushed` again above the cut (D2)
        self.log.truncate(effect.end_offset)
        assert self.log.truncations == effect.truncations, "D2: the core counts along"

    def _flush(self, effect: fx.Flush) -> None:
        if effect.inline:
            self.flush_wanted = True
        else:
            self.flusher.ask(self.log)
            self.idle.flush_asked = True

    def flush_inline(self) -> bool:
        """Run the flush that was asked for, in the loop: after all that had come was taken."""
        if not self.flush_wanted:
            return False
        self.flush_wanted = False
        self.publish()  # others start on it before this process waits for its disk
        self.idle.keep_awake()
        self.flusher.run(self.log)
        self.seen_ns += self.flusher.duration_ns  # the disk's time, not the state machine's (D13)
        self._flushed()
        self.run_events()
        return True

    def _flushed(self) -> None:
        flusher, end_offset = self.flusher, self.log.flushed_end_offset
        stage = "leader_flush" if self.core.role == "leader" else "follower_flush"
        self.stats.flushed(stage, flusher.began_ns, flusher.duration_ns, end_offset)
        self._events.append(ev.Flushed(end_offset, flusher.truncations))

    def take_flush(self) -> bool:
        """Report a flush of the thread that ended to the core. Raises FlushFailed, finally (D9)."""
        if not self.idle.flush_asked or not self.flusher.take(self.log):
            return False
        self.idle.flush_asked = False
        self._flushed()
        self.run_events()
        return True

    def wait_for_flush(self) -> None:
        """Wait until no flush is under way; one that is only wanted may run later (D2)."""
        while self.idle.flush_asked:
            if self.flusher.take(self.log):
                self.idle.flush_asked = False
                self._flushed()
            else:
                self.host.sleep(WAIT_S)

    def tend(self) -> None:
        """Do what is due now and then: nursery, what waits for room, metrics, retention."""
        now_ms = self.now_ms()
        self.log.tend(now_ms)
        self.producer_ids.tend(now_ms)
        if self.stalled is not None:
            self._go_on_copying(now_ms)
        if self.control is not None:
            self._append_control(self.control)
            self.run_events()
        self.damage.tend(self, now_ms)
        self.disk_space.tend(self, now_ms)
        self.metrics.tend(now_ms)
        self.snapshots.tend()
        self.retention.tend(now_ms)
        self.uncertainty.tend(self.core, now_ms)
        self.floor.tend(self.core, now_ms, self.background.ask)

    def _go_on_copying(self, now_ms: int) -> None:
        """Go on with a copy that waited for room; after long, send Fetches instead."""
        effect = self.stalled
        assert effect is not None
        self._copy(effect)
        if self.stalled is not None:
            if now_ms - self.stalled_ms < STALL_MS_MAX:
                return
            self.drop_stalled()
        self.run_events()
        effect.payload.resume()

    def drop_stalled(self) -> None:
        """Give up a copy that waits for room: its link is gone, or it has waited too long."""
        self.stalled = None
        self.step(ev.FetchedWritten(self.log.end_offset, 0, (), True))

    # --- appends that are held --------------------------------------------------------------------

    def hold_appends(self) -> None:
        """Take no batches for now: the log has no room, or the core allows no more (D14)."""
        if not self.appends_held:
            self.appends_held = True
            self.ring_producers.mute(self.idle)
        if self.log.error is not None:
            self.ring_producers.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            if self.sockets is not None:
                self.sockets.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR, -1)

    def release_appends(self) -> None:
        """Take batches of producers again."""
        if self.appends_held:
            self.appends_held = False
            self.ring_producers.unmute(self.idle)

    # --- what others see --------------------------------------------------------------------------

    def _advance(self, effect: fx.AdvanceHighWatermark) -> None:
        self.stats.put("high_watermark", effect.offset)
        if self.durability != "all":
            self._commit(effect.offset)
        for callback in self.on_commit:
            callback(effect.offset)

    def _commit(self, offset: int) -> None:
        self.ring_producers.commit(offset, self.stats)
        self.ring_producers.publish()  # producers that wait for the commit go on meanwhile
        if self.sockets is not None:
            self.sockets.commit(offset)
        self.producer_ids.commit(offset)

    def _role_changed(self, effect: fx.RoleChanged) -> None:
        self.metrics.role_changed(effect.role)
        self.event_log.role_changed(effect.role, effect.epoch, effect.leader_id, heard=False)
        self.stats.put("role", ROLES.index(str(effect.role)))
        if effect.role != "leader":
            self.ring_producers.say_not_leader(effect.leader_id, self.idle)
            if self.sockets is not None:
                self.sockets.left_leadership(effect.leader_id)
        self.control = None
        if self.stalled is not None:  # what was not written by now is no longer wanted
            payload, self.stalled = self.stalled.payload, None
            payload.resume()
        self.show()
        for callback in self.on_role:
            callback(effect)

    def _voters_changed(self, effect: fx.VotersChanged) -> None:
        self.event_log.voters_changed(self.voters.ids, effect.voters.ids, effect.kraft_version)
        self.voters = effect.voters
        for callback in self.on_voters:
            callback()

    def _answer_barrier(self, effect: fx.AnswerReadBarrier) -> None:
        answer = ReadBarrierResponse(effect.error, effect.offset, self.core.leader_id)
        self._answer(effect.source, effect.source.reply, answer)

    def show(self) -> None:
        """Store epoch, leader and the log's ends in the shared counters."""
        stats, log = self.stats, self.log
        stats.put("epoch", self.core.epoch)
        stats.put("leader_id", self.core.heard_leader_id)
        stats.put("log_start_offset", log.log_start_offset)
        self.show_ends()

    def show_ends(self) -> None:
        """Store the log's ends in the shared counters."""
        log = self.log
        ahead = log.active.prepared - log.active.position
        self.stats.ends(log.end_offset, log.flushed_end_offset, ahead)

    def publish(self) -> None:
        """Publish all messages written to rings, and ring the readers' doorbells."""
        for link in self.links.values():
            link.publish()
        self.ring_producers.publish()

    # --- end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and trim the log, as Kafka leaves it, and release the directory's lock."""
        if self.applier is not None:  # first: a segment that its reader holds is not trimmed
            self.applier.close()
        self.wait_for_flush()
        self.log.close(self.host.unmap_wait_s)
        self.floor.close(self.core)
        self.uncertainty.closed()
        self._let_go()

    def abandon(self) -> None:
        """Let go after a failed flush (D9): nothing is flushed or acknowledged from now on."""
        self.flusher.close()  # waits: a flush under way stores into the pages of segments
        self.log.abandon()
        self._let_go()

    def _let_go(self) -> None:
        for part in (self.applier, self.background, self.snapshots):
            if part is not None:
                part.close()
        for link in list(self.links.values()):
            link.close()
        self.flusher.close()
        self.idle.close()
        self.directory.close()
        self.doorbell.close()
