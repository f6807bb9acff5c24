"""kio's reader and writer of record batches as an oracle. It keeps whole seconds of timestamps."""

from __future__ import annotations

import datetime
import io

from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import i8, i16, i32, i64

from kraftfast.record import batch, builder
from kraftfast.record.shapes import Record

NULLABLE = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.text(max_size=9), NULLABLE), max_size=3).map(tuple)
PARTS = st.lists(
    st.tuples(st.integers(0, 10**9), NULLABLE, NULLABLE, HEADERS), min_size=1, max_size=20
)


def as_kio(record: Record) -> KioRecord:
    return KioRecord(
        attributes=i8(0),
        timestamp=datetime.datetime.fromtimestamp(record.timestamp // 1000, datetime.UTC),
        offset=i64(record.offset),
        key=record.key,
        value=record.value,
        headers=tuple(RecordHeader(key=k.encode(), value=v) for k, v in record.headers),
    )


@given(PARTS)
def test_both_write_the_same_and_read_each_other(parts: list[tuple]) -> None:
    records = [Record(i, seconds * 1000, *part) for i, (seconds, *part) in enumerate(parts)]
    target = bytearray(1 << 18)
    chosen = builder.Settings(
        records[0].timestamp, leader_epoch=4, producer_id=5, producer_epoch=6, base_sequence=7
    )
    open_batch = builder.BatchBuilder(target, chosen)
    for record in records:
        assert open_batch.append(record.value, record.key, record.headers, record.timestamp)
    ours = bytes(target[: open_batch.finish()])

    written = io.BytesIO()
    write_new_batch(
        written,
        NewRecordBatch(
            producer_id=i64(5),
            producer_epoch=i16(6),
            partition_leader_epoch=i32(4),
            base_sequence=i32(7),
            records=tuple(as_kio(record) for record in records),
            attributes=i16(0),
        ),
    )
    assert written.getvalue() == ours

    theirs, size = read_batch(ours, 0)
    assert size == len(ours)
    assert list(theirs.records) == [as_kio(record) for record in records]
    found = batch.check_batch(ours)
    assert list(found.records()) == records
    for name, kio_name in {
        "base_offset": "base_offset",
        "leader_epoch": "partition_leader_epoch",
        "crc": "crc",
        "attributes": "attributes",
        "base_timestamp": "base_timestamp",
        "max_timestamp": "max_timestamp",
        "producer_id": "producer_id",
        "producer_epoch": "producer_epoch",
        "base_sequence": "base_sequence",
    }.items():
        assert getattr(found, name) == getattr(theirs, kio_name), name
