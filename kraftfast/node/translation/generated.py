# Made by tools/plain.py from the tables of wire/messages.py: make generate.
"""Between the core's messages and Kafka's, field by field: see ``translate``.

``more``: what is translated by hand; ``inside``: of that, what stands in the partition. ``fields``:
the one partition of a message.
"""

from __future__ import annotations

from kraftfast.core import messages as core
from kraftfast.node.translation.wire_values import FieldValue, Partition, error_code
from kraftfast.types import METADATA_PARTITION, OffsetAndEpoch, ReplicaKey
from kraftfast.wire import messages as wire
from kraftfast.wire.fetch import PartitionFetch, PartitionFetched
from kraftfast.wire.frame import WireMessage

Inside = dict[str, FieldValue] | None


def fetch_request_to_wire(
    message: core.FetchRequest, partition: Partition, **more: FieldValue
) -> PartitionFetch:
    """Return FetchRequest, flat."""
    return PartitionFetch(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=METADATA_PARTITION,
        cluster_id=message.cluster_id,
        replica_id=message.replica.id,
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        current_leader_epoch=message.epoch,
        fetch_offset=message.fetch_offset,
        last_fetched_epoch=message.last_fetched_epoch,
        replica_directory_id=message.replica.directory_id,
        high_watermark=message.high_watermark,
        **more,
    )


def fetch_request_from_wire(message: PartitionFetch, **more: FieldValue) -> core.FetchRequest:
    """Return FetchRequest."""
    return core.FetchRequest(
        cluster_id=message.cluster_id,
        replica=ReplicaKey(message.replica_id, message.replica_directory_id),
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        epoch=message.current_leader_epoch,
        fetch_offset=message.fetch_offset,
        last_fetched_epoch=message.last_fetched_epoch,
        high_watermark=message.high_watermark,
        **more,
    )


def fetch_response_to_wire(
    message: core.FetchResponse, partition: Partition, **more: FieldValue
) -> PartitionFetched:
    """Return FetchResponse, flat."""
    return PartitionFetched(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=METADATA_PARTITION,
        partition_error_code=message.partition_error,
        high_watermark=message.high_watermark,
        log_start_offset=message.log_start_offset,
        **more,
    )


def fetch_response_from_wire(message: PartitionFetched, **more: FieldValue) -> core.FetchResponse:
    """Return FetchResponse."""
    return core.FetchResponse(
        partition_error=error_code(message.partition_error_code),
        high_watermark=message.high_watermark,
        log_start_offset=message.log_start_offset,
        **more,
    )


def vote_request_to_wire(
    message: core.VoteRequest, partition: Partition, inside: Inside = None, **more: FieldValue
) -> WireMessage:
    """Return VoteRequest."""
    kind = wire.VoteRequest
    fields = kind.Partition(
        partition_index=METADATA_PARTITION,
        replica_epoch=message.epoch,
        replica_id=message.replica.id,
        replica_directory_id=message.replica.directory_id,
        voter_directory_id=message.voter.directory_id,
        last_offset_epoch=message.last_epoch,
        last_offset=message.last_offset,
        pre_vote=message.pre_vote,
        unanimous=message.unanimous,
        voters_offset=message.voters_at.offset,
        voters_epoch=message.voters_at.epoch,
        **(inside or {}),
    )
    topic = kind.Topic(topic_name=partition.topic, partitions=[fields])
    return kind(
        cluster_id=message.cluster_id,
        voter_id=message.voter.id,
        topics=[topic],
        **more,
    )


def vote_request_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.VoteRequest:
    """Return VoteRequest."""
    return core.VoteRequest(
        cluster_id=message.cluster_id,
        voter=ReplicaKey(message.voter_id, fields.voter_directory_id),
        epoch=fields.replica_epoch,
        replica=ReplicaKey(fields.replica_id, fields.replica_directory_id),
        last_epoch=fields.last_offset_epoch,
        last_offset=fields.last_offset,
        pre_vote=fields.pre_vote,
        unanimous=fields.unanimous,
        voters_at=OffsetAndEpoch(fields.voters_offset, fields.voters_epoch),
        **more,
    )


