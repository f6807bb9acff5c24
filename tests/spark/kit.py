"""Logs as files, written batch by batch, and ways to damage them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_path
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.record import pure
from kraftfast.record.shapes import Record
from kraftfast.types import OffsetAndEpoch

TIMESTAMP = 1_700_000_000_000


class LogFiles:
    """A log directory without a replica's properties, as a copy of Kafka's files is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_path = path / "__cluster_metadata-0"
        self.log_path.mkdir(parents=True, exist_ok=True)
        self.batches: list[tuple[Path, int, bytes]] = []
        self.end_offset = 0

    def fill(self, segments: int, batches: int, records: int) -> None:
        """So many of each; a segment an epoch, a second a batch."""
        for number in range(segments):
            file = self.roll()
            for _ in range(batches):
                self.append(file, self.values(records), epoch=number + 1)

    def values(self, count: int) -> list[bytes]:
        return [b"value %d" % (self.end_offset + i) for i in range(count)]

    def roll(self) -> Path:
        file = self.log_path / f"{self.end_offset:020d}.log"
        file.touch()
        return file

    def append(self, file: Path, values: list[bytes | None], epoch: int = 1, **more: Any) -> None:
        stamp = TIMESTAMP + 1000 * len(self.batches)
        records = [
            Record(self.end_offset + i, stamp + i, b"key %d" % (i % 2), value)
            for i, value in enumerate(values)
        ]
        data = pure.encode_batch(records, leader_epoch=epoch, **more)
        position = file.stat().st_size
        with file.open("ab") as out:
            out.write(data)
        self.batches.append((file, position, data))
        self.end_offset += len(values)

    def snapshot(self, offset: int, pairs: list[tuple[bytes, bytes]], epoch: int = 1) -> Path:
        """One of keys and values that stands for all below ``offset``; its path."""
        at, log_path = OffsetAndEpoch(offset, epoch), str(self.log_path)
        with SnapshotWriter(Disk(), log_path, at, last_contained_log_timestamp=5) as writer:
            for key, value in pairs:
                writer.append(value, key)
            writer.freeze()
        return Path(snapshot_path(log_path, at))

    def flip(self, batch: int, byte: int = -2) -> tuple[Path, int]:
        """Change one byte of a batch; where it begins."""
        file, position, data = self.batches[batch]
        at = position + byte % len(data)
        raw = bytearray(file.read_bytes())
        raw[at] ^= 0x10
        file.write_bytes(bytes(raw))
        return file, position

    def copy(self, path: Path) -> LogFiles:
        """The same log of another replica."""
        shutil.copytree(self.path, path)
        other = LogFiles(path)
        other.batches = [
            (other.log_path / file.name, position, data) for file, position, data in self.batches
        ]
        other.end_offset = self.end_offset
        return other


def struct(names: list[str], others: dict[str, str] | None = None) -> Any:
    """What Spark hands to a reader as the schema; ``others``: types that are not the source's."""
    from pyspark.sql import types

    from kraftfast.spark.reading.arrow_batches import BATCH_FIELDS, ROW_FIELDS, SQL_TYPES

    kinds: dict[str, types.DataType] = {
        "bigint": types.LongType(),
        "int": types.IntegerType(),
        "boolean": types.BooleanType(),
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "timestamp": types.TimestampType(),
        "array<struct<key:string,value:binary>>": types.ArrayType(
            types.StructType(
                [
                    types.StructField("key", types.StringType()),
                    types.StructField("value", types.BinaryType()),
                ]
            )
        ),
    }
    known = {name: SQL_TYPES[kind] for name, kind in (BATCH_FIELDS | ROW_FIELDS).items()}
    known = dict.fromkeys(names, "string") | known | (others or {})
    return types.StructType([types.StructField(name, kinds[known[name]]) for name in names])


def rows_of(source: Any, names: list[str] | None = None) -> list[dict[str, Any]]:
    """What a batch source hands out, without a JVM: planned, and read partition by partition."""
    announced = re.findall(r"(?:^|, )`(\w+)`", source.schema())
    reader = source.reader(struct(names or announced))
    return read_all(reader, reader.partitions())


def read_all(reader: Any, partitions: list[Any]) -> list[dict[str, Any]]:
    """Every row of some partitions."""
    found: list[dict[str, Any]] = []
    for partition in partitions:
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found
