"""Reach a quorum that runs: by its directory on this host, or by the addresses of its servers.

>>> with kraftfast.connect(path) as quorum, quorum.producer() as producer:    # or "host:port,..."
...     offset = producer.append_wait(b"hello", timeout=5)
...     for record in quorum.consumer(from_offset=offset):
...         print(record.value)
b'hello'

By its directory, clients are as fast as those of the process that runs the quorum. A process that
was forked from that one must make its clients with ``connect``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from kraftfast.arguments import refuse, text
from kraftfast.client.admin.admin import Admin
from kraftfast.client.admin.admin_ways import LocalWay
from kraftfast.client.connection import Address
from kraftfast.client.connector import Connector
from kraftfast.client.consumer.consumer import Consumer
from kraftfast.client.local_connector import LocalConnector
from kraftfast.client.quorum_base import ConnectedQuorum
from kraftfast.client.remote_quorum import TOPIC_BYTES_MAX, RemoteQuorum, connect_servers
from kraftfast.client.timing import deadline_after
from kraftfast.errors import InvalidOption, NoQuorum
from kraftfast.link.kernel_check import check_host
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import META, read_meta, read_options
from kraftfast.node.state_machine import refuse_while_loading
from kraftfast.node.storage.description import read_description
from kraftfast.node.storage.local_layout import LiveDirectories, quorum_path
from kraftfast.types import METADATA_TOPIC

LOOK_AGAIN_S = 0.05
WANTED = "a quorum's directory, or the host:port of servers"


class HostQuorum(ConnectedQuorum):
    """A quorum that other processes of this host run in ``path``; see :func:`connect`."""

    # directories: of the replicas that exist at the moment, by id.

    def __init__(self, path: str | os.PathLike[str]) -> None:
        refuse_while_loading()
        self.path = quorum_path(path)
        self.directories = directories_of(self.path)
        self._topic, self._cluster_id = _log_of(self.path)
        super().__init__(Admin(LocalWay(self.directories, self._topic, self._cluster_id)))

    @property
    def topic(self) -> str:
        return self._topic

    def consumer(
        self, from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> Consumer:
        self._check_open()
        return Consumer(
            self.directories,
            from_offset,
            follow=follow,
            timeout=timeout,
            cluster_id=self._cluster_id,
        )

    def _connector(self, batch_bytes: int, window: int) -> Connector:
        return LocalConnector(self.directories, batch_bytes, window, self._cluster_id)

    def wait_runs(self, timeout: float) -> None:
        """Wait until a process runs a replica, or the quorum. Raises NoQuorum, StorageError."""
        deadline = deadline_after(timeout)
        while True:
            places = [self.path, *self.directories.values()]
            if any(Disk().is_locked(os.path.join(place, ".lock")) for place in places):
                return
            if time.monotonic() >= deadline:
                raise NoQuorum(f"no process runs a replica of {self.path} (start and serve do)")
            time.sleep(LOOK_AGAIN_S)


def directories_of(path: str) -> Mapping[int, str]:
    """Return replica id -> directory, of a quorum or of a single replica. Raises NotFormatted."""
    path = os.path.abspath(path)
    if os.path.exists(os.path.join(path, META)):
        return {read_meta(Disk(), path).node_id: path}
    return LiveDirectories(path)


def _log_of(path: str) -> tuple[str, str]:
    """Return (topic, cluster id) of the quorum, or of the single replica, in ``path``."""
    if not os.path.exists(os.path.join(path, META)):
        known = read_description(path)
        return known.topic, known.cluster_id
    options = read_options(Disk(), path)
    topic = METADATA_TOPIC if options is None else options.topic
    return topic, read_meta(Disk(), path).cluster_id


def connect(
    where: str | os.PathLike[str] | Iterable[str | Address],
    topic: str = METADATA_TOPIC,
    *,
    timeout: float = 10.0,
) -> HostQuorum | RemoteQuorum:
    """Return a quorum that runs: in the directory ``where``, or on servers with these addresses.

    ``where``: a quorum's directory on this host (or one replica's), reached over rings; or
    ``"host:port,host:port"``, or a list of such texts or of (host, port): some of the servers are
    enough. A text with a ``/``, and one without a ``:``, is a directory. ``topic``: the name of the
    servers' log; a directory says its own. ``timeout``: seconds until a replica must run
    there, or until one of the servers must lead.

    Raises InvalidOption for what is neither, NotFormatted and ForeignDirectory for a directory that
    is no quorum's, StorageError for one that cannot be read; NoQuorum; RequestRefused if the
    servers have no such ``topic``; HostUnsupported where rings cannot work.
    """
    deadline_after(timeout)
    topic = text("topic", topic, TOPIC_BYTES_MAX)
    if not isinstance(where, os.PathLike):
        if isinstance(where, bytes | bytearray | Mapping) or not isinstance(where, Iterable):
            refuse("where", WANTED, where)
        if not isinstance(where, str) or (":" in where and "/" not in where):
            return connect_servers(where, topic, timeout=timeout)
        _refuse_neither(where)
    check_host()
    quorum = HostQuorum(where)
    if topic not in (METADATA_TOPIC, quorum.topic):
        raise InvalidOption(f"the log in {quorum.path} is called {quorum.topic!r}, not {topic!r}")
    quorum.wait_runs(timeout)
    return quorum


def _refuse_neither(where: str) -> None:
    """Raise InvalidOption for a text that can be neither a directory nor addresses."""
    if not where or "\0" in where:
        raise InvalidOption(f"neither a quorum's directory nor host:port: {where[:100]!r}")
    if os.path.lexists(where):
        return
    if "/" not in where:
        raise InvalidOption(f"{where[:100]!r} is no directory, and no address (host:port)")
    if "," in where and ":" in where:
        raise InvalidOption(f"{where[:100]!r}: give a directory or addresses, not both")
