"""Several replicas over a wiring that the test controls: time, messages, disks and crashes."""

from __future__ import annotations

from collections import deque
from random import Random

from msgspec.structs import replace

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.config import QuorumConfig
from kraftfast.core.messages import FetchResponse
from kraftfast.core.replica import Replica
from kraftfast.errors import ErrorCode
from kraftfast.types import (
    ZERO_UUID,
    KRaftVersion,
    KRaftVoters,
    OffsetAndEpoch,
    ReplicaKey,
    VoterSet,
)
from tests.core.disk import GONE, Message, NoJitter, Origin, Record, endpoint_of
from tests.core.host import Host


class World:
    """All replicas, the messages between them, and the time."""

    replica_class = Replica

    def __init__(self, *voter_ids: int, random: Random | None = None) -> None:
        self.now_ms = 0
        self.ahead_ms: dict[int, int] = {}  # how far a replica's clock is ahead of that
        self.random = random or NoJitter()
        self.config = QuorumConfig()
        self.configs: dict[int, QuorumConfig] = {}
        self.voters = VoterSet.of(*voter_ids)  # static
        self.configured: dict[int, VoterSet] = {}  # where a replica's own differ
        self.answers_probes = False
        self.with_endpoints = False  # replicas know where they are reached (KIP-853)
        self.cluster_id: str | None = None
        self.directory_ids: dict[int, bytes] = {}
        self.hosts: dict[int, Host] = {}
        self.messages: deque[Message] = deque()
        self.cut: set[tuple[int, int]] = set()  # (from, to) that loses messages
        self.held_disks: set[int] = set()
        self.full_rings: set[tuple[int, int]] = set()  # (from, to)
        self.held_slices: set[int] = set()  # replicas whose slices are slow to leave
        self.snapshots: dict[OffsetAndEpoch, tuple[KRaftVersion | KRaftVoters, ...]] = {}
        self.turn_records = 1 << 30
        self.leaders: dict[int, int] = {}  # epoch -> who led it (I1)
        self.log_of_all: list[Record] = []  # what was ever committed, by offset (I8)
        self.whole = True  # all voters were started: what is committed is checked on all of them
        self.durable: bool = True  # acknowledged means on disk
        self.keeps_floors = False  # each replica's disk says what it knew to be committed (D23)
        self._values = 0
        for id in voter_ids:
            self.add(id)

    # --- set-up ---

    def add(self, id: int) -> Host:
        host = self.hosts[id] = Host(self, id)
        return host

    def key(self, id: int) -> ReplicaKey:
        return ReplicaKey(id, self.directory_ids.get(id, bytes([64 + id]) * 16))

    def config_of(self, id: int) -> QuorumConfig:
        config = self.configs.get(id, self.config)
        if self.with_endpoints and not config.endpoints:
            config = replace(config, endpoints=(endpoint_of(id),))
        return config

    def now_of(self, id: int) -> int:
        return self.now_ms + self.ahead_ms.get(id, 0)

    def new_batch(self) -> int:
        self._values += 1
        return self._values

    def new_value(self, id: int) -> str:
        self._values += 1
        return f"{self._values} by {id}"

    # --- what tests of a kind replace ---

    def describe_event(self, event: ev.Event) -> str:
        return type(event).__name__

    def log_step(self, id: int, text: str, effects: list[fx.Effect]) -> None:
        pass

    def disk_held(self, id: int) -> bool:
        return id in self.held_disks

    def ring_full(self, source: int, target: int) -> bool:
        return (source, target) in self.full_rings

    # --- what all replicas together must keep to ---

    def elected(self, epoch: int, leader_id: int) -> None:
        assert self.leaders.setdefault(epoch, leader_id) == leader_id, "I1"

    def committed(self, host: Host, start: int, end: int) -> None:
        """I5, I8: committed on a majority's disks, and the same records everywhere."""
        for offset in range(max(start, host.disk.start), end) if self.whole else ():
            record = host.disk.records[offset]
            if offset < len(self.log_of_all):
                assert self.log_of_all[offset] == record, f"I8 at {offset}"
                continue
            assert offset == len(self.log_of_all)
            assert host.replica is not None
            voters = host.replica.voters  # in force where it is committed first: at the leader
            holders = [
                each.id
                for each in self.hosts.values()
                if voters.is_voter(self.key(each.id))
                and len(each.disk.records) > offset
                and each.disk.records[offset] in (record, GONE)
                and (each.disk.flushed > offset or not self.durable)
            ]
            assert len(holders) >= voters.majority, f"I5: {offset} only on {holders}"
            self.log_of_all.append(record)

    def snapshot_made(
        self, snapshot_id: OffsetAndEpoch, content: tuple[KRaftVersion | KRaftVoters, ...]
    ) -> None:
        """I8: the same snapshot everywhere."""
        assert self.snapshots.setdefault(snapshot_id, content) == content, "I8"

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> int:
        return 100 * (1 + snapshot_id.offset % 4)

    def barrier_passed(self, barrier: tuple[int, int], offset: int) -> None:
        """ReadIndex: it covers whatever was committed when the reader asked."""
        if self.whole:
            assert barrier[1] <= offset <= len(self.log_of_all), "a stale read"

    def on_all(self, leader: Host, end_offset: int) -> None:
        """durability=all: the disk of every voter in force holds the records below this."""
        assert leader.replica is not None
        voters = leader.replica.voters
        for host in self.hosts.values():
            counts = self.whole and voters.is_voter(self.key(host.id))
            assert not counts or host.disk.flushed >= end_offset

    # --- messages ---

    def send(self, message: Message) -> None:
        if message.target in self.hosts:
            self.messages.append(message)

    def forget(self, id: int) -> None:
        """A process died: what was on its way to it or from it is lost."""
        lost = [each for each in self.messages if id in (each.source, each.target)]
        for message in lost:
            self.messages.remove(message)

    def deliver(self, message: Message) -> None:
        """Hand one message over, or tell the sender that it cannot be."""
        host = self.hosts[message.target]
        if (message.source, message.target) in self.cut:
            return
        if not host.running:
            if message.is_request and message.correlation:
                self.hosts[message.source].step(
                    ev.RequestFailed(
                        message.target, message.correlation, ErrorCode.BROKER_NOT_AVAILABLE
                    )
                )
            return
        if message.is_request:
            origin = Origin(message.source, message.correlation)
            host.step(ev.RequestReceived(origin, message.body))
            return
        if isinstance(message.body, FetchResponse) and host.stalled is not None:
            self.messages.appendleft(message)  # later answers wait behind the one that is written
            return
        host.step(ev.ResponseReceived(message.source, message.correlation, message.body, message))

    def links_up(self, streaming: bool, among: list[int] | None = None) -> None:
        """Every running replica gets a link to every other."""
        ids = [id for id in (among or self.hosts) if self.hosts[id].running]
        for id in ids:
            for other in ids:
                if other != id:
                    told = self.key(other).directory_id if streaming else ZERO_UUID
                    self.hosts[id].step(ev.LinkUp(other, streaming, True, told))
