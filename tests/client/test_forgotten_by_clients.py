"""Kafka's clients that a quorum has forgotten, or that ask for what it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC
from tests.client.conftest import SMALL
from tests.client.test_real_clients import bootstrap, exactly
from tests.processes.producers import NONE, Raw

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """It knows two producers at a time."""
    path = tmp_path_factory.mktemp("forgetful")
    settings: dict[str, Any] = SMALL | {"producers_max": 2, "transport": "socket"}
    with LocalQuorum(path, **settings, fetch_timeout_ms=20_000) as quorum:
        yield quorum


def forget_all(quorum: LocalQuorum) -> None:
    """Others append until nobody else is known."""
    with Raw(quorum) as raw:
        for _ in range(3):
            assert raw.produce(raw.init().producer_id, 0, 0).error is NONE


def test_librdkafka_goes_on_where_it_was_forgotten(forgetful: LocalQuorum) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    failed: list[Any] = []
    theirs = kafka.Producer(
        {
            "bootstrap.servers": bootstrap(forgetful),
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 30_000,
        }
    )
    values = [b"forgotten librdkafka %d" % i for i in range(60)]
    for begin in (0, 20, 40):
        for value in values[begin : begin + 20]:
            theirs.produce(
                METADATA_TOPIC,
                value,
                partition=0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert theirs.flush(60) == 0 and failed == []
        forget_all(forgetful)
    exactly(forgetful, values)


def test_kafka_python_reports_that_it_was_forgotten(forgetful: LocalQuorum) -> None:
    """Its own choice: what was refused fails at once, and is in no log. What follows goes on."""
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    theirs = kafka.KafkaProducer(
        bootstrap_servers=bootstrap(forgetful).split(","),
        enable_idempotence=True,
        delivery_timeout_ms=30_000,
        request_timeout_ms=20_000,
    )
    values = [b"forgotten kafka-python %d" % i for i in range(40)]
    for value in values[:20]:
        theirs.send(METADATA_TOPIC, value, partition=0).get(60)
    forget_all(forgetful)
    refused = theirs.send(METADATA_TOPIC, b"forgotten kafka-python, refused", partition=0)
    with pytest.raises(kafka.errors.UnknownProducerIdError):
        refused.get(60)
    for value in values[20:]:
        theirs.send(METADATA_TOPIC, value, partition=0).get(60)
    theirs.close()
    with forgetful.consumer(0) as consumer:
        found = [each.value for each in consumer if b"kafka-python" in (each.value or b"")]
    assert found == values


def test_transactions_are_refused_at_once(forgetful: LocalQuorum) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    theirs = kafka.Producer({"bootstrap.servers": bootstrap(forgetful), "transactional.id": "t"})
    with pytest.raises(kafka.KafkaException) as refused:
        theirs.init_transactions(60)
    code = refused.value.args[0].code()
    assert code == kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, refused.value
