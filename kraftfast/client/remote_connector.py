"""Find the leader over TCP, and reach it with a producer's connection."""

from __future__ import annotations

from collections.abc import Iterable

from kraftfast.client.client_host import HOST
from kraftfast.client.cluster import Cluster
from kraftfast.client.connection import Address, Connection, ConnectionRefused
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.sender import Sender
from kraftfast.client.producer.socket_sender import SocketSender
from kraftfast.client.search import FEWER, Full
from kraftfast.errors import NoQuorum, PeerGone, UnsupportedVersion, raise_if_scarce


class RemoteConnector:
    """Makes a producer's senders: over TCP, to the leader."""

    # cluster: whose leader. batch_bytes, window: of the senders.

    def __init__(self, cluster: Cluster, batch_bytes: int, window: int) -> None:
        self.cluster, self.batch_bytes, self.window = cluster, batch_bytes, window
        self.host = cluster.host

    def connect(self, outcomes: Outcomes, record_bytes: int, deadline: float) -> SocketSender:
        """Return a sender to the leader.

        Raises NotLeader, NoQuorum, PeerGone, RequestRefused, InconsistentClusterId.
        """
        connection, leader = self.cluster.find_leader(deadline)
        try:
            return SocketSender(
                connection,
                outcomes,
                self.cluster.topic,
                leader.topic_id,
                self.batch_bytes,
                self.window,
                leader.node_id,
                leader.epoch,
            )
        except UnsupportedVersion as error:
            connection.close()
            raise NoQuorum(f"the leader does not take what this client sends: {error}") from None
        except OSError as error:
            connection.close()
            raise_if_scarce(error, "cannot reach the quorum")
            raise PeerGone(f"no descriptors for the way to the leader: {error}") from None
        except BaseException:
            connection.close()
            raise

    def reach(self, sender: Sender, deadline: float) -> Connection:
        """Return another connection to its leader.

        Raises as :class:`Connection`; Full where refused.
        """
        assert isinstance(sender, SocketSender)  # of ``connect``
        try:
            return self.cluster.reach(sender.connection.address, deadline)
        except ConnectionRefused as error:
            raise Full(f"{error}; {FEWER}") from None

    def superseded(self, sender: Sender, deadline: float) -> bool:
        """Return whether a replica leads in a later epoch than the leader of this sender."""
        assert isinstance(sender, SocketSender)  # of ``connect``
        return self.cluster.later_leader(sender.connection.address, sender.epoch, deadline)


def connect_producer(
    addresses: Iterable[Address],
    topic: str,
    outcomes: Outcomes,
    batch_bytes: int,
    window: int,
    timeout: float = 10.0,
) -> SocketSender:
    """Return one sender to the leader of the quorum at ``addresses``, and to no other.

    Raises NotLeader, NoQuorum, RequestRefused.
    """
    connector = RemoteConnector(Cluster(addresses, topic), batch_bytes, window)
    return connector.connect(outcomes, 0, HOST.monotonic() + timeout)
