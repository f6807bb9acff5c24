"""What a consumer over TCP is told where the log of its leader is damaged (D10)."""

from __future__ import annotations

import pytest

from kraftfast.errors import ErrorCode
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire.messages import ApiKey, FetchRequest
from tests.damaging import flip
from tests.node.test_consumers import BASE, Asked, asked, batch_of

pytestmark = pytest.mark.processes
__all__ = ["asked"]


def test_damage_is_no_end_of_the_log(asked: Asked) -> None:
    """An answer without records was taken for it: a reader ended there, and missed the rest."""
    asked.elect()
    asked.append(batch_of([b"0", b"1"]))
    asked.append(batch_of([b"2"]))
    asked.commit()
    log = asked.it.node.log
    asked.it.node.damage.giving_way.at_ms = 1 << 60  # it goes on leading
    flip(log.active.file.path, log.active.place_of(BASE + 2)[0] + 7)
    assert b"1" in bytes(asked.fetch(BASE).records)
    one = asked.fetch(BASE + 2)
    kind = FetchRequest
    parts = [
        kind.Partition(partition=each, fetch_offset=BASE + 2, partition_max_bytes=1 << 20)
        for each in (0, 1)
    ]
    body = kind(
        max_wait_ms=0, max_bytes=1 << 20, topics=[kind.Topic(METADATA_TOPIC, partitions=parts)]
    )
    several = asked.ask(ApiKey.FETCH, 12, body).responses[0].partitions[0]
    for answer, error in ((one, one.partition_error_code), (several, several.error_code)):
        assert error == ErrorCode.CORRUPT_MESSAGE
        assert (answer.high_watermark, answer.last_stable_offset) == (-1, -1)
        assert not answer.records


def test_a_batch_within_a_damaged_one_is_no_answer(asked: Asked) -> None:
    """D20: a consumer that asked for its offset was given what a record of the batch holds."""
    asked.elect()
    forged = batch_of([b"forged"])
    inner = (BASE + 1).to_bytes(8, "big") + forged[8:12] + b"\0\0\0\1" + forged[16:]
    assert inner[-1] == 0, "the last byte of the record around it completes it"
    asked.append(batch_of([b"0", b"p" * 100 + inner[:-1]]))
    asked.commit()
    log = asked.it.node.log
    asked.it.node.damage.giving_way.at_ms = 1 << 60  # it goes on leading
    flip(log.active.file.path, log.active.place_of(BASE)[0] + 8)
    answer = asked.fetch(BASE + 1)
    assert answer.partition_error_code == ErrorCode.CORRUPT_MESSAGE and not answer.records