def vote_response_to_wire(
    message: core.VoteResponse, partition: Partition, inside: Inside = None, **more: FieldValue
) -> WireMessage:
    """Return VoteResponse."""
    kind = wire.VoteResponse
    fields = kind.Partition(
        partition_index=METADATA_PARTITION,
        error_code=message.partition_error,
        leader_id=message.leader_id,
        leader_epoch=message.leader_epoch,
        vote_granted=message.vote_granted,
        in_doubt=message.in_doubt,
        has_no_log=message.has_no_log,
        voters_committed=message.voters_committed,
        **(inside or {}),
    )
    topic = kind.Topic(topic_name=partition.topic, partitions=[fields])
    return kind(
        topics=[topic],
        **more,
    )


def vote_response_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.VoteResponse:
    """Return VoteResponse."""
    return core.VoteResponse(
        partition_error=error_code(fields.error_code),
        leader_id=fields.leader_id,
        leader_epoch=fields.leader_epoch,
        vote_granted=fields.vote_granted,
        in_doubt=fields.in_doubt,
        has_no_log=fields.has_no_log,
        voters_committed=fields.voters_committed,
        **more,
    )


def begin_quorum_epoch_request_to_wire(
    message: core.BeginQuorumEpochRequest,
    partition: Partition,
    inside: Inside = None,
    **more: FieldValue,
) -> WireMessage:
    """Return BeginQuorumEpochRequest."""
    kind = wire.BeginQuorumEpochRequest
    fields = kind.Partition(
        partition_index=METADATA_PARTITION,
        voter_directory_id=message.voter.directory_id,
        leader_id=message.leader_id,
        leader_epoch=message.epoch,
        **(inside or {}),
    )
    topic = kind.Topic(topic_name=partition.topic, partitions=[fields])
    return kind(
        cluster_id=message.cluster_id,
        voter_id=message.voter.id,
        topics=[topic],
        **more,
    )


def begin_quorum_epoch_request_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.BeginQuorumEpochRequest:
    """Return BeginQuorumEpochRequest."""
    return core.BeginQuorumEpochRequest(
        cluster_id=message.cluster_id,
        voter=ReplicaKey(message.voter_id, fields.voter_directory_id),
        leader_id=fields.leader_id,
        epoch=fields.leader_epoch,
        **more,
    )


def begin_quorum_epoch_response_to_wire(
    message: core.QuorumEpochResponse,
    partition: Partition,
    inside: Inside = None,
    **more: FieldValue,
) -> WireMessage:
    """Return BeginQuorumEpochResponse."""
    kind = wire.BeginQuorumEpochResponse
    fields = kind.Partition(
        partition_index=METADATA_PARTITION,
        error_code=message.partition_error,
        leader_id=message.leader_id,
        leader_epoch=message.leader_epoch,
        **(inside or {}),
    )
    topic = kind.Topic(topic_name=partition.topic, partitions=[fields])
    return kind(
        topics=[topic],
        **more,
    )


def begin_quorum_epoch_response_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.QuorumEpochResponse:
    """Return QuorumEpochResponse."""
    return core.QuorumEpochResponse(
        partition_error=error_code(fields.error_code),
        leader_id=fields.leader_id,
        leader_epoch=fields.leader_epoch,
        **more,
    )


def end_quorum_epoch_request_to_wire(
    message: core.EndQuorumEpochRequest,
    partition: Partition,
    inside: Inside = None,
    **more: FieldValue,
) -> WireMessage:
    """Return EndQuorumEpochRequest."""
    kind = wire.EndQuorumEpochRequest
    fields = kind.Partition(
        partition_index=METADATA_PARTITION,
        leader_id=message.leader_id,
        leader_epoch=message.epoch,
        **(inside or {}),
    )
    topic = kind.Topic(topic_name=partition.topic, partitions=[fields])
    return kind(
        cluster_id=message.cluster_id,
        topics=[topic],
        **more,
    )


