"""Every request and response that we speak: Kafka's field tables, turned into classes.

    VoteRequest(cluster_id="x", topics=[VoteRequest.Topic(topic_name="t", partitions=[...])])

A class is made when it is first used. It has Kafka's field names in snake_case as attributes, and
Kafka's defaults; the structs inside are attributes of the message's class, by the field's name in
the singular. How they are encoded and decoded: :class:`kraftfast.wire.schema.Message`. Notation:
``notation.py``.
Uuids are 16 raw bytes, error codes plain integers (a peer may know more of them than we do).
Source: Kafka's message definitions, by KIP-595, 630, 853, 996, 1166 and the data plane's.
"""

from __future__ import annotations

from typing import Any

from kraftfast.wire import client_messages, tags  # noqa: F401  (its tables are found here, too)
from kraftfast.wire.apis import REQUESTS, RESPONSES, SERVED, SIDE_OF, ApiKey, api  # noqa: F401

LISTENER = "Name:str; Host:str; Port:u16"
VOTERS_AT = f"""VotersOffset:i64=-2 #{tags.VOTERS_OFFSET} ign > voters_at.offset
    VotersEpoch:i32=-1 #{tags.VOTERS_EPOCH} ign > voters_at.epoch"""
IDENTITY = f"""DirectoryId:uuid #{tags.LEADER_DIRECTORY} ign; {VOTERS_AT}
    VotersCommitted:bool #{tags.VOTERS_COMMITTED} ign"""
LEADER_ENDPOINTS = f"LeaderEndpoints[{LISTENER}; {IDENTITY}]@1+ ign"
RAFT_NODE_ENDPOINTS = f"NodeEndpoints[NodeId:i32; Host:str; Port:u16; {IDENTITY}]@1+ #0"
NODE_ENDPOINT = "NodeId:i32; Host:str; Port:i32; Rack:str?=null"
CURRENT_LEADER = "CurrentLeader{LeaderId:i32=-1; LeaderEpoch:i32=-1}"
SNAPSHOT_ID = "SnapshotId{EndOffset:i64 > snapshot_id.offset; Epoch:i32 > snapshot_id.epoch}"
REPLICA_STATE = """
    ReplicaId:i32; ReplicaDirectoryId:uuid@2+; LogEndOffset:i64
    LastFetchTimestamp:i64@1+=-1 ign; LastCaughtUpTimestamp:i64@1+=-1 ign"""

# --- records in and out -----------------------------------------------------------------------

api(
    ApiKey.PRODUCE,
    "Produce",
    served="3-13",
    flexible="9+",
    request="""
        TransactionalId:str?@3+=null
        Acks:i16
        TimeoutMs:i32
        TopicData[
            Name:str@0-12 ign
            TopicId:uuid@13+ ign
            PartitionData[Index:i32; Records:records?=null]
        ]""",
    response=f"""
        Responses[
            Name:str@0-12 ign
            TopicId:uuid@13+ ign
            PartitionResponses[
                Index:i32
                ErrorCode:i16
                BaseOffset:i64
                LogAppendTimeMs:i64@2+=-1 ign
                LogStartOffset:i64@5+=-1 ign
                RecordErrors[BatchIndex:i32; BatchIndexErrorMessage:str?=null]@8+ ign
                ErrorMessage:str?@8+=null ign
                {CURRENT_LEADER}@10+ #0
            ]
        ]
        ThrottleTimeMs:i32@1+ ign
        NodeEndpoints[{NODE_ENDPOINT}]@10+ #0""",
)

