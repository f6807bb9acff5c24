"""Ask the bootstrap servers of a replica whether its cluster has a quorum already (D23)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftfast.node.node_config import NodeConfig

ASK_S_MAX = 3.0


def refuse_second_quorum(node: NodeConfig, cluster_id: str) -> None:
    """Raise InvalidOption if a bootstrap server knows a leader of this cluster.

    A second quorum under the same cluster id would acknowledge records that the first never has.
    Servers that do not answer, or belong to another cluster, say nothing about it.
    """
    from kraftfast.client.cluster import Cluster
    from kraftfast.errors import InvalidOption, KraftfastError
    from kraftfast.types import METADATA_TOPIC

    own = {(host, port) for _, host, port in node.endpoints}
    servers = [server for server in node.bootstrap_servers if server not in own]
    if not servers:
        return
    cluster = Cluster(servers, METADATA_TOPIC)
    try:
        connection, leader = cluster.find_leader(time.monotonic() + ASK_S_MAX)
        connection.close()
    except KraftfastError:
        return
    if cluster.cluster_id == cluster_id:
        raise InvalidOption(
            f"cluster {cluster_id} has a quorum, led by replica {leader.node_id}: format with "
            "--no-initial-controllers, start the replica, then kraftfast quorum add-controller "
            "(after remove-controller, if its id is still a voter)"
        )
