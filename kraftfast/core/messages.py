"""What replicas say to each other, as the core sees it: the partition's part of each RPC.

A quorum has one topic and one partition, so the arrays of Kafka's messages are flattened away;
``node/`` translates to and from frames. ``partition_known`` is False when a request did not name
exactly that one partition: the core answers INVALID_REQUEST in Kafka's order of checks.
Fields marked "tag of ours" travel as tagged fields that Kafka skips: ``in_memory``, ``unanimous``,
``in_doubt``, ``has_no_log``, ``voters_committed``, ``voters_at``, ``leader_identity``,
``observer_endpoints`` and ``observer_kraft_versions``. ``stream``, ``opens`` and
``copied_end_offset`` travel over rings only.
Fields and meanings: KIP-595, KIP-853, KIP-996, KIP-1166.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import Struct

from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, Endpoint, OffsetAndEpoch, ReplicaKey, Uuid

NO_REPLICA = ReplicaKey(-1)
NOWHERE = OffsetAndEpoch(-1, -1)
HIGH_WATERMARK_UNASKED = 2**63 - 1
"""A Fetch below v18 has no high watermark field: it never gets the early answer of KIP-1166."""


class LeaderIdentity(NamedTuple):
    """Tags of ours beside a leader's endpoints: which directory it is, and where its voters stand.

    ``voters_at``: offset and epoch of the voters record that it counts by, as far as the sender
    knows; offset -1: none is in its log. ``committed``: the sender knows that a voters record of
    the log is committed, so that configurations no longer count.
    """

    directory_id: Uuid
    voters_at: OffsetAndEpoch
    committed: bool = False


UNSAID = LeaderIdentity(ZERO_UUID, OffsetAndEpoch(-2, -1))
"""The identity in a message whose sender does not support these tags."""


class VoteRequest(Struct):
    """Vote (52): ``last_offset`` is an exclusive end, ``last_epoch`` that of the last record."""

    epoch: int
    replica: ReplicaKey
    last_epoch: int
    last_offset: int
    pre_vote: bool = False
    unanimous: bool = False  # tag of ours: the sender leads only if every voter grants (D10)
    voters_at: OffsetAndEpoch = UNSAID.voters_at  # tag of ours: where its voter set stands (D23)
    voter: ReplicaKey = NO_REPLICA  # whom the sender means to ask; id -1: not said (v0)
    cluster_id: str | None = None
    partition_known: bool = True
    speaks_pre_vote: bool = True  # Vote v2 or later, or a ring


class VoteResponse(Struct):
    """Answer to Vote. ``error`` is the top-level code, ``partition_error`` the partition's."""

    error: ErrorCode = ErrorCode.NONE
    partition_error: ErrorCode = ErrorCode.NONE
    leader_id: int = -1
    leader_epoch: int = -1
    vote_granted: bool = False
    in_doubt: bool = False  # tag of ours: the sender's log has an uncertain end (D10)
    has_no_log: bool = False  # tag of ours: refused for that doubt alone, by one without a log
    voters_committed: bool = False  # tag of ours: the sender knows a committed voters record (D23)
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_identity: LeaderIdentity = UNSAID


class BeginQuorumEpochRequest(Struct):
    """BeginQuorumEpoch (53): ``leader_id`` leads ``epoch``."""

    epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_identity: LeaderIdentity = UNSAID
    voter: ReplicaKey = NO_REPLICA
    cluster_id: str | None = None
    partition_known: bool = True


class EndQuorumEpochRequest(Struct):
    """EndQuorumEpoch (54): ``leader_id`` resigned ``epoch``; successors by preference."""

    epoch: int
    leader_id: int
    preferred_candidates: tuple[ReplicaKey, ...] = ()
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_identity: LeaderIdentity = UNSAID
    cluster_id: str | None = None
    partition_known: bool = True