api(
    ApiKey.FETCH,
    "Fetch",
    served="4-18",
    flexible="12+",
    request=f"""
        ClusterId:str?@12+=null #0 ign > cluster_id
        ReplicaId:i32@0-14=-1 > replica.id
        ReplicaState{{ReplicaId:i32=-1 > replica.id; ReplicaEpoch:i64=-1}}@15+ #1
        MaxWaitMs:i32 > max_wait_ms
        MinBytes:i32
        MaxBytes:i32@3+=0x7fffffff ign > max_bytes
        IsolationLevel:i8@4+ ign
        SessionId:i32@7+ ign
        SessionEpoch:i32@7+=-1 ign
        Topics[
            Topic:str@0-12 ign
            TopicId:uuid@13+ ign
            Partitions[
                Partition:i32
                CurrentLeaderEpoch:i32@9+=-1 ign > epoch
                FetchOffset:i64 > fetch_offset
                LastFetchedEpoch:i32@12+=-1 > last_fetched_epoch
                LogStartOffset:i64@5+=-1 ign
                PartitionMaxBytes:i32
                ReplicaDirectoryId:uuid@17+ #0 ign > replica.directory_id
                HighWatermark:i64@18+=0x7fffffffffffffff #1 ign > high_watermark
                Durability:i8@13+ #{tags.DURABILITY} ign
                ObserverEndpoints[{LISTENER}]@13+ #{tags.OBSERVER_ENDPOINTS} ign
                ObserverKRaftVersions:[i16]@13+ #{tags.OBSERVER_VERSIONS} ign
            ]
        ]
        ForgottenTopicsData[
            Topic:str@0-12 ign
            TopicId:uuid@13+ ign
            Partitions:[i32]
        ]@7+
        RackId:str@11+ ign""",
    response=f"""
        ThrottleTimeMs:i32@1+ ign
        ErrorCode:i16@7+ ign; SessionId:i32@7+
        Responses[
            Topic:str@0-12 ign
            TopicId:uuid@13+ ign
            Partitions[
                PartitionIndex:i32
                ErrorCode:i16 > partition_error
                HighWatermark:i64 > high_watermark
                LastStableOffset:i64@4+=-1 ign
                LogStartOffset:i64@5+=-1 ign > log_start_offset
                DivergingEpoch{{Epoch:i32=-1; EndOffset:i64=-1}}@12+ #0
                {CURRENT_LEADER}@12+ #1
                SnapshotId{{EndOffset:i64=-1; Epoch:i32=-1}}@12+ #2
                AbortedTransactions[ProducerId:i64; FirstOffset:i64]?@4+ ign
                PreferredReadReplica:i32@11+=-1; Records:records?=null
            ]
        ]
        NodeEndpoints[{NODE_ENDPOINT}; {IDENTITY}]@16+ #0""",
)

api(
    ApiKey.FETCH_SNAPSHOT,
    "FetchSnapshot",
    served="0-1",
    flexible="0+",
    request=f"""
        ClusterId:str?=null #0 > cluster_id
        ReplicaId:i32=-1 > replica.id
        MaxBytes:i32=0x7fffffff > max_bytes
        Topics[
            Name:str
            Partitions[
                Partition:i32
                CurrentLeaderEpoch:i32 > epoch
                {SNAPSHOT_ID}
                Position:i64 > position
                ReplicaDirectoryId:uuid@1+ #0 ign > replica.directory_id
            ]
        ]""",
    response=f"""
        ThrottleTimeMs:i32 ign
        ErrorCode:i16
        Topics[
            Name:str
            Partitions[
                Index:i32
                ErrorCode:i16 > partition_error
                {SNAPSHOT_ID}
                CurrentLeader{{LeaderId:i32 > leader_id; LeaderEpoch:i32 > leader_epoch}} #0
                Size:i64 > size
                Position:i64 > position
                UnalignedRecords:records
            ]
        ]
        {RAFT_NODE_ENDPOINTS}""",
)

# --- elections and epochs ---------------------------------------------------------------------

api(
    ApiKey.VOTE,
    "Vote",
    served="0-2",
    flexible="0+",
    request=f"""
        ClusterId:str?=null > cluster_id
        VoterId:i32@1+=-1 ign > voter.id
        Topics[
            TopicName:str
            Partitions[
                PartitionIndex:i32
                ReplicaEpoch:i32 > epoch
                ReplicaId:i32 > replica.id
                ReplicaDirectoryId:uuid@1+ ign > replica.directory_id
                VoterDirectoryId:uuid@1+ ign > voter.directory_id
                LastOffsetEpoch:i32 > last_epoch
                LastOffset:i64 > last_offset
                PreVote:bool@2+ > pre_vote
                Unanimous:bool #{tags.UNANIMOUS} ign > unanimous
                {VOTERS_AT}
            ]
        ]""",
    response=f"""
        ErrorCode:i16
        Topics[
            TopicName:str
            Partitions[
                PartitionIndex:i32
                ErrorCode:i16 > partition_error
                LeaderId:i32 > leader_id
                LeaderEpoch:i32 > leader_epoch
                VoteGranted:bool > vote_granted
                InDoubt:bool #{tags.IN_DOUBT} ign > in_doubt
                HasNoLog:bool #{tags.HAS_NO_LOG} ign > has_no_log
                VotersCommitted:bool #{tags.VOTERS_COMMITTED} ign > voters_committed
            ]
        ]
        {RAFT_NODE_ENDPOINTS}""",
)

