"""Encoding and decoding batches of 64 KiB, beside the plain-Python twin and kio.

    python -m pytest bench/kernels/test_codec.py --benchmark-sort=mean

A round is one batch: `records` in the extra columns says of how many records.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import i8, i16, i32, i64

from kraftfast.record import batch, builder, columns, pure

BATCH_BYTES = 1 << 16
TIMESTAMP = 1_700_000_000_000
SIZES = {"100 B": 100, "1 KiB": 1024}


class Work:
    """One batch's worth of values, in every form that an encoder takes."""

    def __init__(self, size: int) -> None:
        self.target = bytearray(BATCH_BYTES)
        self.settings = builder.Settings(TIMESTAMP)
        rows = np.random.default_rng(7).integers(0, 256, (BATCH_BYTES // size, size), np.uint8)
        _, self.count = builder.Values(rows).encode_into(self.target, self.settings)
        rows = rows[: self.count]
        self.values = [row.tobytes() for row in rows]
        self.fixed = builder.Values(rows)
        self.blob = builder.Values(rows.tobytes(), np.arange(self.count + 1, dtype=np.int64) * size)
        self.list = builder.Values(self.values)
        taken, _ = self.fixed.encode_into(self.target, self.settings)
        self.batch = bytes(self.target[:taken])
        when = datetime.datetime.fromtimestamp(TIMESTAMP // 1000, datetime.UTC)
        self.kio = NewRecordBatch(
            producer_id=i64(-1),
            producer_epoch=i16(-1),
            partition_leader_epoch=i32(-1),
            base_sequence=i32(-1),
            attributes=i16(0),
            records=tuple(
                KioRecord(
                    attributes=i8(0),
                    timestamp=when,
                    offset=i64(i),
                    key=None,
                    value=value,
                    headers=(),
                )
                for i, value in enumerate(self.values)
            ),
        )


def by_builder(work: Work) -> bytes:
    open_batch = builder.BatchBuilder(work.target, work.settings)
    append = open_batch.append
    for value in work.values:
        append(value)
    return work.target[: open_batch.finish()]


def by_kio(work: Work) -> bytes:
    out = io.BytesIO()
    write_new_batch(out, work.kio)
    return out.getvalue()


ENCODERS: dict[str, Callable[[Work], Any]] = {
    "fixed size": lambda work: work.fixed.encode_into(work.target, work.settings),
    "blob and offsets": lambda work: work.blob.encode_into(work.target, work.settings),
    "list of bytes": lambda work: work.list.encode_into(work.target, work.settings),
    "append, one by one": by_builder,
    "pure": lambda work: pure.encode_batch(pure.values_to_records(work.values, TIMESTAMP)),
    "kio": by_kio,
}
DECODERS: dict[str, Callable[[Work], Any]] = {
    "columns": lambda work: columns.decode_columns(work.batch),
    "list of values": lambda work: columns.decode_values(work.batch),
    "records": lambda work: list(batch.batch_at(work.batch).records()),
    "deep check": lambda work: batch.check_batch(work.batch),
    "pure": lambda work: list(pure.check_batch(work.batch).records()),
    "kio": lambda work: read_batch(work.batch, 0),
}


@pytest.fixture(scope="module", params=SIZES)
def work(request: pytest.FixtureRequest) -> Work:
    return Work(SIZES[request.param])


@pytest.mark.parametrize("way", ENCODERS)
def test_encode(benchmark: Any, way: str, work: Work) -> None:
    benchmark.group = f"encode {work.count} records"
    benchmark.extra_info["records"] = work.count
    result = benchmark(ENCODERS[way], work)
    done = result if isinstance(result, (bytes, bytearray)) else work.target[: result[0]]
    assert batch.check_batch(done).record_count == work.count


@pytest.mark.parametrize("way", DECODERS)
def test_decode(benchmark: Any, way: str, work: Work) -> None:
    benchmark.group = f"decode {work.count} records"
    benchmark.extra_info["records"] = work.count
    benchmark(DECODERS[way], work)
