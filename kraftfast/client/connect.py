"""A quorum that is reached over TCP, as one object.

>>> with kraftfast.connect(addresses) as quorum, quorum.producer() as producer:    # "host:port,..."
...     offset = producer.append_wait(b"hello", timeout=5)
...     for record in quorum.consumer(from_offset=offset):
...         print(record.value)
...     len(quorum.describe().voters)
b'hello'
3
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from kraftfast.arguments import text
from kraftfast.client.admin import Admin, AsyncAdmin
from kraftfast.client.admin_ways import RemoteWay, Way
from kraftfast.client.connection import Address
from kraftfast.client.connector import Connector
from kraftfast.client.consumer import RecordStream
from kraftfast.client.making import MakesProducers
from kraftfast.client.own_threads import PAUSE_S
from kraftfast.client.quorum_info import QuorumInfo
from kraftfast.client.refusals import Search
from kraftfast.client.remote import Cluster, RemoteConnector, parse_addresses
from kraftfast.client.remote_consumer import RemoteConsumer
from kraftfast.client.timing import deadline_after
from kraftfast.errors import NoQuorum, NotLeader
from kraftfast.forks import Birthplace
from kraftfast.types import METADATA_TOPIC

TOPIC_BYTES_MAX = 249


class Quorum(MakesProducers):
    """A quorum of servers (``cluster``), made by :func:`connect`. Thread-safe.

    Its clients must be closed by themselves.
    """

    # cluster: its servers, and who leads. birthplace: the process that may use it; in a forked
    # child another thread may have held the cluster's lock for ever. _admin: made when asked for.

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.birthplace = Birthplace("quorum")
        self._admin: Admin | None = None

    @property
    def topic(self) -> str:
        """The name of the quorum's log."""
        return self.cluster.topic

    def _check_open(self) -> None:
        self.birthplace.check()

    def consumer(
        self, from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> RecordStream:
        """Return a consumer of the committed records from ``from_offset`` on, in order.

        ``follow``: wait for more at the end. Raises NoQuorum, TimedOut, OffsetOutOfRange.
        """
        self.birthplace.check()
        return RemoteConsumer(self.cluster, from_offset, follow=follow, timeout=timeout)

    def admin(self) -> Admin:
        """Membership, upgrades, reassignments, transfers, read barriers. Raises WrongProcess."""
        self.birthplace.check()
        if self._admin is None:
            self._admin = Admin(self._way())
        return self._admin

    def async_admin(self) -> AsyncAdmin:
        """As :meth:`admin`, to be awaited."""
        return AsyncAdmin(self.admin())

    def describe(self, *, timeout: float = 10.0) -> QuorumInfo:
        """Who leads, and how far every replica is. Raises NoQuorum, RequestRefused."""
        return self.admin().describe(timeout=timeout)

    def read_barrier(self, *, timeout: float = 10.0) -> int:
        """Whoever has read up to this offset sees all that was committed before the call.

        Raises NoQuorum, TimedOut.
        """
        return self.admin().read_barrier(timeout=timeout)

    def _connector(self, batch_bytes: int, window: int) -> Connector:
        return RemoteConnector(self.cluster, batch_bytes, window)

    def _way(self) -> Way:
        return RemoteWay(self.cluster)

    def close(self) -> None:
        """Nothing is open: every client has connections of its own. Raises nothing."""

    def __enter__(self) -> Quorum:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def connect(
    addresses: str | Iterable[str | Address], topic: str = METADATA_TOPIC, *, timeout: float = 10.0
) -> Quorum:
    """Return the quorum with these servers: ``"host:port,host:port"``, some of them are enough.

    ``addresses``: also a list of such texts, or of (host, port). ``topic``: the name of its log.
    Raises InvalidOption for what is no address, NoQuorum if there is no leader within ``timeout``
    seconds, RequestRefused if the servers have no such ``topic``.
    """
    deadline = deadline_after(timeout)
    topic = text("topic", topic, TOPIC_BYTES_MAX)
    quorum = Quorum(Cluster(parse_addresses(addresses), topic))
    search = Search(deadline)
    while True:
        try:
            quorum.cluster.find_leader(deadline)[0].close()
            return quorum
        except (NotLeader, NoQuorum) as error:
            if search.is_over(error):
                raise NoQuorum(f"no leader within {timeout} s: {error}") from None
            time.sleep(PAUSE_S)
