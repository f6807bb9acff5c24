"""Every log and snapshot recorded from Kafka decodes to what Kafka's own dump tool says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraftfast.record import batch, builder, columns, control, pure
from kraftfast.record.shapes import LOG_APPEND_TIME, Codec, Record
from kraftfast.types import uuid_text

HERE = Path(__file__).parent
CODECS = {Codec.NONE: "none", Codec.GZIP: "gzip", Codec.SNAPPY: "snappy", Codec.LZ4: "lz4"} | {
    Codec.ZSTD: "zstd"
}


def logs_below(root: Path) -> list[Path]:
    found = [*root.rglob("*.log"), *root.rglob("*.checkpoint")]
    return sorted(path for path in found if path.with_name(path.name + ".dump.txt").exists())


@pytest.fixture(scope="session", params=["committed", "golden"])
def recorded(request: pytest.FixtureRequest) -> list[Path]:
    """The few files that are kept beside the tests, and all that there are."""
    if request.param == "committed":
        return logs_below(HERE / "data")
    paths = logs_below(request.getfixturevalue("golden") / "disk")
    assert len(paths) > 100, "the recorded data is not all there"
    return paths


# --- the dump tool's words ---


def lower_bool(value: bool) -> str:
    return "true" if value else "false"


def batch_line(found: Any) -> str:
    last_sequence = -1
    if found.base_sequence >= 0:
        last_sequence = found.base_sequence + found.last_offset - found.base_offset
    stamp = "LogAppendTime" if found.attributes & LOG_APPEND_TIME else "CreateTime"
    return (
        f"baseOffset: {found.base_offset} lastOffset: {found.last_offset} "
        f"count: {found.record_count} baseSequence: {found.base_sequence} "
        f"lastSequence: {last_sequence} producerId: {found.producer_id} "
        f"producerEpoch: {found.producer_epoch} partitionLeaderEpoch: {found.leader_epoch} "
        f"isTransactional: {lower_bool(found.is_transactional)} "
        f"isControl: {lower_bool(found.is_control)} deleteHorizonMs: OptionalLong.empty "
        f"position: {found.position} {stamp}: {found.max_timestamp} size: {found.size} magic: 2 "
        f"compresscodec: {CODECS[found.codec]} crc: {found.crc} isvalid: "
        f"{lower_bool(found.crc_ok())}"
    )


def voter_json(voter: Any) -> dict[str, Any]:
    return {
        "voterId": voter.id,
        "voterDirectoryId": uuid_text(voter.directory_id),
        "endpoints": [endpoint._asdict() for endpoint in voter.endpoints],
        "kRaftVersionFeature": {
            "minSupportedVersion": voter.kraft_version_min,
            "maxSupportedVersion": voter.kraft_version_max,
        },
    }


def control_words(decoded: control.ControlRecord) -> str:
    match decoded:
        case control.LeaderChange(leader_id, voters, granting, 0):
            name = "LeaderChange:"
            body = {
                "leaderId": leader_id,
                "voters": [{"voterId": voter.id} for voter in voters],
                "grantingVoters": [{"voterId": voter.id} for voter in granting],
            }
        case control.SnapshotHeader(timestamp):
            name, body = "SnapshotHeader", {"lastContainedLogTimestamp": timestamp}
        case control.SnapshotFooter():
            name, body = "SnapshotFooter", {}
        case control.KRaftVersion(version):
            name, body = "KRaftVersion", {"kRaftVersion": version}
        case control.KRaftVoters(voters):
            name, body = "KRaftVoters", {"voters": [voter_json(voter) for voter in voters.stored]}
        case control.OtherControl(kind, bytes(value)) if kind in (0, 1):
            epoch = int.from_bytes(value[2:6], "big")
            return f"endTxnMarker: {('ABORT', 'COMMIT')[kind]} coordinatorEpoch: {epoch}"
        case _:
            raise AssertionError(f"not in the recorded data: {decoded}")
    return f"{name} " + json.dumps({"version": 0, **body}, separators=(",", ":"))


def text_of(raw: bytes) -> str:
    return raw.decode(errors="replace")


def record_line(found: Any, record: Record, number: int, payloads: bool) -> str:
    sequence = found.base_sequence + number if found.base_sequence >= 0 else -1
    stamp = "LogAppendTime" if found.attributes & LOG_APPEND_TIME else "CreateTime"
    sizes = [-1 if part is None else len(part) for part in (record.key, record.value)]
    line = (
        f"| offset: {record.offset} {stamp}: {record.timestamp} keySize: {sizes[0]} "
        f"valueSize: {sizes[1]} sequence: {sequence} "
        f"headerKeys: [{','.join(key for key, _ in record.headers)}]"
    )
    if found.is_control:
        return f"{line} {control_words(control.decode_control(record))}"
    if payloads and record.key is not None:
        line += f" key: {text_of(record.key)}"
    if record.value is not None:
        line += f" payload: {text_of(record.value) if payloads else ''}"
    return line


def dump(data: bytes, reader: ModuleType, payloads: bool) -> Iterator[str]:
    for found in reader.batches(data):
        yield batch_line(found)
        for number, record in enumerate(found.records()):
            yield record_line(found, record, number, payloads)


def expected_lines(text: str, payloads: bool) -> list[str]:
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.startswith("baseOffset:")), len(lines))
    if payloads:
        return "\n".join(lines[first:]).rstrip("\n").split("\n")
    # The payloads of metadata are decoded to JSON: what they are is not this package's business.
    kept = [line for line in lines[first:] if line.startswith(("baseOffset:", "| offset:"))]
    return [re.sub(r" payload: .*", " payload: ", line) for line in kept]


# covers: testFileRecords
@pytest.mark.parametrize("reader", [batch, pure], ids=["compiled", "pure"])
def test_decodes_to_what_kafka_says(recorded: list[Path], reader: ModuleType) -> None:
    for path in recorded:
        payloads = "__cluster_metadata" not in str(path) and path.name != "bootstrap.checkpoint"
        text = path.with_name(path.name + ".dump.txt").read_bytes().decode(errors="replace")
        dumped = "\n".join(dump(path.read_bytes(), reader, payloads))
        # A carriage return in a payload became a line feed when the words were recorded.
        lines = dumped.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if "3.9.2" in str(path):  # the older tool names a leader change and says no more
            lines = [re.sub(r"LeaderChange: .*", "controlType: LEADER_CHANGE(2)", x) for x in lines]
        assert lines == expected_lines(text, payloads), path


# --- and back to the same bytes ---


# covers: testControlRecordTypeValues
def test_control_batches_are_written_as_kafka_wrote_them(recorded: list[Path]) -> None:
    kinds = set()
    for path in recorded:
        for found in batch.batches(path.read_bytes()):
            if not found.is_control or found.producer_id >= 0:
                continue  # the end of a transaction is no business of ours
            records = [control.decode_control(record) for record in found.records()]
            kinds |= {type(record) for record in records}
            again = control.control_batch(
                records,
                timestamp=found.base_timestamp,
                base_offset=found.base_offset,
                leader_epoch=found.leader_epoch,
            )
            assert again == bytes(found.data), (path, found)
    assert len(kinds) == 5, "every kind of control record is among the recorded data"


def rebuilt(found: Any, records: list[Record]) -> bytes:
    """The batch from its records, by the compiled builder."""
    settings = builder.Settings(
        records[0].timestamp,
        base_offset=found.base_offset,
        leader_epoch=found.leader_epoch,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        base_sequence=found.base_sequence,
        transactional=found.is_transactional,
    )
    target = bytearray(found.size)
    open_batch = builder.BatchBuilder(target, settings)
    for record in records:
        assert open_batch.append(record.value, record.key, record.headers, record.timestamp)
    assert open_batch.finish() == found.size
    return bytes(target)


def test_data_batches_are_written_as_kafka_wrote_them(recorded: list[Path]) -> None:
    seen = 0
    for path in recorded:
        for found in batch.batches(path.read_bytes()):
            if found.is_control or found.codec or found.attributes & LOG_APPEND_TIME:
                continue
            records = list(found.records())
            stored = bytes(found.data)
            assert rebuilt(found, records) == stored, (path, found)
            again = pure.encode_batch(
                records,
                leader_epoch=found.leader_epoch,
                transactional=found.is_transactional,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                base_sequence=found.base_sequence,
            )
            assert again == stored, (path, found)
            seen += 1
    assert seen > 30


# --- the other readers agree ---


def test_columns_and_values_agree_with_the_records(recorded: list[Path]) -> None:
    for path in recorded:
        data = path.read_bytes()
        records = [record for found in batch.batches(data) for record in found.records()]
        table = columns.decode_columns(data, control=True)
        assert table.offsets.tolist() == [record.offset for record in records], path
        assert table.timestamps.tolist() == [record.timestamp for record in records], path
        assert table.keys.to_pylist() == [record.key for record in records], path
        assert table.values.to_pylist() == [record.value for record in records], path
        assert table.position == len(data)
        assert columns.decode_values(data, control=True) == [record.value for record in records]


def test_every_recorded_batch_passes_the_deep_check(recorded: list[Path]) -> None:
    for path in recorded:
        data = path.read_bytes()
        of_a_quorum = "__cluster_metadata" in str(path) or "raftserver" in str(path)
        rules = "kafka-raft" if of_a_quorum else "any"
        checked = batch.check_batches(data, records=rules)
        assert sum(found.size for found in checked) == len(data)
        for found in pure.batches(data):
            found.check(records=rules)
