"""The lines of ``kraftfast log dump``: as kafka-dump-log prints them, or as JSON.

Source: Kafka's ``DumpLogSegments``. Text that would move the cursor or hide itself on a terminal is
shown as escapes; where the two formats speak of the same thing, nothing else differs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from kraftfast.cli.consume import header_fields, text_or_base64
from kraftfast.errors import CorruptBatch, InputError
from kraftfast.log import scan
from kraftfast.log.disk import Disk
from kraftfast.log.reading.copied_file import CopiedFile
from kraftfast.log.reading.index_check import index_entries
from kraftfast.log.reading.reader import corrupt_log
from kraftfast.log.reading.verify import Batches, Tail, open_file, open_segment_file, tail_of
from kraftfast.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from kraftfast.log.snapshots.snapshot_files import SUFFIX as SNAPSHOT_SUFFIX
from kraftfast.log.snapshots.snapshot_files import id_of
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.record.batch import BatchView
from kraftfast.record.control import OtherControl, SnapshotFooter, SnapshotHeader, decode_control
from kraftfast.record.shapes import DELETE_HORIZON, LOG_APPEND_TIME, NO_SEQUENCE, Record, key_bytes
from kraftfast.types import KRaftVersion, KRaftVoters, LeaderChange, ReplicaKey, Voter, uuid_text

BOOTSTRAP = "bootstrap" + SNAPSHOT_SUFFIX
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
TRANSACTION_ENDS = {0: "ABORT", 1: "COMMIT"}


class Dump:
    """Lines for people, or with ``as_json`` for programs; ``records``: those of each batch too."""

    def __init__(self, records: bool, as_json: bool) -> None:
        self.records, self.as_json = records, as_json
        self.end: tuple[int, int] | None = None  # of the segment before, if its batches end there

    def segments(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the segments of one log in order, as :meth:`file`; each must follow the last."""
        for path in paths:
            base_offset, end = int(os.path.basename(path).removesuffix(LOG_SUFFIX)), self.end
            if end is not None and end[0] != base_offset:
                why = f"the segment before it ends at offset {end[0]}"
                raise corrupt_log(path, 0, end[0], why)
            yield from self.file(path)

    def file(self, path: str) -> Iterator[str]:
        """Yield what one file holds, by its suffix.

        Raises CorruptLog behind the last line that is sound.
        """
        name = os.path.basename(path)
        if not name.endswith(SUFFIXES):
            raise InputError(f"{path} is none of {', '.join('*' + each for each in SUFFIXES)}")
        if not self.as_json:
            yield f"Dumping {path}"
        if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
            yield from self.index(path)
        elif name.endswith(SNAPSHOT_SUFFIX):
            yield from self.snapshot(path)
        else:
            yield from self.segment(path)

    def index(self, path: str) -> Iterator[str]:
        """Yield the entries of an index."""
        stem, suffix = os.path.splitext(os.path.basename(path))
        if not stem.isdecimal():
            raise InputError(f"{path} is no index: those are called by 20 digits and {suffix}")
        for one, other in index_entries(path):
            if suffix == INDEX_SUFFIX:
                entry = {"offset": int(stem) + one, "position": other}
            else:
                entry = {"timestamp": one, "offset": int(stem) + other}
            if self.as_json:
                yield json.dumps({"file": path, **entry})
            else:
                yield " ".join(f"{key}: {value}" for key, value in entry.items())

    def snapshot(self, path: str) -> Iterator[str]:
        """Yield the batches of a ``.checkpoint`` file, whose offsets begin at 0."""
        name = os.path.basename(path)
        snapshot_id = id_of(name)
        if snapshot_id is None and name != BOOTSTRAP:
            raise InputError(f"{path} is neither {BOOTSTRAP} nor called by offset and epoch")
        if not self.as_json and snapshot_id is None:
            yield "KRaft bootstrap snapshot"
        elif not self.as_json and snapshot_id is not None:
            yield f"Snapshot end offset: {snapshot_id.offset}, epoch: {snapshot_id.epoch}"
        file = open_file(path)
        position, offset, fault = yield from self.batches(path, file, Batches(file))
        if position < file.size:
            raise corrupt_log(path, position, offset, scan.fault_text(fault))
        with SnapshotReader(Disk(), path) as reader:
            reader.check()  # its header, its footer, its epoch

    def segment(self, path: str) -> Iterator[str]:
        """Yield the batches of a ``.log`` file, and what lies behind them."""
        segment = open_segment_file(path)
        if not self.as_json:
            yield f"Log starting offset: {segment.base_offset}"
        batches = Batches(segment, segment.base_offset, self.end[1] if self.end else -1)
        stop = yield from self.batches(path, segment, batches)
        tail = tail_of(segment, *stop)
        self.end = (stop[1], batches.epoch) if tail.kind in ("none", "zeros") else None
        if not self.as_json and tail.kind != "none":
            yield tail_text(tail)

    def batches(
        self, path: str, file: CopiedFile, batches: Batches
    ) -> Generator[str, None, tuple[int, int, int]]:
        """Yield batch after batch, a damaged one too if its header can be read.

        Returns (position, offset, fault) where it stopped.
        """
        for begin, found in batches:
            yield from self.batch(path, found, begin, True)
        if batches.fault != scan.END:
            try:
                found = file.batch(batches.position, file.limit)
            except CorruptBatch:
                pass
            else:
                yield from self.batch(path, found, batches.position, False)
        return batches.position, batches.offset, batches.fault

    def batch(self, path: str, found: BatchView, begin: int, sound: bool) -> Iterator[str]:
        """Yield a batch and, if wanted and it is sound, its records; its bytes are at ``begin``."""
        show: Any = record_fields if self.as_json else record_line
        fields = batch_fields(found, begin)
        records, damage = [], ""
        try:
            if self.records and sound:
                for record in found.records():
                    records.append(show(found, record))
        except CorruptBatch as error:
            damage = error.reason
        if self.as_json:
            content = {"records": records} if self.records else {}
            yield json.dumps({"file": path, **fields, **content}, ensure_ascii=False)
        else:
            yield batch_line(fields)
            yield from records
        if damage:
            raise corrupt_log(path, begin + found.position, found.base_offset, damage)


