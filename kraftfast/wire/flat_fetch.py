"""From the tables' Fetch messages to the fields of the flat ones of ``fetch``."""

from __future__ import annotations

from typing import Any

from kraftfast.wire import flat


def request_fields(message: Any) -> dict[str, Any] | None:
    """Those of a ``messages.FetchRequest``; None if it does not name just one partition."""
    sole = flat.sole_partition(message.topics, "partitions")
    if sole is None or message.forgotten_topics_data:
        return None
    topic, p = sole
    state = message.replica_state
    return {
        "cluster_id": message.cluster_id,
        "replica_id": message.replica_id if state.replica_id == -1 else state.replica_id,
        "replica_epoch": state.replica_epoch,
        "max_wait_ms": message.max_wait_ms,
        "min_bytes": message.min_bytes,
        "max_bytes": message.max_bytes,
        "isolation_level": message.isolation_level,
        "session_id": message.session_id,
        "session_epoch": message.session_epoch,
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "partition": p.partition,
        "current_leader_epoch": p.current_leader_epoch,
        "fetch_offset": p.fetch_offset,
        "last_fetched_epoch": p.last_fetched_epoch,
        "log_start_offset": p.log_start_offset,
        "partition_max_bytes": p.partition_max_bytes,
        "replica_directory_id": p.replica_directory_id,
        "high_watermark": p.high_watermark,
        "durability": p.durability,
        "observer_endpoints": p.observer_endpoints,
        "observer_kraft_versions": p.observer_kraft_versions,
        "rack_id": message.rack_id,
    }


def response_fields(message: Any) -> dict[str, Any] | None:
    """Those of a ``messages.FetchResponse``; None if it does not hold just one partition."""
    sole = flat.sole_partition(message.responses, "partitions")
    if sole is None:
        return None
    topic, p = sole
    return {
        "throttle_time_ms": message.throttle_time_ms,
        "error_code": message.error_code,
        "session_id": message.session_id,
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "partition": p.partition_index,
        "partition_error_code": p.error_code,
        "high_watermark": p.high_watermark,
        "last_stable_offset": p.last_stable_offset,
        "log_start_offset": p.log_start_offset,
        "diverging_epoch": p.diverging_epoch.epoch,
        "diverging_end_offset": p.diverging_epoch.end_offset,
        "leader_id": p.current_leader.leader_id,
        "leader_epoch": p.current_leader.leader_epoch,
        "snapshot_end_offset": p.snapshot_id.end_offset,
        "snapshot_epoch": p.snapshot_id.epoch,
        "aborted_transactions": p.aborted_transactions,
        "preferred_read_replica": p.preferred_read_replica,
        "records": p.records,
        "node_endpoints": message.node_endpoints,
    }
