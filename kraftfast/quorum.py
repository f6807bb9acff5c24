"""A whole quorum on this host: workers started and supervised, clients handed out.

>>> settings = {"segment_bytes": 32 << 20, "stride_bytes": 8 << 20}    # small: this is an example
>>> with kraftfast.LocalQuorum(path, voters=3, **settings) as quorum, quorum.producer() as producer:
...     offset = producer.append_wait(b"hello", timeout=5)
...     for record in quorum.consumer(from_offset=0):
...         print(record.offset == offset, record.value)
True b'hello'
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from kraftfast import limits
from kraftfast.client.aio import AsyncProducer
from kraftfast.client.connector import Connector
from kraftfast.client.consumer import Consumer
from kraftfast.client.local import LocalConnector, Watch, ask, ask_raw
from kraftfast.client.producer import BATCH_BYTES, WINDOW_BATCHES, Producer
from kraftfast.errors import (
    ErrorCode,
    ForeignDirectory,
    InvalidOption,
    NoQuorum,
    NotFormatted,
    PeerGone,
    RequestRefused,
    TimedOut,
)
from kraftfast.log.directory import (
    LogOptions,
    MetaProperties,
    format_directory,
    random_uuid,
    read_meta,
)
from kraftfast.log.disk import Disk
from kraftfast.node.config import IDLE_SPIN_US, ListenerConfig, NodeConfig, VoterConfig
from kraftfast.node.state_machine import describe_class
from kraftfast.node.supervisor import Supervisor
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID, uuid_text

DESCRIPTION = "quorum.json"
TRANSPORTS = ("ring", "socket")
FLUSHES = ("adaptive", "deferred", "parallel")
ELECTION_TIMEOUT_MS = 150
"""For start-up alone: pre-vote shields a living leader, and the kernel tells of a dead one."""


class Description(msgspec.Struct):
    """``quorum.json``: what was decided when the quorum was made."""

    cluster_id: str
    voters: list[int]
    durability: str = "majority"
    records: str = "any"
    topic: str = METADATA_TOPIC
    version: int = 1


@dataclass(slots=True)
class Tuning:
    """How a quorum runs; may differ from start to start. Sizes are bytes, times milliseconds."""

    flush: str = "adaptive"
    transport: str = "ring"
    idle: str = "hybrid"
    port: int = 0
    """Replica N also listens on ``port`` + N for Kafka's clients; 0: only with sockets."""
    host: str = "127.0.0.1"
    segment_bytes: int = 256 * 1024 * 1024
    stride_bytes: int = limits.PREPARE_STRIDE_BYTES
    prepare_bytes: int = 4 * 1024 * 1024
    retention_bytes: int = -1
    election_timeout_ms: int = ELECTION_TIMEOUT_MS
    fetch_timeout_ms: int = 2000
    state_machine: Any = ""
    """A :class:`StateMachine` class, or ``module:Class``, that every replica applies the log to."""

    def __post_init__(self) -> None:
        self.state_machine = describe_class(self.state_machine) if self.state_machine else ""
        for name, known in (
            ("flush", FLUSHES),
            ("transport", TRANSPORTS),
            ("idle", tuple(IDLE_SPIN_US)),
        ):
            if getattr(self, name) not in known:
                raise InvalidOption(
                    f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}"
                )


def read_description(path: str) -> Description:
    """The description of a quorum. Raises NotFormatted, ForeignDirectory."""
    file = os.path.join(path, DESCRIPTION)
    try:
        return msgspec.json.decode(Disk().read_file(file), type=Description)
    except FileNotFoundError:
        raise NotFormatted(f"{path} holds no quorum: there is no {DESCRIPTION}") from None
    except msgspec.DecodeError as error:
        raise ForeignDirectory(f"{file} does not parse: {error}") from None


def replica_directories(path: str, voters: list[int]) -> dict[int, str]:
    """Replica id -> its directory."""
    return {id: os.path.join(path, str(id)) for id in voters}