def end_quorum_epoch_request_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.EndQuorumEpochRequest:
    """Return EndQuorumEpochRequest."""
    return core.EndQuorumEpochRequest(
        cluster_id=message.cluster_id,
        leader_id=fields.leader_id,
        epoch=fields.leader_epoch,
        **more,
    )


def end_quorum_epoch_response_to_wire(
    message: core.QuorumEpochResponse,
    partition: Partition,
    inside: Inside = None,
    **more: FieldValue,
) -> WireMessage:
    """Return EndQuorumEpochResponse."""
    kind = wire.EndQuorumEpochResponse
    fields = kind.Partition(
        partition_index=METADATA_PARTITION,
        error_code=message.partition_error,
        leader_id=message.leader_id,
        leader_epoch=message.leader_epoch,
        **(inside or {}),
    )
    topic = kind.Topic(topic_name=partition.topic, partitions=[fields])
    return kind(
        topics=[topic],
        **more,
    )


def end_quorum_epoch_response_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.QuorumEpochResponse:
    """Return QuorumEpochResponse."""
    return core.QuorumEpochResponse(
        partition_error=error_code(fields.error_code),
        leader_id=fields.leader_id,
        leader_epoch=fields.leader_epoch,
        **more,
    )


def fetch_snapshot_request_to_wire(
    message: core.FetchSnapshotRequest,
    partition: Partition,
    inside: Inside = None,
    **more: FieldValue,
) -> WireMessage:
    """Return FetchSnapshotRequest."""
    kind = wire.FetchSnapshotRequest
    fields = kind.Partition(
        partition=METADATA_PARTITION,
        current_leader_epoch=message.epoch,
        snapshot_id=kind.SnapshotId(
            end_offset=message.snapshot_id.offset,
            epoch=message.snapshot_id.epoch,
        ),
        position=message.position,
        replica_directory_id=message.replica.directory_id,
        **(inside or {}),
    )
    topic = kind.Topic(name=partition.topic, partitions=[fields])
    return kind(
        cluster_id=message.cluster_id,
        replica_id=message.replica.id,
        max_bytes=message.max_bytes,
        topics=[topic],
        **more,
    )


def fetch_snapshot_request_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.FetchSnapshotRequest:
    """Return FetchSnapshotRequest."""
    return core.FetchSnapshotRequest(
        cluster_id=message.cluster_id,
        replica=ReplicaKey(message.replica_id, fields.replica_directory_id),
        max_bytes=message.max_bytes,
        epoch=fields.current_leader_epoch,
        snapshot_id=OffsetAndEpoch(fields.snapshot_id.end_offset, fields.snapshot_id.epoch),
        position=fields.position,
        **more,
    )


def fetch_snapshot_response_to_wire(
    message: core.FetchSnapshotResponse,
    partition: Partition,
    inside: Inside = None,
    **more: FieldValue,
) -> WireMessage:
    """Return FetchSnapshotResponse."""
    kind = wire.FetchSnapshotResponse
    fields = kind.Partition(
        index=METADATA_PARTITION,
        error_code=message.partition_error,
        snapshot_id=kind.SnapshotId(
            end_offset=message.snapshot_id.offset,
            epoch=message.snapshot_id.epoch,
        ),
        current_leader=kind.CurrentLeader(
            leader_id=message.leader_id,
            leader_epoch=message.leader_epoch,
        ),
        size=message.size,
        position=message.position,
        **(inside or {}),
    )
    topic = kind.Topic(name=partition.topic, partitions=[fields])
    return kind(
        topics=[topic],
        **more,
    )


def fetch_snapshot_response_from_wire(
    message: WireMessage, fields: WireMessage, **more: FieldValue
) -> core.FetchSnapshotResponse:
    """Return FetchSnapshotResponse."""
    return core.FetchSnapshotResponse(
        partition_error=error_code(fields.error_code),
        snapshot_id=OffsetAndEpoch(fields.snapshot_id.end_offset, fields.snapshot_id.epoch),
        leader_id=fields.current_leader.leader_id,
        leader_epoch=fields.current_leader.leader_epoch,
        size=fields.size,
        position=fields.position,
        **more,
    )