def tail_text(tail: Tail) -> str:
    """Return what lies behind the last whole batch, in words."""
    place = f"byte {tail.position}"
    if tail.kind == "none":
        return f"nothing behind {place}"
    if tail.kind == "zeros":
        return f"{tail.bytes} bytes of prepared zeros from {place}"
    if tail.kind == "torn":
        return (
            f"torn tail of {tail.bytes} bytes from {place} ({tail.reason}): it was never "
            "acknowledged, unless with durability=memory, and is cut at the next start"
        )
    assert tail.possible is not None
    offset, epoch = tail.possible
    return (
        f"phantom tail from {place}: records up to offset {offset}, epoch {epoch} may have been "
        "acknowledged and are not here; the replica votes for no shorter log until it has them"
    )


# --- batches --------------------------------------------------------------------------------------


def batch_fields(found: BatchView, begin: int = 0) -> dict[str, Any]:
    """Return the header of a batch whose bytes begin at ``begin``, by Kafka's names and order."""
    append_time = bool(found.attributes & LOG_APPEND_TIME)
    horizon = found.base_timestamp if found.attributes & DELETE_HORIZON else None
    return {
        "baseOffset": found.base_offset,
        "lastOffset": found.last_offset,
        "count": found.record_count,
        "baseSequence": found.base_sequence,
        "lastSequence": sequence(found, found.last_offset - found.base_offset),
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "partitionLeaderEpoch": found.leader_epoch,
        "isTransactional": found.is_transactional,
        "isControl": found.is_control,
        "deleteHorizonMs": horizon,
        "position": begin + found.position,
        "timestampType": "LogAppendTime" if append_time else "CreateTime",
        "timestamp": found.max_timestamp,
        "size": found.size,
        "magic": 2,
        "compresscodec": found.codec.name.lower(),
        "crc": found.crc,
        "isvalid": found.crc_ok(),
    }


def batch_line(fields: dict[str, Any]) -> str:
    """Return one line, as Kafka's tool prints it."""
    words = []
    for key, value in fields.items():
        if key == "timestampType":
            continue
        if key == "timestamp":
            key = fields["timestampType"]
        if key == "deleteHorizonMs":
            value = "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
        words.append(f"{key}: {str(value).lower() if isinstance(value, bool) else value}")
    return " ".join(words)