QUORUM_EPOCH_RESPONSE = f"""
    ErrorCode:i16
    Topics[
        TopicName:str
        Partitions[
            PartitionIndex:i32
            ErrorCode:i16 > partition_error
            LeaderId:i32 > leader_id
            LeaderEpoch:i32 > leader_epoch
        ]
    ]
    {RAFT_NODE_ENDPOINTS}"""

api(
    ApiKey.BEGIN_QUORUM_EPOCH,
    "BeginQuorumEpoch",
    served="0-1",
    flexible="1+",
    request=f"""
        ClusterId:str?=null > cluster_id
        VoterId:i32@1+=-1 ign > voter.id
        Topics[
            TopicName:str
            Partitions[
                PartitionIndex:i32
                VoterDirectoryId:uuid@1+ ign > voter.directory_id
                LeaderId:i32 > leader_id
                LeaderEpoch:i32 > epoch
            ]
        ]
        {LEADER_ENDPOINTS}""",
    response=QUORUM_EPOCH_RESPONSE,
)

api(
    ApiKey.END_QUORUM_EPOCH,
    "EndQuorumEpoch",
    served="0-1",
    flexible="1+",
    request=f"""
        ClusterId:str?=null > cluster_id
        Topics[
            TopicName:str
            Partitions[
                PartitionIndex:i32
                LeaderId:i32 > leader_id
                LeaderEpoch:i32 > epoch
                PreferredSuccessors:[i32]@0 ign
                PreferredCandidates[CandidateId:i32; CandidateDirectoryId:uuid]@1+ ign
            ]
        ]
        {LEADER_ENDPOINTS}""",
    response=QUORUM_EPOCH_RESPONSE,
)

# --- the quorum's members and state -----------------------------------------------------------

api(
    ApiKey.DESCRIBE_QUORUM,
    "DescribeQuorum",
    served="0-2",
    flexible="0+",
    request=f"""
        Topics[TopicName:str; Partitions[PartitionIndex:i32]]
        ReadBarrier{{TimeoutMs:i32=-1; FromReplica:bool; ClusterId:str?=null}} #{tags.READ_BARRIER}
    """,
    response=f"""
        ErrorCode:i16
        ErrorMessage:str?@2+ ign
        Topics[
            TopicName:str
            Partitions[
                PartitionIndex:i32
                ErrorCode:i16
                ErrorMessage:str?@2+ ign
                LeaderId:i32; LeaderEpoch:i32
                HighWatermark:i64
                CurrentVoters[{REPLICA_STATE}]
                Observers[{REPLICA_STATE}]
                TargetVoters[{REPLICA_STATE}]?=null #{tags.TARGET_VOTERS}
                EndedTarget:[i32]?=null #{tags.ENDED_TARGET}
                UncommittedVoters:bool #{tags.UNCOMMITTED_VOTERS} ign
            ]
        ]
        Nodes[NodeId:i32; Listeners[{LISTENER}]]@2+
        BarrierOffset:i64=-1 #{tags.READ_BARRIER}
        BarrierLeaderId:i32=-1 #{tags.BARRIER_LEADER} ign""",
)

api(
    ApiKey.ADD_RAFT_VOTER,
    "AddRaftVoter",
    served="0-1",
    flexible="0+",
    request=f"""
        ClusterId:str? > cluster_id
        TimeoutMs:i32 > timeout_ms
        VoterId:i32 > voter.id
        VoterDirectoryId:uuid > voter.directory_id
        Listeners[{LISTENER}]
        AckWhenCommitted:bool@1+=true > ack_when_committed""",
    response="ThrottleTimeMs:i32; ErrorCode:i16 > error; ErrorMessage:str? ign > message",
)

api(
    ApiKey.REMOVE_RAFT_VOTER,
    "RemoveRaftVoter",
    served="0",
    flexible="0+",
    request="""
        ClusterId:str? > cluster_id
        VoterId:i32 > voter.id; VoterDirectoryId:uuid > voter.directory_id""",
    response="ThrottleTimeMs:i32; ErrorCode:i16 > error; ErrorMessage:str? ign > message",
)

api(
    ApiKey.UPDATE_RAFT_VOTER,
    "UpdateRaftVoter",
    served="0",
    flexible="0+",
    request=f"""
        ClusterId:str? > cluster_id
        CurrentLeaderEpoch:i32 > epoch
        VoterId:i32 > voter.id
        VoterDirectoryId:uuid > voter.directory_id
        Listeners[{LISTENER}]
        KRaftVersionFeature{{
            MinSupportedVersion:i16 > kraft_version_min
            MaxSupportedVersion:i16 > kraft_version_max
        }}""",
    response="""
        ThrottleTimeMs:i32
        ErrorCode:i16
        CurrentLeader{LeaderId:i32=-1; LeaderEpoch:i32=-1; Host:str; Port:i32} #0""",
)