class QuorumEpochResponse(Struct):
    """Answer to BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode = ErrorCode.NONE
    partition_error: ErrorCode = ErrorCode.NONE
    leader_id: int = -1
    leader_epoch: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_identity: LeaderIdentity = UNSAID


@dataclass
class FetchRequest:
    """Fetch (1) by a replica; ``fetch_offset`` is its acknowledgement and never unflushed (D3).

    ``stream`` 0 is Kafka's request and answer: reading goes on where the acknowledgement is.
    Over a ring a replica opens a stream (a number that it never used on this ring) by a Fetch with
    ``opens``; the leader validates that one as Kafka does and then pushes. Later requests of the
    stream only move ``fetch_offset`` (the ack) and ``copied_end_offset`` (flow control);
    one of another epoch or stream is dropped.
    """

    epoch: int
    replica: ReplicaKey
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int = HIGH_WATERMARK_UNASKED  # what the sender knows, -1 if nothing
    max_wait_ms: int = 0
    max_bytes: int = 0x7FFFFFFF
    stream: int = 0
    opens: bool = False
    copied_end_offset: int = -1  # streams only
    in_memory: bool = False  # tag of ours, durability=memory: a durable leader does not count it
    cluster_id: str | None = None
    partition_known: bool = True
    observer_endpoints: tuple[Endpoint, ...] = ()  # tag of ours: where it can be reached as a voter
    observer_kraft_versions: tuple[int, ...] = ()  # tag of ours: least and most that it speaks


@dataclass
class FetchResponse:
    """Answer to Fetch without its records, which stay with the node (see ``AnswerFetch``)."""

    error: ErrorCode = ErrorCode.NONE
    partition_error: ErrorCode = ErrorCode.NONE
    leader_id: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_identity: LeaderIdentity = UNSAID
    stream: int = 0
    records_bytes: int = 0  # on the receiving side: how many bytes of records came with it


class FetchSnapshotRequest(Struct):
    """FetchSnapshot (59): ``max_bytes`` of a snapshot from ``position`` on (KIP-630)."""

    epoch: int
    replica: ReplicaKey
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int = 0x7FFFFFFF
    cluster_id: str | None = None
    partition_known: bool = True  # exactly one topic with one partition
    ours: bool = True  # and that is this quorum's


class FetchSnapshotResponse(Struct):
    """Answer to FetchSnapshot without its bytes, which stay with the node."""

    error: ErrorCode = ErrorCode.NONE
    partition_error: ErrorCode = ErrorCode.NONE
    leader_id: int = -1
    leader_epoch: int = -1
    snapshot_id: OffsetAndEpoch = NOWHERE
    size: int = -1  # of the whole snapshot; the node fills it in
    position: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_identity: LeaderIdentity = UNSAID
    records_bytes: int = 0  # on the receiving side: how many bytes came with it


# --- membership (KIP-853) and reassignment (KIP-642) ------------------------------------------


class AddRaftVoterRequest(Struct):
    """AddRaftVoter (80). A replica that joins sends a time-out, as Kafka's; leaders ignore it."""

    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    timeout_ms: int = 0
    ack_when_committed: bool = True  # KIP-1186: False answers as soon as it is appended
    cluster_id: str | None = None


class RemoveRaftVoterRequest(Struct):
    """RemoveRaftVoter (81)."""

    voter: ReplicaKey
    cluster_id: str | None = None


class UpdateRaftVoterRequest(Struct):
    """UpdateRaftVoter (82): a voter tells the leader of ``epoch`` where it listens now."""

    epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_version_min: int
    kraft_version_max: int
    cluster_id: str | None = None


class UpdateFeaturesRequest(Struct):
    """UpdateFeatures (57), as far as it asks for a ``kraft.version``."""

    kraft_version: int
    timeout_ms: int = 60_000
    validate_only: bool = False


class AlterPartitionReassignmentsRequest(Struct):
    """AlterPartitionReassignments (45): let these ids be the voters; None cancels (KIP-642)."""

    target: tuple[int, ...] | None
    timeout_ms: int = 60_000


class ListPartitionReassignmentsRequest(Struct):
    """ListPartitionReassignments (46)."""


class AddRaftVoterResponse(Struct):
    """Answer to AddRaftVoter; ``message`` says what to do about an error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class RemoveRaftVoterResponse(Struct):
    """Answer to RemoveRaftVoter."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class UpdateRaftVoterResponse(Struct):
    """Answer to UpdateRaftVoter: its one error code is ``partition_error`` here."""

    error: ErrorCode = ErrorCode.NONE
    partition_error: ErrorCode = ErrorCode.NONE
    leader_id: int = -1
    leader_epoch: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_identity: LeaderIdentity = UNSAID
    message: str | None = None  # has no field on the wire: for the log


class UpdateFeaturesResponse(Struct):
    """Answer to UpdateFeatures."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class AlterPartitionReassignmentsResponse(Struct):
    """Answer to AlterPartitionReassignments."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ListPartitionReassignmentsResponse(Struct):
    """Answer to ListPartitionReassignments; ``target`` None: none is under way."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    voter_ids: tuple[int, ...] = ()
    target: tuple[int, ...] | None = None


# --- ours: no message of Kafka's says this --------------------------------------------------


class TransferResponse(Struct):
    """Answer to ``TransferRequested``."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ReadBarrierRequest(Struct):
    """A replica asks its leader for a reader of its own (ReadIndex)."""

    timeout_ms: int
    cluster_id: str | None = None


class ReadBarrierResponse(Struct):
    """Answer to ReadBarrierRequest: ``offset`` is the leader's high watermark when it was asked."""

    error: ErrorCode = ErrorCode.NONE
    offset: int = -1
    leader_id: int = -1
    leader_epoch: int = -1


Source = Any
"""What a request came from: opaque here, and handed back in the effect that answers it.

``Source`` of ``node/ports.py``: a ``SessionRequest``, or over a ring a ``RingRequest``.
"""
Payload = Any
"""What came with a response: opaque here, and handed back in the effect that writes it.

Records over a ring: the ``RingPeer``; over TCP: ``FetchedBytes``; a slice: the wire message.
"""

Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest
    | UpdateFeaturesRequest
    | AlterPartitionReassignmentsRequest
    | ListPartitionReassignmentsRequest
    | ReadBarrierRequest
)
ChangeVoterResponse = (
    AddRaftVoterResponse
    | RemoveRaftVoterResponse
    | UpdateRaftVoterResponse
    | UpdateFeaturesResponse
    | AlterPartitionReassignmentsResponse
)
Response = (
    VoteResponse
    | QuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ChangeVoterResponse
    | ListPartitionReassignmentsResponse
    | TransferResponse
    | ReadBarrierResponse
)
