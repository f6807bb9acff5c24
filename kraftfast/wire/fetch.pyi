# Made by tools/flat_files.py from the tables of messages.py: make generate.
from typing import Any, ClassVar

from kraftfast.wire.messages import FetchRequest, FetchResponse
from kraftfast.wire.primitives import Buffer

class PartitionFetch:
    FIELDS: ClassVar[tuple[str, ...]]
    cluster_id: str | None
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topic: str
    topic_id: bytes
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes
    high_watermark: int
    durability: int
    observer_endpoints: list[FetchRequest.ObserverEndpoint]
    observer_kraft_versions: list[int]
    rack_id: str
    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_epoch: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topic: str = "",
        topic_id: bytes = ...,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: bytes = ...,
        high_watermark: int = 0x7FFFFFFFFFFFFFFF,
        durability: int = 0,
        observer_endpoints: list[FetchRequest.ObserverEndpoint] = ...,
        observer_kraft_versions: list[int] = ...,
        rack_id: str = "",
    ) -> None: ...
    def to_message(self, version: int) -> FetchRequest: ...
    @staticmethod
    def from_message(message: FetchRequest) -> PartitionFetch | None: ...

class PartitionFetched:
    FIELDS: ClassVar[tuple[str, ...]]
    throttle_time_ms: int
    error_code: int
    session_id: int
    topic: str
    topic_id: bytes
    partition: int
    partition_error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    leader_id: int
    leader_epoch: int
    snapshot_end_offset: int
    snapshot_epoch: int
    aborted_transactions: list[FetchResponse.AbortedTransaction] | None
    preferred_read_replica: int
    records: Any
    node_endpoints: list[FetchResponse.NodeEndpoint]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        topic: str = "",
        topic_id: bytes = ...,
        partition: int = 0,
        partition_error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: int = -1,
        diverging_end_offset: int = -1,
        leader_id: int = -1,
        leader_epoch: int = -1,
        snapshot_end_offset: int = -1,
        snapshot_epoch: int = -1,
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...,
        preferred_read_replica: int = -1,
        records: Buffer | None = None,
        node_endpoints: list[FetchResponse.NodeEndpoint] = ...,
    ) -> None: ...
    def to_message(self) -> FetchResponse: ...
    @staticmethod
    def from_message(message: FetchResponse) -> PartitionFetched | None: ...

def decode_request(
    version: int, frame: bytes | memoryview, start: int
) -> PartitionFetch | FetchRequest: ...
def encode_request(
    version: int, correlation_id: int, client_id: str | None, request: PartitionFetch
) -> bytes: ...
def decode_response(
    version: int, frame: bytes | memoryview
) -> tuple[int, PartitionFetched | FetchResponse]: ...
def encode_response(
    version: int, correlation_id: int, response: PartitionFetched
) -> list[Buffer]: ...
