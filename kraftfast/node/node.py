"""A replica as one process: what its executor acts on.

``Node`` owns core, log, links and threads. Events go in through :meth:`step`; what becomes of an
effect says ``executor.py``, and each of its steps is done here: on files, rings and sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.messages import ReadBarrierResponse
from kraftfast.errors import ErrorCode
from kraftfast.link.stats import ROLES, Stats
from kraftfast.log.recovery import open_log
from kraftfast.node.control_records import appended, batch_of, began_at, fetched_written
from kraftfast.node.damage import Damage
from kraftfast.node.disk_space import DiskSpace
from kraftfast.node.event_log import EventLog
from kraftfast.node.executor import Executor
from kraftfast.node.failures import Failures
from kraftfast.node.local_host import LocalHost
from kraftfast.node.metrics import Metrics
from kraftfast.node.node_config import NodeConfig
from kraftfast.node.ports import Host, Link, Preparer, Source
from kraftfast.node.requests.producer_ids import ProducerIds
from kraftfast.node.rings.ring_producers import RingProducers
from kraftfast.node.snapshots.replica_snapshots import Snapshots
from kraftfast.node.snapshots.retention import Retention
from kraftfast.node.storage.floor_keeper import CommittedFloor
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

    from kraftfast.core.messages import Response
    from kraftfast.node.tcp.prober import Prober
    from kraftfast.node.tcp.sockets import Sockets
    from kraftfast.node.threads.applier import Applier

HELD_NS_MIN = 20_000_000
"""A shorter pause of the loop is not looked at (``threads/held.py``)."""
WAIT_S = 0.0001  # between two looks at a flush that is waited for


class Node(Executor):
    """One replica of a quorum, without its loop.

    Raises StorageError or a subclass if its directory cannot be used.
    """

    # config, directory, log, core: as named; the core alone decides. witness: see ``witness``.
    # host: clocks, disk and threads. _monotonic_ns: the host's. flusher: at most one flush under
    # way. idle: where the loop sleeps. ring_producers: on this host. sockets: None without
    # listeners. prober: asks new voters for their versions. links: by peer, while it stands.
    # appends_held: until the log has room, or the core takes more (D14).

    def __init__(self, config: NodeConfig, host: Host | None = None) -> None:
        super().__init__()
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
        self.seen_ns = self.held_ns = 0
        self.appends_held = False
        self.background = host.background()
        self.on_commit: list[Callable[[int], object]] = []
        self.on_role: list[Callable[[fx.RoleChanged], object]] = []
        self.on_voters: list[Callable[[], object]] = []
        self.producer_ids = ProducerIds(self, host.wall_ms)
        self.event_log = EventLog(config.node_id, host.show, host.monotonic_ns, host.wall_ms)
        self.tell, self.failures = self.event_log.tell, Failures(self)
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
        if config.state_machine:
            self.host.embed(self, config.state_machine)
        cleans = self.witness or (self.applier is not None and self.applier.makes_snapshots)
        self.retention = Retention(self.snapshots, config, cleans, self.host.wall_ms)
        self.show()

    def attach(self, prober: Prober, sockets: Sockets | None) -> None:
        """Take what the loop makes."""
        self.prober, self.sockets = prober, sockets

    def attach_applier(self, applier: Applier) -> None:
        """Keep the thread that runs the state machine, and report commits to it."""
        self.applier = applier
        self.on_commit.append(applier.committed)

    # --- events and effects -----------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the core's time: monotonic, less what the state machine held up (``held``)."""
        now_ns: int = self._monotonic_ns()
        if now_ns - self.seen_ns > HELD_NS_MIN and self.applier is not None:
            self.held_ns += self.applier.calls.between(self.seen_ns, now_ns)
        self.seen_ns = now_ns
        return (now_ns - self.held_ns) // 1_000_000

    def woke(self, woke_ns: int) -> None:
        """Record when the loop's last wait ended: that time counts, what it waited after may not.

        L1: never back, or what was held before counts twice.
        """
        self.seen_ns = max(self.seen_ns, woke_ns)

    def start(self) -> None:
        """Begin: the core looks at what was stored and takes its first role."""
        self.begin_with(self.core.start(self.now_ms()))

    def _decide(self, event: ev.Event) -> list[fx.Effect]:
        return self.core.step(event, self.now_ms())

    def write_quorum_state(self, effect: fx.PersistQuorumState) -> None:
        data = state_to_write(effect, self.voters.ids, self.key.directory_id)
        self.publish()  # others go on with what was sent while this process waits for its disk
        self.disk.rewrite_file(self._state_path, data)

    def link_for(self, effect: fx.Send) -> Link | None:
        return self.links.get(effect.peer_id) if type(effect.request) in API_OF else None

    def reply_to(self, source: Source, response: Response) -> None:
        self._answer(source, source.reply, response)

    def _answer(self, source: Source, answer: Callable[..., object], *args: object) -> None:
        """Call ``answer(*args)``; what it raises ends the session of ``source`` alone."""
        try:
            answer(*args)
        except Exception as error:
            source.failed(error)

    def answer_fetch(self, effect: fx.AnswerFetch) -> None:
        response = effect.response
        if response.stream:
            effect.source.answer_stream(effect)
            return
        self._answer(effect.source, effect.source.answer_fetch, response, self.log, effect)

    # --- the log ----------------------------------------------------------------------------------

    def end_offset(self) -> int:
        end_offset: int = self.log.end_offset
        return end_offset

    def flushed_end_offset(self) -> int:
        end_offset: int = self.log.flushed_end_offset
        return end_offset

    def take_appends(self, effect: fx.DrainAppends) -> int:
        log, sockets = self.log, self.sockets
        before = log.bytes_appended
        end = before + effect.max_bytes
        self.producer_ids.drain(log, effect.epoch)
        if sockets is not None and sockets.goes_first():
            sockets.drain(log, effect.epoch, end - log.bytes_appended)
        self.ring_producers.drain(log, effect.epoch, end - log.bytes_appended, self.stats)
        if sockets is not None and log.bytes_appended < end:
            sockets.drain(log, effect.epoch, end - log.bytes_appended)
        taken: int = log.bytes_appended - before
        (self.release_appends if taken else self.hold_appends)()
        return taken

    def refuse_appends(self, effect: fx.RefuseAppends) -> None:
        self.ring_producers.say_not_leader(effect.leader_id, self.idle)
        if self.sockets is not None:
            self.sockets.refuse_appends(effect.error, effect.leader_id)

    def append_control(self, effect: fx.AppendControl) -> ev.Appended | None:
        batch = batch_of(effect, self.host.wall_ms())
        if not self.log.append(batch, effect.epoch, True):
            return None
        return appended(effect, self.log.end_offset, len(batch))

    def copy_fetched(self, effect: fx.WriteFetched) -> ev.FetchedWritten | None:
        log, began = self.log, began_at(self.log)
        whole, rejected = effect.payload.copy_records(log, effect.epoch, self.stats)
        if not whole and not rejected and log.end_offset == began.offset:
            return None  # the nursery is behind
        if rejected:
            self.event_log.records_rejected(self.core.leader_id, log)
        # A part for which there was no room is fetched again, like one that did not check.
        controls = copied_controls(log, began) if log.control_batches > began.controls else ()
        return fetched_written(log, began, not whole, controls)

    def truncate_log(self, end_offset: int) -> int:
        self.log.truncate(end_offset)
        truncations: int = self.log.truncations
        return truncations

    def begin_flush(self) -> None:
        self.flusher.ask(self.log)
        self.idle.flush_began()

    def run_flush(self) -> None:
        self.publish()  # others start on it before this process waits for its disk
        self.idle.keep_awake()
        self.flusher.run(self.log)
        self.seen_ns += self.flusher.duration_ns  # the disk's time, not the state machine's (D13)
        self._flushed()

    def _flushed(self) -> None:
        flusher, end_offset = self.flusher, self.log.flushed_end_offset
        stage = "leader_flush" if self.core.role == "leader" else "follower_flush"
        self.stats.flushed(stage, flusher.began_ns, flusher.duration_ns, end_offset)
        self._events.append(ev.Flushed(end_offset, flusher.truncations))

    def take_flush(self) -> bool:
        """Report a flush of the thread that ended to the core. Raises FlushFailed, finally (D9)."""
        if not self.idle.flush_asked or not self.flusher.take(self.log):
            return False
        self.idle.flush_ended()
        self._flushed()
        self.run_events()
        return True

    def wait_for_flush(self) -> None:
        while self.idle.flush_asked:
            if self.flusher.take(self.log):
                self.idle.flush_ended()
                self._flushed()
            else:
                self.host.sleep(WAIT_S)

    def tend(self) -> None:
        """Do what is due now and then: nursery, what waits for room, metrics, retention."""
        now_ms = self.now_ms()
        self.log.tend(now_ms)
        self.producer_ids.tend(now_ms)
        self.go_on_with_waiting()
        self.damage.tend(self, now_ms)
        self.disk_space.tend(self, now_ms)
        self.metrics.tend(now_ms)
        self.snapshots.tend()
        self.retention.tend(now_ms)
        self.uncertainty.tend(self.core, now_ms)
        self.floor.tend(self.core, now_ms, self.background.ask)

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

    def advance_high_watermark(self, effect: fx.AdvanceHighWatermark) -> None:
        self.stats.put("high_watermark", effect.offset)
        if self.durability != "all":
            self._commit(effect.offset)
        for callback in self.on_commit:
            callback(effect.offset)

    def acknowledged_by_all(self, effect: fx.AcknowledgedByAll) -> None:
        self._commit(effect.offset)

    def _commit(self, offset: int) -> None:
        self.ring_producers.commit(offset, self.stats)
        self.ring_producers.publish()  # producers that wait for the commit go on meanwhile
        if self.sockets is not None:
            self.sockets.commit(offset)
        self.producer_ids.commit(offset)

    def role_changed(self, effect: fx.RoleChanged) -> None:
        self.metrics.role_changed(effect.role)
        self.event_log.role_changed(effect.role, effect.epoch, effect.leader_id, heard=False)
        self.stats.put("role", ROLES.index(str(effect.role)))
        if effect.role != "leader":
            self.ring_producers.say_not_leader(effect.leader_id, self.idle)
            if self.sockets is not None:
                self.sockets.left_leadership(effect.leader_id)
        self.show()
        for callback in self.on_role:
            callback(effect)

    def voters_changed(self, effect: fx.VotersChanged) -> None:
        self.event_log.voters_changed(self.voters.ids, effect.voters.ids, effect.kraft_version)
        self.voters = effect.voters
        for callback in self.on_voters:
            callback()

    def leader_moved(self, effect: fx.LeaderMoved) -> None:
        if self.sockets is not None:
            self.sockets.peers.look_for_leader(effect)

    def probe(self, effect: fx.Probe) -> None:
        self.prober.probe(effect)

    def warn(self, effect: fx.Warn) -> None:
        self.tell("leader_refused", why=effect.text)

    def answer_read_barrier(self, effect: fx.AnswerReadBarrier) -> None:
        answer = ReadBarrierResponse(effect.error, effect.offset, self.core.leader_id)
        self._answer(effect.source, effect.source.reply, answer)

    # --- snapshots --------------------------------------------------------------------------------

    def answer_slice(self, effect: fx.AnswerSlice) -> None:
        self.snapshots.answer(effect)

    def write_slice(self, effect: fx.WriteSlice) -> None:
        self.snapshots.write(effect)

    def install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        self.snapshots.install(effect)

    def delete_before(self, effect: fx.DeleteBefore) -> None:
        self.snapshots.delete_before(effect)

    # --- what is shown ----------------------------------------------------------------------------

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
