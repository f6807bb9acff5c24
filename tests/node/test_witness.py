"""A replica of a log of Kafka's controllers (records=kafka-raft): what it does not do."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kraftfast import limits
from kraftfast.client.local_connector import LocalConnector
from kraftfast.core import events as ev
from kraftfast.errors import ErrorCode, InvalidOption, RecordsRefused
from kraftfast.link.hello import Hello, encode_hello
from kraftfast.log.small_files.directory import LogOptions
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node import witness
from kraftfast.node.node import Node
from kraftfast.node.state_machine import StateMachine
from kraftfast.node.storage.local_layout import format_quorum, open_or_format
from kraftfast.record.builder import BatchBuilder, Settings
from kraftfast.types import METADATA_TOPIC, OffsetAndEpoch
from kraftfast.wire import frame, produce, tags
from kraftfast.wire.messages import ApiKey, InitProducerIdRequest
from tests.node.inside import Inside

RAFT = "kafka-raft"


def a_batch(value: bytes) -> bytes:
    target = bytearray(len(value) + 200)
    batch = BatchBuilder(target, Settings(0))
    assert batch.append(value)
    return bytes(target[: batch.finish()])


class Metadata(StateMachine):
    """One that would make a snapshot of every batch."""

    def apply(self, batch: Any) -> None: ...

    def snapshot(self, writer: Any) -> None:
        writer.append(b"state")

    def restore(self, reader: Any) -> None: ...


@pytest.fixture(params=["", f"{__name__}:Metadata"], ids=["alone", "machine"])
def replica(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Inside]:
    """A witness that was told to lead, with settings that would trim any other log."""
    made = Inside(
        tmp_path / "q", records=RAFT, campaign=True, retention_bytes=1, snapshot_bytes=1,
        segment_bytes=limits.SEGMENT_BYTES_MIN, state_machine=request.param,
    )  # fmt: skip
    yield made
    made.close()


def error_of_produce(replica: Inside) -> int:
    message = produce.PartitionProduce(
        topic=METADATA_TOPIC, acks=-1, timeout_ms=5000, records=a_batch(b"hello")
    )
    asked = b"".join(produce.encode_request(9, 7, "c", message))
    answer = replica.exchange(replica.connect(), asked)
    assert answer is not None
    _, found = produce.decode_response(9, answer)
    return int(found.error_code)


@pytest.mark.parametrize("campaign", [True, False])
def test_no_door_takes_records(tmp_path: Path, campaign: bool) -> None:
    replica = Inside(tmp_path / "q", records=RAFT, campaign=campaign)
    try:
        end = replica.node.log.end_offset
        assert error_of_produce(replica) == ErrorCode.INVALID_RECORD
        body = InitProducerIdRequest(transactional_id="loader", transaction_timeout_ms=1000)
        asked = frame.encode_request(ApiKey.INIT_PRODUCER_ID, 4, 1, "c", body)
        answer = replica.exchange(replica.connect(), asked)
        assert answer is not None
        found = frame.decode_response(ApiKey.INIT_PRODUCER_ID, 4, answer)[1]
        assert found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        sock = replica.local()
        sock.send(encode_hello(Hello(kind="producer", generation=1, out=4096)))
        replica.until(lambda: select.select([sock], [], [], 0)[0])
        hello = msgspec.json.decode(sock.recv(1 << 16))
        assert "takes no records from producers" in hello["error"] and hello["records"] == RAFT
        sock.close()
        assert replica.node.log.end_offset == end and not replica.node.ring_producers.producers
    finally:
        replica.close()


def test_a_local_producer_is_told(tmp_path: Path) -> None:
    replica = Inside(tmp_path / "q", records=RAFT, campaign=True)
    told: list[BaseException] = []

    def ask() -> None:
        connector = LocalConnector({1: replica.directory}, 4096, 4)
        try:
            connector.connect(None, 0, 2**60)  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 - looked at below
            told.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        replica.until(lambda: told)
        assert isinstance(told[0], RecordsRefused) and "witness" in str(told[0])
    finally:
        thread.join(30)
        replica.close()


def test_it_trims_nothing_and_makes_no_snapshots(replica: Inside) -> None:
    """Kafka's controllers could not begin behind a snapshot without their metadata."""
    node = replica.node
    batch = a_batch(b"x" * (limits.SEGMENT_BYTES_MIN // 2))
    for _ in range(3):
        replica.until(lambda: node.log.append(batch, node.core.epoch))
        node.step(ev.Appended(node.core.epoch, node.log.end_offset, len(batch)))
        replica.until(lambda: node.core.high_watermark == node.log.end_offset)
    assert len(node.log.segments) > 1
    if node.applier is not None:
        replica.until(lambda: node.applier.applied == node.log.end_offset)
    for _ in range(3):
        node.retention._next_ms = 0
        replica.turn()
        node.retention.tend(node.now_ms())
    assert snapshot_ids(node.disk, node.directory.log_path) == [BOOTSTRAP]
    assert node.log.log_start_offset == 0 and node.core.snapshots == ()


def test_it_does_not_lead_unless_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    replica = Inside(tmp_path / "q", records=RAFT, election_timeout_ms=10)
    try:
        since = replica.node.now_ms()
        replica.until(lambda: replica.node.now_ms() > since + 100)
        assert replica.node.core.role == "unattached" and replica.node.core.epoch == 0
        assert "the only voter and never leads" in replica.node.core.warning
        assert "kraftfast.campaign=true" in capfd.readouterr().err
    finally:
        replica.close()


def test_it_leads_from_no_snapshot_without_records(tmp_path: Path) -> None:
    """Kafka's followers would begin there. As a voter that never leads it harms nobody."""
    replica = Inside(tmp_path / "q", records=RAFT, campaign=True)
    node, config = replica.node, replica.node.config
    trim = OffsetAndEpoch(node.log.end_offset, node.core.epoch)
    log_path = node.directory.log_path
    with SnapshotWriter(
        node.disk, log_path, trim, last_contained_log_timestamp=0, header_tags=((tags.TRIM, b""),)
    ) as writer:
        writer.freeze(())
    replica.close()
    with pytest.raises(InvalidOption, match="holds no records"):
        Node(config)
    Node(msgspec.structs.replace(config, campaign=None)).close()


def test_a_quorum_of_witnesses_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="never lead and take no records"):
        open_or_format(str(tmp_path / "new"), 3, None, RAFT, 1)
    assert not (tmp_path / "new").exists()
    format_quorum(str(tmp_path / "old"), 1, records=RAFT)
    with pytest.raises(InvalidOption, match="one by one"):
        open_or_format(str(tmp_path / "old"), None, None, None, 1)
    witness.refuse_only_voter(RAFT, True, [1], 1)
    witness.refuse_only_voter(RAFT, None, [1, 2], 1)
    witness.refuse_only_voter(LogOptions().records, None, [1], 1)
    for campaign in (None, False):
        with pytest.raises(InvalidOption, match="cannot be the only voter"):
            witness.refuse_only_voter(RAFT, campaign, [1], 1)


def test_what_it_says_at_its_start() -> None:
    class Config:
        retention_bytes, retention_ms = None, None

    said = witness.start_line(False, Config)
    assert "votes and acknowledges" in said and "it never leads" in said
    assert "retention" not in said and "no broker can register" in witness.start_line(True, Config)
    Config.retention_ms = 5  # type: ignore[assignment]
    assert "metadata.max.retention.* does not trim" in witness.start_line(False, Config)
