"""A stranger that also asks for what must be refused, over TCP, and hangs up where it likes.

Batches that no producer may send, requests of replicas about other logs, frames of no version, and
operator's requests that change nothing. Whatever it sends, only its own connection may end.
"""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.client.connection import Connection
from kraftfast.errors import ErrorCode, KraftfastError, UnencodableMessage, UnsupportedVersion
from kraftfast.limits import BATCH_BYTES_MAX
from kraftfast.record import pure
from kraftfast.record.checksum import crc32c
from kraftfast.sim.clients.clients import ACKNOWLEDGED, UNKNOWN, Told
from kraftfast.sim.clients.remote_clients import CALL_S
from kraftfast.sim.require import expect
from kraftfast.sim.strangers.strangers import ASKED, ELSEWHERE, Stranger
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import frame
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import KRAFT_VERSION

if TYPE_CHECKING:
    from kraftfast.sim.world import World

ATTRIBUTES_AT, MAX_TIMESTAMP_AT, PRODUCER_AT, CRC_AT, CRC_FROM = 21, 35, 43, 17, 21
"""In the header of a batch."""
LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON = 8, 16, 64
CODECS = (1, 2, 3, 4, 5, 7)
NOBODYS = (5, (1 << 40) + 7)
"""Producer ids that no replica has given out."""
PRODUCER_BYTES = 14
"""Of a batch: its producer's id and epoch, and its first sequence."""
NO_PRODUCER = struct.pack(">q", -1)
SOFTWARE = ("stranger", "apache-kafka-java")
STRANGER = 99
"""No replica has this id."""
REFUSED_TARGETS: tuple[list[int], ...] = ([], [1, 1], [STRANGER], [-1], [1, 2, 3, STRANGER])
LARGE_SHARE = 0.02


class Bold(Connection):
    """Its connection. ``CLIENT_ID``: what it says it is."""


