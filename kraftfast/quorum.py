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
import threading
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from kraftfast import forks
from kraftfast.client.admin import Admin, AsyncAdmin, barrier_by
from kraftfast.client.admin_ways import LocalWay
from kraftfast.client.aio import AsyncProducer
from kraftfast.client.connector import Connector
from kraftfast.client.consumer import Consumer
from kraftfast.client.local import LocalConnector, Watch, ask, ask_raw
from kraftfast.client.producer import BATCH_BYTES, WINDOW_BATCHES, Producer
from kraftfast.client.quorum_info import QuorumInfo
from kraftfast.errors import (
    Closed,
    ErrorCode,
    ForeignDirectory,
    InvalidOption,
    LocalError,
    NoQuorum,
    NotFormatted,
    PeerGone,
    RequestRefused,
    TimedOut,
)
from kraftfast.log.directory import read_meta
from kraftfast.log.disk import Disk
from kraftfast.node.config import ListenerConfig, NodeConfig, VoterConfig
from kraftfast.node.local_layout import (
    Description,
    add_to_description,
    format_quorum,
    read_description,
    replica_directories,
    write_description,
)
from kraftfast.node.placement import share
from kraftfast.node.supervisor import Supervisor
from kraftfast.node.tuning import Tuning as Tuning
from kraftfast.types import Endpoint, Uuid


def free_port(host: str) -> int:
    """A TCP port that nobody listens on at the moment."""
    with socket.create_server((host, 0)) as sock:
        return int(sock.getsockname()[1])