def format_quorum(
    path: str,
    voters: int,
    durability: str = "majority",
    records: str = "any",
    topic: str = METADATA_TOPIC,
    cluster_id: str | None = None,
) -> Description:
    """Make the directories of a new quorum, of a new cluster if no ``cluster_id`` is given.

    Raises InvalidOption; ForeignDirectory if there is one already.
    """
    if not 1 <= voters <= limits.VOTERS_MAX:
        raise InvalidOption(f"voters must be from 1 to {limits.VOTERS_MAX}, not {voters}")
    disk = Disk()
    if disk.exists(os.path.join(path, DESCRIPTION)):
        raise ForeignDirectory(f"{path} already holds a quorum")
    topic_id = METADATA_TOPIC_ID if topic == METADATA_TOPIC else random_uuid()
    options = LogOptions(durability, records, topic, topic_id)
    cluster_id = cluster_id or uuid_text(random_uuid())
    description = Description(cluster_id, list(range(1, voters + 1)), durability, records, topic)
    disk.make_directory(path)
    for id, directory in replica_directories(path, description.voters).items():
        meta = MetaProperties(description.cluster_id, id, random_uuid())
        format_directory(disk, directory, meta, options)
    disk.replace_file(os.path.join(path, DESCRIPTION), msgspec.json.encode(description))
    return description


def free_port(host: str) -> int:
    """A TCP port that nobody listens on at the moment."""
    with socket.create_server((host, 0)) as sock:
        return int(sock.getsockname()[1])