def add_raft_voter_request_to_wire(
    message: core.AddRaftVoterRequest, **more: FieldValue
) -> WireMessage:
    """Return AddRaftVoterRequest."""
    kind = wire.AddRaftVoterRequest
    return kind(
        cluster_id=message.cluster_id,
        timeout_ms=message.timeout_ms,
        voter_id=message.voter.id,
        voter_directory_id=message.voter.directory_id,
        ack_when_committed=message.ack_when_committed,
        **more,
    )


def add_raft_voter_request_from_wire(
    message: WireMessage, **more: FieldValue
) -> core.AddRaftVoterRequest:
    """Return AddRaftVoterRequest."""
    return core.AddRaftVoterRequest(
        cluster_id=message.cluster_id,
        timeout_ms=message.timeout_ms,
        voter=ReplicaKey(message.voter_id, message.voter_directory_id),
        ack_when_committed=message.ack_when_committed,
        **more,
    )


def add_raft_voter_response_to_wire(
    message: core.AddRaftVoterResponse, **more: FieldValue
) -> WireMessage:
    """Return AddRaftVoterResponse."""
    kind = wire.AddRaftVoterResponse
    return kind(
        error_code=message.error,
        error_message=message.message,
        **more,
    )


def add_raft_voter_response_from_wire(
    message: WireMessage, **more: FieldValue
) -> core.AddRaftVoterResponse:
    """Return AddRaftVoterResponse."""
    return core.AddRaftVoterResponse(
        error=error_code(message.error_code),
        message=message.error_message,
        **more,
    )


def remove_raft_voter_request_to_wire(
    message: core.RemoveRaftVoterRequest, **more: FieldValue
) -> WireMessage:
    """Return RemoveRaftVoterRequest."""
    kind = wire.RemoveRaftVoterRequest
    return kind(
        cluster_id=message.cluster_id,
        voter_id=message.voter.id,
        voter_directory_id=message.voter.directory_id,
        **more,
    )


def remove_raft_voter_request_from_wire(
    message: WireMessage, **more: FieldValue
) -> core.RemoveRaftVoterRequest:
    """Return RemoveRaftVoterRequest."""
    return core.RemoveRaftVoterRequest(
        cluster_id=message.cluster_id,
        voter=ReplicaKey(message.voter_id, message.voter_directory_id),
        **more,
    )


def remove_raft_voter_response_to_wire(
    message: core.RemoveRaftVoterResponse, **more: FieldValue
) -> WireMessage:
    """Return RemoveRaftVoterResponse."""
    kind = wire.RemoveRaftVoterResponse
    return kind(
        error_code=message.error,
        error_message=message.message,
        **more,
    )


def remove_raft_voter_response_from_wire(
    message: WireMessage, **more: FieldValue
) -> core.RemoveRaftVoterResponse:
    """Return RemoveRaftVoterResponse."""
    return core.RemoveRaftVoterResponse(
        error=error_code(message.error_code),
        message=message.error_message,
        **more,
    )


def update_raft_voter_request_to_wire(
    message: core.UpdateRaftVoterRequest, **more: FieldValue
) -> WireMessage:
    """Return UpdateRaftVoterRequest."""
    kind = wire.UpdateRaftVoterRequest
    return kind(
        cluster_id=message.cluster_id,
        current_leader_epoch=message.epoch,
        voter_id=message.voter.id,
        voter_directory_id=message.voter.directory_id,
        kraft_version_feature=kind.KRaftVersionFeature(
            min_supported_version=message.kraft_version_min,
            max_supported_version=message.kraft_version_max,
        ),
        **more,
    )


def update_raft_voter_request_from_wire(
    message: WireMessage, **more: FieldValue
) -> core.UpdateRaftVoterRequest:
    """Return UpdateRaftVoterRequest."""
    return core.UpdateRaftVoterRequest(
        cluster_id=message.cluster_id,
        epoch=message.current_leader_epoch,
        voter=ReplicaKey(message.voter_id, message.voter_directory_id),
        kraft_version_min=message.kraft_version_feature.min_supported_version,
        kraft_version_max=message.kraft_version_feature.max_supported_version,
        **more,
    )