class LocalQuorum:
    """Starts (and, the first time, formats) the voters of one host, and supervises them.

    ``path``: the quorum's directory; replica N lives in ``path/N``. ``voters``: 1, 3, 5 ...;
    None takes what is there. ``durability``: ``majority`` | ``all`` | ``memory``, decided when the
    quorum is made; so is ``kraft_version``, 1 for voters that stand in the log from the first on
    (0 can be upgraded later). Other settings: :class:`Tuning`.

    Raises InvalidOption, DirectoryInUse, CorruptLog, DiskFull and other StorageErrors, TimedOut.
    """

    # path, description, directories: what it is. tuning: how it runs. supervisor: its processes.
    # addresses: replica id -> (host, port), where it listens for TCP. _changing: held while a
    # replica is made or stopped for good. _refusal: what calls raise once it is _closed.

    def __init__(
        self,
        path: str | os.PathLike[str],
        voters: int | None = None,
        *,
        durability: str | None = None,
        records: str | None = None,
        kraft_version: int = 0,
        timeout: float = 60.0,
        restart: bool = True,
        **tuning: Any,
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        try:
            self.tuning = Tuning(**tuning)
        except TypeError as error:
            raise InvalidOption(f"unknown setting: {error}") from None
        self.description = self._open_or_format(voters, durability, records, kraft_version)
        self.directories = replica_directories(self.path, self.description.replicas)
        self.addresses = {id: self._choose_address(id) for id in self._listening()}
        self.supervisor = Supervisor([self._config(id) for id in self.directories], restart)
        self._changing = threading.Lock()
        self._closed = False
        self._refusal: LocalError = Closed("the quorum is closed")
        forks.own(self)
        deadline = time.monotonic() + timeout
        try:
            self.supervisor.start(timeout)
            self.wait_leader(max(0.1, deadline - time.monotonic()))
        except BaseException:
            self.close()
            raise

    def _open_or_format(
        self,
        voters: int | None,
        durability: str | None,
        records: str | None,
        kraft_version: int,
    ) -> Description:
        try:
            known = read_description(self.path)
        except NotFormatted:
            return format_quorum(
                self.path,
                voters or 3,
                durability or "majority",
                records or "any",
                kraft_version=kraft_version,
            )
        asked = {"voters": voters, "durability": durability, "records": records}
        found: dict[str, Any] = {"voters": len(known.voters)}
        found |= {"durability": known.durability, "records": known.records}
        for name, value in asked.items():
            if value is not None and value != found[name]:
                raise InvalidOption(f"{self.path} was made with {name} {found[name]}, not {value}")
        for id, directory in replica_directories(self.path, known.replicas).items():
            meta = read_meta(Disk(), directory)
            if (meta.node_id, meta.cluster_id) != (id, known.cluster_id):
                raise ForeignDirectory(f"{directory} belongs to another quorum")
        return known

    def _listening(self) -> list[int]:
        """Who has a TCP listener."""
        tuning = self.tuning
        return list(self.directories) if tuning.port or tuning.transport == "socket" else []

    def _choose_address(self, id: int) -> tuple[str, int]:
        tuning = self.tuning
        return tuning.host, tuning.port + id if tuning.port else free_port(tuning.host)

    def _places(self) -> list[VoterConfig]:
        """Where every replica is: its directory for rings, else its address."""
        if self.tuning.transport == "ring":
            return [VoterConfig(id, directory=place) for id, place in self.directories.items()]
        return [VoterConfig(id, *address) for id, address in self.addresses.items()]

    def _config(self, id: int) -> NodeConfig:
        tuning = self.tuning
        first = id in self.description.voters  # whoever came later learns who votes from the log
        address = self.addresses.get(id)
        return NodeConfig(
            node_id=id,
            directory=self.directories[id],
            voters=[
                VoterConfig(voter_id, *self.addresses.get(voter_id, ("", 0)))
                for voter_id in self.description.voters
                if first
            ],
            neighbours=self._places(),
            cluster_id=self.description.cluster_id,
            listeners=[ListenerConfig("CONTROLLER", *address)] if address else [],
            flush=tuning.flush,
            idle=tuning.idle,
            segment_bytes=tuning.segment_bytes,
            stride_bytes=tuning.stride_bytes,
            prepare_bytes=tuning.prepare_bytes,
            retention_bytes=tuning.retention_bytes,
            retention_ms=tuning.retention_ms,
            snapshot_bytes=tuning.snapshot_bytes,
            snapshot_interval_ms=tuning.snapshot_interval_ms,
            election_timeout_ms=tuning.election_timeout_ms,
            fetch_timeout_ms=tuning.fetch_timeout_ms,
            producers_max=tuning.producers_max,
            processors=share(tuning.processors, len(self.description.voters)),
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
        idempotent: bool | None = None,
        name: str | None = None,
    ) -> Producer:
        """A blocking producer; ``window``: batches under way at most. Raises NoQuorum.

        ``record_bytes_max``: be ready for records of this size from the start; larger ones than
        the usual ring takes are possible at any time, but the first waits for what is under way.
        ``idempotent``, ``name``: as of :class:`Producer`.
        """
        self._check_open()
        connector = self._connector(batch_bytes, window)
        return Producer(connector, timeout, record_bytes_max, idempotent, name)

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
        self._check_open()
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
        self._check_open()
        return ask(self.directories[id], {"kind": "status"})

    def query(self, id: int, *args: Any, at_least: int = -1, timeout: float = 5.0) -> Any:
        """Ask the state machine of a replica, once it has applied everything below ``at_least``.

        ``at_least``: an exclusive end, for instance the offset of an append plus one: then the
        answer knows of it. Raises RequestRefused with what the state machine raised, TimedOut.
        """
        self._check_open()
        encoded = base64.b64encode(msgspec.msgpack.encode(args)).decode()
        question = {"kind": "query", "args": encoded, "at_least": at_least}
        answer = msgspec.msgpack.decode(ask_raw(self.directories[id], question, timeout))
        if "error" in answer:
            raise RequestRefused(str(answer["error"]), ErrorCode.UNKNOWN_SERVER_ERROR)
        return answer["value"]

    def statuses(self) -> dict[int, dict[str, Any]]:
        """Every replica that answers, by id."""
        self._check_open()
        found = {}
        for id in list(self.directories):
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
        self._check_open()
        return Watch(self.directories[id])

    def kill(self, id: int, signo: int = signal.SIGKILL) -> None:
        """Send a signal to a worker, as a fault would; the supervisor starts it again."""
        self._check_open()
        self.supervisor.kill(id, signo)

    # --- who votes, who leads -------------------------------------------------------------------

    def admin(self) -> Admin:
        """An operator's calls, through the doors of this host."""
        self._check_open()
        return Admin(LocalWay(self.directories, self.description.topic))

    def async_admin(self) -> AsyncAdmin:
        """The same for use inside a running loop: ``await quorum.async_admin().read_barrier()``."""
        return AsyncAdmin(self.admin())

    def describe(self, *, timeout: float = 10.0) -> QuorumInfo:
        """Who leads, who votes, and how far every replica is. Raises NoQuorum."""
        return self.admin().describe(timeout=timeout)

    def read_barrier(self, replica: int | None = None, *, timeout: float = 10.0) -> int:
        """Whoever has read up to this offset sees all that was committed before the call.

        ``replica``: by the word of this one, which asks its leader. Raises NoQuorum, TimedOut,
        PeerGone if that one does not run.
        """
        if replica is None:
            return self.admin().read_barrier(timeout=timeout)
        self._check_open()
        way = LocalWay({replica: self.directories[replica]}, self.description.topic)
        return barrier_by(way.to(replica), time.monotonic() + timeout)

    def add_replica(self, id: int | None = None, *, timeout: float = 30.0) -> int:
        """Start one more replica, an observer: it follows and serves reads. Returns its id.

        ``id`` None: the next one. Nothing is done for one that is there. Raises as the start does.
        """
        self._check_open()
        with self._changing:
            known = read_description(self.path).replicas  # another process may have made some
            id = max(known) + 1 if id is None else id
            add_to_description(self.path, id)
            self._adopt(timeout)
            return id

    def adopt(self, *, timeout: float = 30.0) -> None:
        """Start replicas that another process has made (``kraftfast quorum add-controller``)."""
        self._check_open()
        with self._changing:
            self._adopt(timeout)

    def _adopt(self, timeout: float) -> None:
        self.description = read_description(self.path)
        new = [id for id in self.description.added if id not in self.directories]
        for id in new:
            self.directories[id] = os.path.join(self.path, str(id))
            if id in self._listening():
                self.addresses[id] = self._choose_address(id)
            try:
                self.supervisor.add(self._config(id), timeout)
            except BaseException:
                self._forget(id)
                raise
        if new:
            self._tell_workers()

    def _forget(self, id: int) -> None:
        self.directories.pop(id)
        self.addresses.pop(id, None)

    def _tell_workers(self) -> None:
        """A worker that is started again knows all others; those that run learn by themselves."""
        for id, worker in self.supervisor.workers.items():
            worker.config = self._config(id)

    def identity(self, id: int) -> tuple[Uuid, tuple[Endpoint, ...]]:
        """The directory id of a replica, and the endpoints that it votes with."""
        self._check_open()
        meta = read_meta(Disk(), self.directories[id])
        return meta.directory_id, self._config(id).endpoints

    def add_voter(self, id: int | None = None, *, timeout: float = 30.0) -> int:
        """Let a replica vote, once it has caught up; start it first if need be. Returns its id.

        Needs ``kraft.version`` 1 (:meth:`upgrade`). Raises RequestRefused, TimedOut, NoQuorum.
        """
        deadline = time.monotonic() + timeout
        id = self.add_replica(id, timeout=timeout)
        left = max(0.001, deadline - time.monotonic())
        self.admin().add_voter(id, *self.identity(id), timeout=left)
        return id

    def remove_voter(self, id: int, *, stop: bool = False, timeout: float = 30.0) -> None:
        """Let a voter be one no more: it stays as an observer, unless it is to stop for good.

        Raises RequestRefused with VOTER_NOT_FOUND, also for the last one; TimedOut, NoQuorum.
        """
        self.admin().remove_voter(id, timeout=timeout)
        if stop:
            self.stop_replica(id)

    def stop_replica(self, id: int, *, timeout: float = 10.0) -> None:
        """Stop an observer for good; its directory stays.

        Raises InvalidOption for one of the first voters.
        """
        self._check_open()
        with self._changing:
            self.description = read_description(self.path)
            if id not in self.description.added:
                raise InvalidOption(f"{id} is among the first voters of this quorum: it stays")
            self.description.added.remove(id)
            write_description(self.path, self.description)
            self.supervisor.remove(id, timeout)
            self._forget(id)
            self._tell_workers()

    def reassign(
        self, target: Iterable[int] | None, *, wait: bool = True, timeout: float = 60.0
    ) -> None:
        """Let exactly these replicas be the voters; start those that are not there. None cancels.

        Raises RequestRefused, TimedOut, NoQuorum.
        """
        deadline = time.monotonic() + timeout
        ids = None if target is None else sorted(set(target))
        for id in ids or ():
            self.add_replica(id, timeout=timeout)
        admin = self.admin()
        while True:
            left = max(0.001, deadline - time.monotonic())
            try:
                admin.reassign(ids, wait=wait, timeout=left)
                return
            except RequestRefused as refusal:
                new = refusal.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and bool(ids)
                if not new or time.monotonic() >= deadline:
                    raise  # else its leader has not heard of a replica that was just started
            time.sleep(0.05)

    def transfer(self, to: int | None = None, *, timeout: float = 30.0) -> int:
        """Hand leadership over; returns who leads then. Raises as :meth:`Admin.transfer`."""
        return self.admin().transfer(to, timeout=timeout)

    def upgrade(self, kraft_version: int = 1, *, timeout: float = 30.0) -> None:
        """Put the voters into the log, for good. Raises as :meth:`Admin.upgrade`."""
        self.admin().upgrade(kraft_version, timeout=timeout)

    # --- end --------------------------------------------------------------------------------------

    def close(self, *, timeout: float = 10.0) -> None:
        """Stop the workers gracefully; everything committed is on disk, the files are tidy."""
        if not self._closed:
            self._closed = True
            self.supervisor.close(timeout)

    def disown(self) -> None:
        """In a forked child: the workers, and the right to end them, stay with the parent."""
        self._closed, self._refusal = True, forks.refusal("quorum")
        self.supervisor.disown()

    def _check_open(self) -> None:
        if self._closed:
            raise self._refusal

    def __enter__(self) -> LocalQuorum:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