class LocalQuorum:
    """Starts (and, the first time, formats) the voters of one host, and supervises them.

    ``path``: the quorum's directory; replica N lives in ``path/N``. ``voters``: 1, 3, 5 ...;
    None takes what is there. ``durability``: ``majority`` | ``all`` | ``memory``, decided when the
    quorum is made. Other settings: :class:`Tuning`.

    Raises InvalidOption, DirectoryInUse, CorruptLog, DiskFull and other StorageErrors, TimedOut.
    """

    # path, description, directories: what it is. tuning: how it runs. supervisor: its processes.
    # addresses: replica id -> (host, port), where it listens for TCP.

    def __init__(
        self,
        path: str | os.PathLike[str],
        voters: int | None = None,
        *,
        durability: str | None = None,
        records: str | None = None,
        timeout: float = 60.0,
        restart: bool = True,
        **tuning: Any,
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        try:
            self.tuning = Tuning(**tuning)
        except TypeError as error:
            raise InvalidOption(f"unknown setting: {error}") from None
        self.description = self._open_or_format(voters, durability, records)
        self.directories = replica_directories(self.path, self.description.voters)
        self.addresses = self._choose_addresses()
        self.supervisor = Supervisor([self._config(id) for id in self.description.voters], restart)
        self._closed = False
        deadline = time.monotonic() + timeout
        try:
            self.supervisor.start(timeout)
            self.wait_leader(max(0.1, deadline - time.monotonic()))
        except BaseException:
            self.close()
            raise

    def _open_or_format(
        self, voters: int | None, durability: str | None, records: str | None
    ) -> Description:
        try:
            known = read_description(self.path)
        except NotFormatted:
            return format_quorum(self.path, voters or 3, durability or "majority", records or "any")
        asked = {"voters": voters, "durability": durability, "records": records}
        found = {
            "voters": len(known.voters),
            "durability": known.durability,
            "records": known.records,
        }
        for name, value in asked.items():
            if value is not None and value != found[name]:
                raise InvalidOption(f"{self.path} was made with {name} {found[name]}, not {value}")
        for id, directory in replica_directories(self.path, known.voters).items():
            meta = read_meta(Disk(), directory)
            if (meta.node_id, meta.cluster_id) != (id, known.cluster_id):
                raise ForeignDirectory(f"{directory} belongs to another quorum")
        return known

    def _choose_addresses(self) -> dict[int, tuple[str, int]]:
        tuning, ids = self.tuning, self.description.voters
        if tuning.port:
            return {id: (tuning.host, tuning.port + id) for id in ids}
        if tuning.transport == "socket":
            return {id: (tuning.host, free_port(tuning.host)) for id in ids}
        return {}

    def _config(self, id: int) -> NodeConfig:
        tuning = self.tuning
        rings = tuning.transport == "ring"
        voters = [
            VoterConfig(
                voter_id,
                host=self.addresses[voter_id][0] if voter_id in self.addresses else "",
                port=self.addresses[voter_id][1] if voter_id in self.addresses else 0,
                directory=self.directories[voter_id] if rings else "",
            )
            for voter_id in self.description.voters
        ]
        address = self.addresses.get(id)
        return NodeConfig(
            node_id=id,
            directory=self.directories[id],
            voters=voters,
            cluster_id=self.description.cluster_id,
            listeners=[ListenerConfig("CONTROLLER", *address)] if address else [],
            flush=tuning.flush,
            idle=tuning.idle,
            segment_bytes=tuning.segment_bytes,
            stride_bytes=tuning.stride_bytes,
            prepare_bytes=tuning.prepare_bytes,
            retention_bytes=tuning.retention_bytes,
            election_timeout_ms=tuning.election_timeout_ms,
            fetch_timeout_ms=tuning.fetch_timeout_ms,
            state_machine=tuning.state_machine,
        )

    # --- clients ----------------------------------------------------------------------------------

    def producer(
        self,
        *,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW_BATCHES,
        record_bytes_max: int = 0,
        timeout: float = 30.0,
    ) -> Producer:
        """A blocking producer; ``window``: batches under way at most. Raises NoQuorum.

        ``record_bytes_max``: be ready for records of this size from the start; larger ones than
        the usual ring takes are possible at any time, but the first waits for what is under way.
        """
        return Producer(self._connector(batch_bytes, window), timeout, record_bytes_max)

    def async_producer(self, **settings: Any) -> AsyncProducer:
        """An asyncio producer, for use inside a running loop; settings as :meth:`producer`."""
        return AsyncProducer(self.producer(**settings))

    def consumer(
        self,
        from_offset: int = 0,
        *,
        follow: bool = False,
        replica: int | None = None,
        timeout: float = 10.0,
    ) -> Consumer:
        """Committed records from ``from_offset`` on, in order; see :class:`Consumer`.

        ``replica``: only what this one knows of. Raises NoQuorum if none runs within ``timeout``
        seconds.
        """
        directories = self.directories if replica is None else {replica: self.directories[replica]}
        return Consumer(directories, from_offset, follow=follow, timeout=timeout)

    def _connector(self, batch_bytes: int, window: int) -> Connector:
        if self.tuning.transport == "socket":
            from kraftfast.client.remote import Cluster, RemoteConnector

            cluster = Cluster(self.addresses.values(), self.description.topic)
            return RemoteConnector(cluster, batch_bytes, window)
        return LocalConnector(self.directories, batch_bytes, window)

    # --- looking ----------------------------------------------------------------------------------

    def status(self, id: int) -> dict[str, Any]:
        """What a replica says of itself. Raises PeerGone, TimedOut."""
        return ask(self.directories[id], {"kind": "status"})

    def query(self, id: int, *args: Any, at_least: int = -1, timeout: float = 5.0) -> Any:
        """Ask the state machine of a replica, once it has applied everything below ``at_least``.

        ``at_least``: an exclusive end, for instance the offset of an append plus one: then the
        answer knows of it. Raises RequestRefused with what the state machine raised, TimedOut.
        """
        encoded = base64.b64encode(msgspec.msgpack.encode(args)).decode()
        question = {"kind": "query", "args": encoded, "at_least": at_least}
        answer = msgspec.msgpack.decode(ask_raw(self.directories[id], question, timeout))
        if "error" in answer:
            raise RequestRefused(str(answer["error"]), ErrorCode.UNKNOWN_SERVER_ERROR)
        return answer["value"]

    def statuses(self) -> dict[int, dict[str, Any]]:
        """Every replica that answers, by id."""
        found = {}
        for id in self.directories:
            try:
                found[id] = self.status(id)
            except (PeerGone, TimedOut):
                pass
        return found

    def leader(self) -> int | None:
        """The id of the leader, None if nobody leads at the moment."""
        leaders = [
            (status["epoch"], id)
            for id, status in self.statuses().items()
            if status["role"] == "leader"
        ]
        return max(leaders)[1] if leaders else None

    def wait_leader(self, timeout: float = 10.0) -> int:
        """The leader's id, once it can commit. Raises NoQuorum."""
        deadline = time.monotonic() + timeout
        while True:
            workers = self.supervisor.workers.values()
            failed = [each.error for each in workers if each.is_final and each.error is not None]
            if 2 * len(failed) >= len(self.directories):
                raise failed[0]  # what is left is no majority
            for id, status in self.statuses().items():
                if status["role"] == "leader" and status["high_watermark"] > 0:
                    return id
            if time.monotonic() >= deadline:
                raise NoQuorum(f"no leader within {timeout:.1f} s")
            time.sleep(0.01)

    def watch(self, id: int) -> Watch:
        """The live counters of a replica."""
        return Watch(self.directories[id])

    def kill(self, id: int, signo: int = signal.SIGKILL) -> None:
        """Send a signal to a worker, as a fault would; the supervisor starts it again."""
        self.supervisor.kill(id, signo)

    # --- end --------------------------------------------------------------------------------------

    def close(self, *, timeout: float = 10.0) -> None:
        """Stop the workers gracefully; everything committed is on disk, the files are tidy."""
        if not self._closed:
            self._closed = True
            self.supervisor.close(timeout)

    def __enter__(self) -> LocalQuorum:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