class BoldStranger(Stranger):
    """See the module. ``odd``: its chance for what the other stranger does not do."""

    def __init__(self, world: World, id: int) -> None:
        self.odd = Random(world.seed * 2 + 1 + (1 << 56))
        self._said: set[bytes] = set()
        super().__init__(world, id)

    def act(self) -> None:
        machine = self.odd.choice(self.world.machines)
        place, until = machine.endpoints[0], self.host.monotonic() + CALL_S
        kind = type("Named", (Bold,), {"CLIENT_ID": self.odd.choice(SOFTWARE)})
        connection = kind((place.host, place.port), until, self.host)
        try:
            for _ in range(self.odd.randint(1, 30)):
                if not self.running:
                    return
                what = self.odd.choice(BOLD)
                getattr(self, f"_{what}")(connection)
                self.world.count(f"asked by bold strangers: {what}")
                self.host.sleep(self.odd.random() * 0.02)
        finally:
            if self.alive:
                connection.close()

    def _say(self, connection: Connection, api: ApiKey, body: Any) -> None:
        """Ask, and do not wait for the answer; nothing where the version has no such field."""
        version = self.odd.randint(wire.SERVED[api].first, connection.version_of(api))
        number = connection.next_correlation_id()
        try:
            data = frame.encode_request(api, version, number, "bold", body)
        except (UnsupportedVersion, UnencodableMessage):
            return
        connection.send(data, self.host.monotonic() + CALL_S)

    def _ask_odd(self, connection: Connection, api: ApiKey, body: Any) -> Any:
        """Ask in some version that can say it; None if there is none among three."""
        for _ in range(3):
            try:
                return self._ask(connection, api, body)
            except UnsupportedVersion:
                continue
        return None

    # --- producers --------------------------------------------------------------------------------

    def _odd_batch(self, value: bytes) -> bytes:
        """Return a batch that is whole, with something in its header that may be refused."""
        odd = self.odd
        batch = bytearray(pure.encode_batch(pure.values_to_records([value], 0, 7_000)))
        what = odd.choice(("attributes", "codec", "timestamp", "producer", "two", "length", "none"))
        if what == "attributes":
            set_at(batch, ">h", ATTRIBUTES_AT, odd.choice(
                (LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON, 32, 128)))  # fmt: skip
        elif what == "codec":
            set_at(batch, ">h", ATTRIBUTES_AT, odd.choice(CODECS))
        elif what == "timestamp":
            set_at(batch, ">q", MAX_TIMESTAMP_AT, odd.choice((6_000, 8_000, -1)))
        elif what == "producer":
            set_at(batch, ">qhi", PRODUCER_AT, odd.choice(NOBODYS), odd.choice((0, 1)),
                   odd.choice((0, 3)))  # fmt: skip
        elif what == "two":
            batch = batch * 2
        elif what == "length":
            batch = batch[: odd.randrange(len(batch))]
        return bytes(batch)

    def _produce_odd(self, connection: Connection) -> None:
        odd, world, kind = self.odd, self.world, wire.ProduceRequest
        self._number += 1
        large = odd.random() < LARGE_SHARE
        value = b"t%d:%d:" % (self.id, self._number) + bytes(BATCH_BYTES_MAX * large)
        told = Told(world, value, (-self.id, self._number))
        told.outcome = UNKNOWN
        world.history.append(told)
        acks = odd.choice((-1, -1, -1, 0, 1))
        data = b"x" * 70 + value if large else self._odd_batch(value)
        again = self._is_said_again(data)
        parts = [kind.PartitionData(self._partition(), data)] * odd.choice((1, 1, 1, 1, 2))
        topics = [kind.TopicData(self._topic(), METADATA_TOPIC_ID, parts)]
        body = kind(acks=acks, timeout_ms=odd.choice((0, 5, 1_000)),
                    topic_data=topics * odd.choice((1, 1, 1, 1, 0, 2)))  # fmt: skip
        if acks == 0:
            self._say(connection, ApiKey.PRODUCE, body)
            return
        answer = self._ask(connection, ApiKey.PRODUCE, body)
        for topic in answer.responses if not again else ():
            for part in topic.partition_responses:
                if acks == -1 and part.error_code == ErrorCode.NONE and part.base_offset >= 0:
                    told.base_offset, told.end_offset = part.base_offset, part.base_offset + 1
                    told.outcome = ACKNOWLEDGED
                    world.note_acknowledged(told)

    def _is_said_again(self, batch: bytes) -> bool:
        """Return whether a batch before had this one's producer, epoch and sequence.

        Then this one is a duplicate to the leader, which answers where that one stands.
        """
        producer = batch[PRODUCER_AT : PRODUCER_AT + PRODUCER_BYTES]
        if len(producer) < PRODUCER_BYTES or producer[:8] == NO_PRODUCER:
            return False
        again = producer in self._said
        self._said.add(producer)
        return again

    def _name(self, connection: Connection) -> None:
        """Take a name of its own, or use it again, with its epoch or with another one."""
        kind, odd = wire.InitProducerIdRequest, self.odd
        name = odd.choice((f"t{self.id}", f"t{self.id}", f"never-{odd.random()}", "x" * 2_000))
        known = getattr(self, "_granted", (-1, -1))
        expected = odd.choice(((-1, -1), known, (known[0], known[1] - 1), (known[0], 0), (3, 0)))
        body = kind(name, odd.choice((0, 60_000)), max(-1, expected[0]), max(-1, expected[1]))
        body.resumes = odd.random() < 0.3
        answer = self._ask_odd(connection, ApiKey.INIT_PRODUCER_ID, body)
        if answer is not None and answer.error_code == ErrorCode.NONE and name[0] == "t":
            self._granted = answer.producer_id, answer.producer_epoch

    # --- operators --------------------------------------------------------------------------------

    def _features(self, connection: Connection) -> None:
        """Only look whether an upgrade can be done, or ask for what is none."""
        kind, odd = wire.UpdateFeaturesRequest, self.odd
        update = kind.FeatureUpdate(odd.choice((KRAFT_VERSION, KRAFT_VERSION, ELSEWHERE)),
                                    odd.choice((0, 1, 1, 2, 99)))  # fmt: skip
        if odd.random() < 0.2:
            update.upgrade_type = 2
        body = kind(feature_updates=[update] * odd.choice((1, 1, 1, 0, 2)), validate_only=True)
        self._ask_odd(connection, ApiKey.UPDATE_FEATURES, body)

    def _reassign(self, connection: Connection) -> None:
        kind, odd = wire.AlterPartitionReassignmentsRequest, self.odd
        part = kind.Partition(self._partition(), odd.choice(REFUSED_TARGETS))
        topics = [kind.Topic(self._topic(), [part])]
        body = kind(timeout_ms=200, topics=topics)
        if odd.random() < 0.3:
            body.allow_replication_factor_change = False
        if odd.random() < 0.3:
            body.transfer_to = 1  # not both
        self._ask_odd(connection, ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
        listed = wire.ListPartitionReassignmentsRequest
        found = listed(topics=[listed.Topic(self._topic(), [self._partition()])])
        self._ask(connection, ApiKey.LIST_PARTITION_REASSIGNMENTS, found)

    def _barrier(self, connection: Connection) -> None:
        """Ask for a read barrier, of this quorum or of another one."""
        kind, floor = wire.DescribeQuorumRequest, self.world.oracle.committed_end
        own = self.odd.choice((None, self.world.cluster_id, "another"))
        body = kind(read_barrier=kind.ReadBarrier(self.odd.choice((0, 50, 1_000)), False, own))
        answer = self._ask_odd(connection, ApiKey.DESCRIBE_QUORUM, body)
        if answer is not None and answer.error_code == ErrorCode.NONE and own != "another":
            said = answer.barrier_offset
            expect(said >= floor, f"a read barrier says {said}, {floor} was committed")

    def _add_nobody(self, connection: Connection) -> None:
        """Have a replica added, moved or removed that there is not: no set changes by that."""
        odd, own = self.odd, self.odd.choice((None, self.world.cluster_id, "another"))
        place = odd.choice(self.world.machines).endpoints[0]
        port = odd.choice((place.port, place.port, 1))
        directory = odd.randbytes(16)
        add, move, remove = (
            wire.AddRaftVoterRequest, wire.UpdateRaftVoterRequest, wire.RemoveRaftVoterRequest,
        )  # fmt: skip
        listeners = [(place.name, place.host, port)] * odd.choice((1, 1, 0))
        api, body = odd.choice((
            (ApiKey.ADD_RAFT_VOTER, add(
                cluster_id=own, timeout_ms=300, voter_id=STRANGER, voter_directory_id=directory,
                listeners=[add.Listener(*each) for each in listeners])),
            (ApiKey.UPDATE_RAFT_VOTER, move(
                cluster_id=own, current_leader_epoch=self._epoch(), voter_id=STRANGER,
                voter_directory_id=directory,
                listeners=[move.Listener(*each) for each in listeners])),
            (ApiKey.REMOVE_RAFT_VOTER, remove(own, STRANGER, directory)),
        ))  # fmt: skip
        answer = self._ask_odd(connection, api, body)
        if answer is not None:
            expect(answer.error_code != 0, f"D19: {api.name} of nobody is done")
            self.world.count(f"nobody: {ErrorCode(answer.error_code).name}")

    # --- replicas of other logs -------------------------------------------------------------------

    def _snapshot(self, connection: Connection) -> None:
        """Ask for a slice of a snapshot that there is, or not."""
        kind, odd, leader = wire.FetchSnapshotRequest, self.odd, self.world.leader()
        there = [(0, 1), (10**12, 3), (-1, -1)]
        if leader is not None:
            there += [(each.offset, each.epoch) for each in leader.core.snapshots] * 3
        part = kind.Partition(
            self._partition(),
            self._epoch(),
            kind.SnapshotId(*odd.choice(there)),
            odd.choice((0, 0, 100, 10**9, -1)),
        )
        topic = kind.Topic(self._topic(), [part] * odd.choice((1, 1, 1, 0, 2)))
        body = kind(
            cluster_id=odd.choice((None, self.world.cluster_id, "another")),
            max_bytes=odd.choice((1, 1_000, 10**6, -1)),
            topics=[topic] * odd.choice((1, 1, 1, 0, 2)),
        )
        self._ask_odd(connection, ApiKey.FETCH_SNAPSHOT, body)

    def _vote(self, connection: Connection) -> None:
        """Ask for votes, and tell of leaders, in a log that is not here: no epoch moves by that."""
        odd, epoch = self.odd, 10_000
        count = odd.choice((1, 0, 2))
        topic = ELSEWHERE if count == 1 else METADATA_TOPIC
        vote, begin, end = (
            wire.VoteRequest, wire.BeginQuorumEpochRequest, wire.EndQuorumEpochRequest,
        )  # fmt: skip
        api, body = odd.choice((
            (ApiKey.VOTE, vote("sim-cluster", -1, [
                vote.Topic(topic, [vote.Partition(0, epoch, STRANGER)])] * count)),
            (ApiKey.BEGIN_QUORUM_EPOCH, begin("sim-cluster", -1, [
                begin.Topic(topic, [begin.Partition(0, bytes(16), STRANGER, epoch)])] * count)),
            (ApiKey.END_QUORUM_EPOCH, end("sim-cluster", [
                end.Topic(topic, [end.Partition(0, STRANGER, epoch)])] * count)),
        ))  # fmt: skip
        self._ask_odd(connection, api, body)
        epochs = [each.process.core.epoch for each in self.world.machines if each.process]
        # What is damaged on its way moves them farther.
        moved = [each for each in epochs if epoch <= each < epoch + 1_000]
        expect(not moved, f"a stranger has moved the epoch to {moved}")

    # --- frames -----------------------------------------------------------------------------------

    def _barge_in(self, connection: Connection) -> None:
        """Send what no server can take, or a part of a frame, and wait for the end."""
        odd, body = self.odd, wire.ApiVersionsRequest("bold", "1")
        whole = frame.encode_request(ApiKey.API_VERSIONS, 3, 7, "bold", body)
        data = bytearray(whole)
        what = odd.choice(("version", "key", "length", "bytes", "part", "cluster"))
        if what == "version":
            struct.pack_into(">h", data, 6, 99)
        elif what == "key":
            struct.pack_into(">h", data, 4, odd.choice((9_999, -1, 17, 36)))
        elif what == "length":
            struct.pack_into(">i", data, 0, odd.choice((-1, 0, 3, 1 << 30)))
        elif what == "bytes":
            data[4:] = odd.randbytes(len(data) - 4)
        elif what == "part":
            data = data[: odd.randrange(1, len(data))]
        else:
            body.cluster_id, body.node_id = odd.choice(("another", self.world.cluster_id)), 1
            data = bytearray(frame.encode_request(ApiKey.API_VERSIONS, 5, 7, "bold", body))
        connection.send(bytes(data), self.host.monotonic() + CALL_S)
        if what != "part":
            try:
                connection.receive(self.host.monotonic() + 0.2)
            except KraftfastError:
                self.world.count("connections that a bold stranger lost")
        raise Hangs("it hangs up")


class Hangs(KraftfastError):
    """The stranger goes, and comes again."""


def set_at(batch: bytearray, form: str, at: int, *values: int) -> None:
    """Change a field of a batch's header; its checksum is right again."""
    struct.pack_into(form, batch, at, *values)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))


BOLD = (
    "produce_odd", "produce_odd", "produce_odd", "name", "features", "reassign", "barrier",
    "snapshot", "snapshot", "vote", "barge_in", "add_nobody", "add_nobody", *ASKED,
)  # fmt: skip
