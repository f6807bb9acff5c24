"""Producers as a stranger writes them: batches and InitProducerId by hand, over sockets."""

from __future__ import annotations

import socket
import time
from typing import Any, NamedTuple

from kraftfast.client.connection import Connection
from kraftfast.errors import ErrorCode
from kraftfast.quorum import LocalQuorum
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import produce
from kraftfast.wire.messages import ApiKey, InitProducerIdRequest
from tests.processes.kit import PATIENCE_S, leader_of

NONE = ErrorCode.NONE
PRODUCE_VERSION = 9


class Answer(NamedTuple):
    """To a Produce."""

    error: ErrorCode
    base_offset: int


def a_batch(id: int, epoch: int, sequence: int, records: int = 1) -> bytes:
    """Records that say which they are, as an idempotent producer sends them."""
    made = [Record(i, 0, None, b"%d-%d-%d" % (id, epoch, sequence + i)) for i in range(records)]
    return encode_batch(made, producer_id=id, producer_epoch=epoch, base_sequence=sequence)


class Raw:
    """One connection to a replica, the leader unless said otherwise."""

    def __init__(self, quorum: LocalQuorum, id: int | None = None) -> None:
        address = quorum.addresses[leader_of(quorum) if id is None else id]
        self.connection = Connection(address, time.monotonic() + PATIENCE_S)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.connection.close()

    def send(self, batch: bytes, timeout_ms: int = 60_000) -> None:
        """A Produce; the answer is waited for later."""
        request = produce.PartitionProduce(
            acks=-1,
            timeout_ms=timeout_ms,
            topic=METADATA_TOPIC,
            topic_id=METADATA_TOPIC_ID,
            records=batch,
        )
        number = self.connection.next_correlation_id()
        pieces = produce.encode_request(PRODUCE_VERSION, number, "raw", request)
        self.connection.send(b"".join(pieces), time.monotonic() + PATIENCE_S)

    def answer(self, seconds: float = PATIENCE_S) -> Answer:
        """The next one. Raises TimedOut."""
        data = self.connection.receive(time.monotonic() + seconds)
        _, found = produce.decode_response(PRODUCE_VERSION, data)
        return Answer(ErrorCode(found.error_code), found.base_offset)

    def produce(self, *fields: int) -> Answer:
        """One batch and its answer; fields as of :func:`a_batch`."""
        self.send(a_batch(*fields))
        return self.answer()

    def init(
        self,
        name: str | None = None,
        version: int = 5,
        patience_s: float = PATIENCE_S,
        **fields: Any,
    ) -> Any:
        """InitProducerId. Raises TimedOut."""
        body = InitProducerIdRequest(
            **{"transactional_id": name, "transaction_timeout_ms": 1000, **fields}
        )
        deadline = time.monotonic() + patience_s
        return self.connection.ask(ApiKey.INIT_PRODUCER_ID, body, deadline, version)


def is_silent(raw: Raw, seconds: float) -> bool:
    """Whether nothing comes for so long."""
    raw.connection.sock.settimeout(seconds)
    try:
        raw.connection.sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    return False
