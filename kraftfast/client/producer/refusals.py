"""What an answer with an error code says of a batch: which exception tells its producer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kraftfast.errors import (
    Closed,
    DiskFull,
    ErrorCode,
    KraftfastError,
    NoQuorum,
    NotLeader,
    RecordsRefused,
    RecordTooLarge,
    RequestRefused,
    UnknownOutcome,
)


class QuorumClosed(Closed):
    """The quorum that this producer belongs to was closed in this process."""

    def __init__(self, text: str = "the quorum is closed; the record never left") -> None:
        super().__init__(text)


NOT_LEADER_CODES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS})
"""Answers after which a batch is in no log, and the next leader may have it."""

TOO_LARGE = partial(RecordTooLarge, "the leader takes no batch of this size; nothing was appended")
REFUSALS: dict[int, Callable[[], KraftfastError]] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: partial(
        NotLeader, "the leader was lost before it took this record; nothing was appended"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: partial(
        NoQuorum, "the leader had no majority in time; nothing was appended"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: partial(
        DiskFull, "no space left at the leader, or it cannot extend its log; nothing was appended"
    ),
    ErrorCode.MESSAGE_TOO_LARGE: TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: TOO_LARGE,
    ErrorCode.INVALID_RECORD: partial(
        RecordsRefused,
        "the log does not take such records (records=kafka-raft); nothing was appended",
    ),
    **{
        code: partial(
            RequestRefused, f"the leader refused it: {code.name}; nothing was appended", code=code
        )
        for code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.PRODUCER_FENCED,
        )
    },
}
"""Answers after which a batch is certainly in no log; after others that is unknown (I24)."""


def refusal(code: int) -> KraftfastError:
    """Return a fresh exception for a batch that was answered with a Kafka error code."""
    if code in REFUSALS:
        return REFUSALS[code]()
    name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
    return UnknownOutcome(f"the leader took it and cannot tell its fate ({name})")