api(
    ApiKey.UPDATE_FEATURES,
    "UpdateFeatures",
    served="0-2",
    flexible="0+",
    request="""
        TimeoutMs:i32=60000
        FeatureUpdates[
            Feature:str
            MaxVersionLevel:i16
            AllowDowngrade:bool@0
            UpgradeType:i8@1+=1
        ]
        ValidateOnly:bool@1+""",
    response="""
        ThrottleTimeMs:i32
        ErrorCode:i16
        ErrorMessage:str?
        Results[Feature:str; ErrorCode:i16; ErrorMessage:str?]@0-1 ign""",
)

# --- a connection's beginning -----------------------------------------------------------------

api(
    ApiKey.API_VERSIONS,
    "ApiVersions",
    served="0-5",
    flexible="3+",
    request="""
        ClientSoftwareName:str@3+ ign
        ClientSoftwareVersion:str@3+ ign
        ClusterId:str?@5+=null ign
        NodeId:i32@5+=-1 ign""",
    response="""
        ErrorCode:i16
        ApiKeys[ApiKey:i16; MinVersion:i16; MaxVersion:i16]
        ThrottleTimeMs:i32@1+ ign
        SupportedFeatures[Name:str; MinVersion:i16; MaxVersion:i16]@3+ #0 ign
        FinalizedFeaturesEpoch:i64@3+=-1 #1 ign
        FinalizedFeatures[Name:str; MaxVersionLevel:i16; MinVersionLevel:i16]@3+ #2 ign
        ZkMigrationReady:bool@3+ #3 ign""",
)

api(
    ApiKey.SASL_HANDSHAKE,
    "SaslHandshake",
    served="0-1",
    flexible="none",
    request="Mechanism:str",
    response="ErrorCode:i16; Mechanisms:[str]",
)

api(
    ApiKey.SASL_AUTHENTICATE,
    "SaslAuthenticate",
    served="0-2",
    flexible="2+",
    request="AuthBytes:bytes",
    response="""
        ErrorCode:i16
        ErrorMessage:str?
        AuthBytes:bytes
        SessionLifetimeMs:i64@1+ ign""",
)

# --- what operators ask --------------------------------------------------------------------------

api(
    ApiKey.DESCRIBE_CLUSTER,
    "DescribeCluster",
    served="0-2",
    flexible="0+",
    request="""
        IncludeClusterAuthorizedOperations:bool
        EndpointType:i8@1+=1
        IncludeFencedBrokers:bool@2+""",
    response="""
        ThrottleTimeMs:i32
        ErrorCode:i16
        ErrorMessage:str?=null
        EndpointType:i8@1+=1
        ClusterId:str
        ControllerId:i32=-1
        Brokers[BrokerId:i32; Host:str; Port:i32; Rack:str?=null; IsFenced:bool@2+]
        ClusterAuthorizedOperations:i32=-2147483648""",
)

api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    "AlterPartitionReassignments",
    served="0-1",
    flexible="0+",
    request=f"""
        TimeoutMs:i32=60000
        AllowReplicationFactorChange:bool@1+=true
        Topics[Name:str; Partitions[PartitionIndex:i32; Replicas:[i32]?=null]]
        TransferTo:i32=-2 #{tags.TRANSFER}""",
    response=f"""
        ThrottleTimeMs:i32
        AllowReplicationFactorChange:bool@1+=true
        ErrorCode:i16
        ErrorMessage:str?
        Responses[Name:str; Partitions[PartitionIndex:i32; ErrorCode:i16; ErrorMessage:str?]]
        TransferTo:i32=-2 #{tags.TRANSFER}""",
)

api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    "ListPartitionReassignments",
    served="0",
    flexible="0+",
    request="""
        TimeoutMs:i32=60000
        Topics[Name:str; PartitionIndexes:[i32]]?=null""",
    response="""
        ThrottleTimeMs:i32
        ErrorCode:i16
        ErrorMessage:str?
        Topics[
            Name:str
            Partitions[
                PartitionIndex:i32
                Replicas:[i32]
                AddingReplicas:[i32]
                RemovingReplicas:[i32]
            ]
        ]""",
)


def __getattr__(name: str) -> Any:
    """Return the class of a message. Raises AttributeError for a name that is none."""
    try:
        classes, key = SIDE_OF[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return classes[key]
