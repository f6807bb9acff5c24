"""What a replica says of itself when it is asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kraftfast.types import uuid_text

if TYPE_CHECKING:
    from kraftfast.node.node import Node


def status(node: Node) -> dict[str, Any]:
    """Return identity, role, ends, counters, stages (microseconds) and Kafka's metrics."""
    view = node.stats.view()
    words: dict[str, Any] = view.as_dict()
    return (
        {
            "node_id": node.config.node_id,
            "directory_id": uuid_text(node.key.directory_id),
            "cluster_id": node.cluster_id,
            "directory": node.config.directory,
            "pid": os.getpid(),
            "durability": node.durability,
            "flush": node.config.flush,
            "records_accepted": node.directory.options.records,
            "witness": node.witness,
            "campaigns": node.quorum_config.campaign,
            "topic": node.directory.options.topic,
            "in_doubt": node.core.in_doubt,
            "warning": node.core.warning,
            "voters": list(node.voters.ids),
            "kraft_version": node.core.kraft_version,
            "endpoints": [list(each) for each in node.config.endpoints],
            "links": sorted(node.links),
            "producers": len(node.ring_producers.producers),
            "rss_bytes": node.host.memory_bytes(),
            "nursery_error": str(node.log.error or ""),
            "other_flushes": node.log.syncs + node.log.nursery.flushes,
            "sleeps": node.idle.sleeps,
            "truncations": node.log.truncations,
        }
        | words
        | {"stages": view.stages_dict(), "metrics": node.metrics.as_dict()}
    )
