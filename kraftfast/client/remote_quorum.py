"""A quorum that is reached over TCP; ``kraftfast.connect`` makes it."""

from __future__ import annotations

from collections.abc import Iterable

from kraftfast.arguments import text
from kraftfast.client.admin.admin import Admin
from kraftfast.client.admin.admin_ways import RemoteWay
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.cluster import Cluster, parse_addresses
from kraftfast.client.connection import Address
from kraftfast.client.connector import Connector
from kraftfast.client.consumer.consumer import RecordStream
from kraftfast.client.consumer.remote_consumer import RemoteConsumer
from kraftfast.client.producer.own_threads import PAUSE_S
from kraftfast.client.quorum_base import ConnectedQuorum
from kraftfast.client.remote_connector import RemoteConnector
from kraftfast.client.search import Search
from kraftfast.client.timing import deadline_after
from kraftfast.errors import NoQuorum, NotLeader
from kraftfast.types import METADATA_TOPIC

TOPIC_BYTES_MAX = 249


class RemoteQuorum(ConnectedQuorum):
    """A quorum of servers (``cluster``), made by :func:`connect_servers`."""

    # cluster: its servers and its leader.

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(Admin(RemoteWay(cluster)))
        self.cluster = cluster

    @property
    def topic(self) -> str:
        return self.cluster.topic

    def consumer(
        self, from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> RecordStream:
        self._check_open()
        return RemoteConsumer(self.cluster, from_offset, follow=follow, timeout=timeout)

    def _connector(self, batch_bytes: int, window: int) -> Connector:
        return RemoteConnector(self.cluster, batch_bytes, window)


def connect_servers(
    addresses: str | Iterable[str | Address],
    topic: str = METADATA_TOPIC,
    *,
    timeout: float = 10.0,
    host: ClientHost = HOST,
) -> RemoteQuorum:
    """Return the quorum with these servers: ``"host:port,host:port"``, some of them are enough.

    ``addresses``: also a list of such texts, or of (host, port). ``topic``: the name of its log.
    ``host``: what its clients are made of.
    Raises InvalidOption for what is no address, NoQuorum if there is no leader within ``timeout``
    seconds, RequestRefused if the servers have no such ``topic``.
    """
    deadline = deadline_after(timeout, now=host.monotonic)
    topic = text("topic", topic, TOPIC_BYTES_MAX)
    quorum = RemoteQuorum(Cluster(parse_addresses(addresses), topic, host))
    search = Search(deadline, now=host.monotonic)
    while True:
        try:
            quorum.cluster.find_leader(deadline)[0].close()
            return quorum
        except (NotLeader, NoQuorum) as error:
            if search.is_over(error):
                raise NoQuorum(f"no leader within {timeout:g} s: {error}") from None
            host.sleep(PAUSE_S)