def sequence(found: BatchView, delta: int) -> int:
    """Return the producer's number of a record; it begins again at 0 behind 2^31 - 1 (Kafka)."""
    if found.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (found.base_sequence + delta) % 2**31


# --- records --------------------------------------------------------------------------------------


def record_fields(found: BatchView, record: Record) -> dict[str, Any]:
    """Return what a record has, for JSON; ``control`` is what a control record says."""
    fields: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "keySize": _size(record.key),
        "valueSize": _size(record.value),
        "sequence": sequence(found, record.offset - found.base_offset),
    }
    if found.is_control:
        name, said = control_fields(record)
        return fields | {"control": {"type": name, **said}}
    fields |= text_or_base64("key", record.key) | text_or_base64("value", record.value)
    fields["headers"] = header_fields(record)
    return fields


def record_line(found: BatchView, record: Record) -> str:
    """Return one line, as Kafka's tool prints it with ``--print-data-log``."""
    stamp = "LogAppendTime" if found.attributes & LOG_APPEND_TIME else "CreateTime"
    names = ",".join(shown(key_bytes(name)) for name, _ in record.headers)
    words = [
        f"| offset: {record.offset} {stamp}: {record.timestamp}",
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}",
        f"sequence: {sequence(found, record.offset - found.base_offset)} headerKeys: [{names}]",
    ]
    if found.is_control:
        return " ".join([*words, control_text(record)])
    if record.key is not None:
        words.append(f"key: {shown(record.key)}")
    if record.value is not None:
        words.append(f"payload: {shown(record.value)}")
    return " ".join(words)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def shown(data: bytes) -> str:
    """Return bytes as a terminal may see them: text as it is, the rest as escapes.

    >>> shown("ü 1".encode()), shown(b"\\x1b[2J\\xff")
    ('ü 1', '\\\\x1b[2J\\\\xff')
    """
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


# --- control records ------------------------------------------------------------------------------


def control_text(record: Record) -> str:
    """Return what a control record says, in the words of Kafka's tool."""
    name, said = control_fields(record)
    if name == "endTxnMarker":
        return f"endTxnMarker: {said['type']} coordinatorEpoch: {said['coordinatorEpoch']}"
    if name == "unknown":
        return f"controlType: UNKNOWN({said['controlType']})"
    colon = ":" if name == "LeaderChange" else ""
    return f"{name}{colon} {json.dumps(said, separators=(',', ':'))}"


def control_fields(record: Record) -> tuple[str, dict[str, Any]]:
    """Return name and fields of a control record, by Kafka's names. Raises CorruptBatch."""
    match decode_control(record):
        case LeaderChange(leader_id, voters, granting, version):
            return "LeaderChange", {
                "version": version,
                "leaderId": leader_id,
                "voters": [_voter_id(key, version) for key in voters],
                "grantingVoters": [_voter_id(key, version) for key in granting],
            }
        case SnapshotHeader(timestamp):
            return "SnapshotHeader", {"version": 0, "lastContainedLogTimestamp": timestamp}
        case SnapshotFooter():
            return "SnapshotFooter", {"version": 0}
        case KRaftVersion(level):
            return "KRaftVersion", {"version": 0, "kRaftVersion": level}
        case KRaftVoters(voters):
            return "KRaftVoters", {
                "version": 0,
                "voters": [_voter(voter) for voter in voters.stored],
            }
        case OtherControl(kind, value) if kind in TRANSACTION_ENDS:
            if value is None or len(value) < 6:
                raise CorruptBatch("end of a transaction without its epoch")
            epoch = int.from_bytes(value[2:6], "big", signed=True)
            return "endTxnMarker", {"type": TRANSACTION_ENDS[kind], "coordinatorEpoch": epoch}
        case OtherControl(kind):
            return "unknown", {"controlType": kind}


def _voter_id(key: ReplicaKey, version: int) -> dict[str, Any]:
    directory = {"voterDirectoryId": uuid_text(key.directory_id)} if version else {}
    return {"voterId": key.id, **directory}


def _voter(voter: Voter) -> dict[str, Any]:
    versions = {
        "minSupportedVersion": voter.kraft_version_min,
        "maxSupportedVersion": voter.kraft_version_max,
    }
    return {
        **_voter_id(voter.key, version=1),
        "endpoints": [endpoint._asdict() for endpoint in voter.endpoints],
        "kRaftVersionFeature": versions,
    }
