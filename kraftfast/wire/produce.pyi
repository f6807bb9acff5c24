# Made by tools/flat_files.py from the tables of messages.py: make generate.
from typing import Any, ClassVar

from kraftfast.wire.messages import ProduceRequest, ProduceResponse
from kraftfast.wire.primitives import Buffer

class PartitionProduce:
    FIELDS: ClassVar[tuple[str, ...]]
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic: str
    topic_id: bytes
    partition: int
    records: Any
    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic: str = "",
        topic_id: bytes = ...,
        partition: int = 0,
        records: Buffer | None = None,
    ) -> None: ...
    def to_message(self) -> ProduceRequest: ...
    @staticmethod
    def from_message(message: ProduceRequest) -> PartitionProduce | None: ...

class PartitionProduced:
    FIELDS: ClassVar[tuple[str, ...]]
    topic: str
    topic_id: bytes
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[ProduceResponse.RecordError]
    error_message: str | None
    leader_id: int
    leader_epoch: int
    throttle_time_ms: int
    node_endpoints: list[ProduceResponse.NodeEndpoint]
    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = ...,
        partition: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[ProduceResponse.RecordError] = ...,
        error_message: str | None = None,
        leader_id: int = -1,
        leader_epoch: int = -1,
        throttle_time_ms: int = 0,
        node_endpoints: list[ProduceResponse.NodeEndpoint] = ...,
    ) -> None: ...
    def to_message(self) -> ProduceResponse: ...
    @staticmethod
    def from_message(message: ProduceResponse) -> PartitionProduced | None: ...

def decode_request(
    version: int, frame: bytes | memoryview, start: int
) -> PartitionProduce | ProduceRequest: ...
def encode_request(
    version: int, correlation_id: int, client_id: str | None, request: PartitionProduce
) -> list[Buffer]: ...
def decode_response(
    version: int, frame: bytes | memoryview
) -> tuple[int, PartitionProduced | ProduceResponse]: ...
def encode_response(version: int, correlation_id: int, response: PartitionProduced) -> bytes: ...
