"""The tables of what clients ask besides Produce and Fetch; ``messages`` has the classes.

Notation: ``notation.py``. Source: Kafka's message definitions.
"""

from __future__ import annotations

from kraftfast.wire.apis import ApiKey, api

api(
    ApiKey.LIST_OFFSETS,
    "ListOffsets",
    served="1-11",
    flexible="6+",
    request="""
        ReplicaId:i32
        IsolationLevel:i8@2+
        Topics[
            Name:str
            Partitions[PartitionIndex:i32; CurrentLeaderEpoch:i32@4+=-1 ign; Timestamp:i64]
        ]
        TimeoutMs:i32@10+ ign""",
    response="""
        ThrottleTimeMs:i32@2+ ign
        Topics[
            Name:str
            Partitions[
                PartitionIndex:i32
                ErrorCode:i16
                Timestamp:i64=-1
                Offset:i64=-1
                LeaderEpoch:i32@4+=-1
            ]
        ]""",
)

api(
    ApiKey.METADATA,
    "Metadata",
    served="0-13",
    flexible="9+",
    request="""
        Topics[TopicId:uuid@10+ ign; Name:str?10+]?1+
        AllowAutoTopicCreation:bool@4+=true
        IncludeClusterAuthorizedOperations:bool@8-10
        IncludeTopicAuthorizedOperations:bool@8+""",
    response="""
        ThrottleTimeMs:i32@3+ ign
        Brokers[NodeId:i32; Host:str; Port:i32; Rack:str?@1+=null ign]
        ClusterId:str?@2+=null ign
        ControllerId:i32@1+=-1 ign
        Topics[
            ErrorCode:i16
            Name:str?12+
            TopicId:uuid@10+ ign
            IsInternal:bool@1+ ign
            Partitions[
                ErrorCode:i16
                PartitionIndex:i32
                LeaderId:i32
                LeaderEpoch:i32@7+=-1 ign
                ReplicaNodes:[i32]
                IsrNodes:[i32]
                OfflineReplicas:[i32]@5+ ign
            ]
            TopicAuthorizedOperations:i32@8+=-2147483648
        ]
        ClusterAuthorizedOperations:i32@8-10=-2147483648
        ErrorCode:i16@13+ ign""",
)

api(
    ApiKey.INIT_PRODUCER_ID,
    "InitProducerId",
    served="0-5",
    flexible="2+",
    request="""
        TransactionalId:str?; TransactionTimeoutMs:i32
        ProducerId:i64@3+=-1; ProducerEpoch:i16@3+=-1
        Resumes:bool@2+ #10005
        FromReplica:bool@2+ #10009""",  # our own: the sequences of a name go on in its next epoch;
    # a replica asks its leader for a client of its own
    response="""
        ThrottleTimeMs:i32 ign; ErrorCode:i16; ProducerId:i64=-1; ProducerEpoch:i16
        LastSequence:i64@2+=-1 #10006
        LastOffset:i64@2+=-1 #10007
        NamesSince:i64@2+=-1 #10008""",  # our own: how far that name got; Granted.names_since
)

api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    "OffsetForLeaderEpoch",
    served="2-4",
    flexible="4+",
    request="""
        ReplicaId:i32@3+=-2 ign
        Topics[
            Topic:str
            Partitions[Partition:i32; CurrentLeaderEpoch:i32=-1; LeaderEpoch:i32]
        ]""",
    response="""
        ThrottleTimeMs:i32 ign
        Topics[
            Topic:str
            Partitions[ErrorCode:i16; Partition:i32; LeaderEpoch:i32=-1; EndOffset:i64=-1]
        ]""",
)

api(
    ApiKey.OFFSET_FETCH,
    "OffsetFetch",
    served="1-5",
    flexible="6+",
    request="""
        GroupId:str
        Topics[Name:str; PartitionIndexes:[i32]]?2+""",
    response="""
        ThrottleTimeMs:i32@3+ ign
        Topics[
            Name:str
            Partitions[
                PartitionIndex:i32; CommittedOffset:i64; CommittedLeaderEpoch:i32@5+=-1 ign
                Metadata:str?; ErrorCode:i16
            ]
        ]
        ErrorCode:i16@2+ ign""",
)

api(
    ApiKey.FIND_COORDINATOR,
    "FindCoordinator",
    served="0-6",
    flexible="3+",
    request="""
        Key:str@0-3
        KeyType:i8@1+
        CoordinatorKeys:[str]@4+""",
    response="""
        ThrottleTimeMs:i32@1+ ign
        ErrorCode:i16@0-3 ign
        ErrorMessage:str?@1-3 ign
        NodeId:i32@0-3 ign
        Host:str@0-3 ign
        Port:i32@0-3 ign
        Coordinators[
            Key:str; NodeId:i32; Host:str; Port:i32; ErrorCode:i16; ErrorMessage:str?
        ]@4+ ign""",
)
