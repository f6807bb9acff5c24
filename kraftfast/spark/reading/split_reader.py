"""Reading a piece of a log in a task: rows, or headers, and what is done about damage.

``fail`` raises with the place, ``skip`` goes on behind it, ``report`` goes on and puts a row there
that says what is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kraftfast.errors import CorruptBatch
from kraftfast.record.rows import decode_rows
from kraftfast.record.shapes import FAULT_TEXTS, Fault, refusal
from kraftfast.spark.reading import remote_ranges
from kraftfast.spark.reading.arrow_batches import (
    BATCH_FIELDS,
    damage_batch,
    flags,
    header_batch,
    numbers,
    row_batch,
)
from kraftfast.spark.reading.splits import (
    OPEN_END,
    Damaged,
    Piece,
    open_segment,
    resync,
    segment_base,
)
from kraftfast.spark.reading.transactions import void
from kraftfast.spark.spark_options import BATCH_BYTES, SparkLogOptions

CHUNK_BATCHES = 1 << 14


def read_part(
    part: Any, options: SparkLogOptions, schema: pa.Schema, contents: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of what a task was given: a piece of a log, a range of offsets, or damage."""
    if isinstance(part, Piece):
        yield from read_rows(part, options, schema, contents)
    elif isinstance(part, remote_ranges.Range):
        yield from remote_ranges.read_range(part, options, schema, contents)
    elif isinstance(part, Damaged):
        yield damage_row(part, schema)


def read_rows(
    piece: Piece, options: SparkLogOptions, schema: pa.Schema, contents: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece as record batches. Raises CorruptLog, OffsetOutOfRange."""
    reading = _Reading(piece, options, schema, contents)
    while reading.position < piece.end:
        try:
            yield from reading.up_to(piece.end)
            continue
        except CorruptBatch as error:
            damage, sound_end, after = _damage(reading, error)
        if options.on_corrupt == "fail":
            raise damage.error() from None
        yield from reading.up_to(sound_end)
        if options.on_corrupt == "report":
            yield damage_row(damage, schema)
        reading.position = after


class _Reading:
    """A piece that is read: copied in parts, which are taken apart."""

    # segment: held. position: of the next batch in the file. data: a copy from begin on, of whole
    # batches up to whole.

    def __init__(
        self, piece: Piece, options: SparkLogOptions, schema: pa.Schema, contents: bool
    ) -> None:
        self.segment = open_segment(*segment_base(piece.path))
        self.piece, self.options, self.schema, self.contents = piece, options, schema, contents
        self.position = self.begin = self.whole = piece.position
        self.data = b""

    def up_to(self, end: int) -> Iterator[pa.RecordBatch]:
        """Yield what is wanted up to ``end``. Raises CorruptBatch with its place in the file."""
        while self.position < end:
            before = self.position
            try:
                batch = self._decode(end)
            except CorruptBatch as error:
                error.position = self.begin + max(error.position, 0)
                raise
            if len(batch):
                yield batch
            if self.position == before:  # the next one is beyond what is wanted
                self.position = end

    def _decode(self, end: int) -> pa.RecordBatch:
        piece, options = self.piece, self.options
        if not self.begin <= self.position < self.whole:
            self.data, whole = self.segment.whole(self.position, end)
            self.begin, self.whole = self.position, self.position + whole
            if not self.data:  # the file ends here by now
                raise refusal(Fault.INCOMPLETE, 0)
        rows = decode_rows(
            self.data, self.position - self.begin, min(end, self.whole) - self.begin,
            first_offset=piece.first_offset, end_offset=piece.end_offset,
            records_max=options.batch_rows, bytes_max=BATCH_BYTES, contents=self.contents,
            control=options.control, verify_crc=options.verify_crc,
        )  # fmt: skip
        self.position = self.begin + rows.position
        batch = row_batch(rows, self.schema, piece.replica)
        gone = void(rows, piece.aborted)
        return batch if gone is None else batch.filter(flags(~gone))


def _damage(reading: _Reading, error: CorruptBatch) -> tuple[Damaged, int, int]:
    """Return (the damage, up to where all is sound from the reader's place on, where to go on
    behind it).

    The header was sound when the piece was planned, so that it mostly says where it ends.
    """
    piece, at = reading.piece, error.position
    sound = reading.segment.headers(reading.position, piece.end).rows
    here = sound[sound["position"] == at]
    before = sound[sound["position"] < at]
    offset = int(before["end_offset"][-1]) if len(before) else piece.first_offset
    if len(here):
        offset, after = int(here["base_offset"][0]), at + int(here["size"][0])
        ends = int(here["end_offset"][0])
    else:
        after, ends = resync(reading.segment, at, piece.end, offset)
    reason = error.reason
    return Damaged(piece.replica, piece.path, at, after, offset, ends, reason), at, after


def damage_row(damage: Damaged, schema: pa.Schema) -> pa.RecordBatch:
    """Return one row in the place of what is lost."""
    return damage_batch(schema, damage.replica, damage.first_offset, damage_text(damage))


def damage_text(damage: Damaged) -> str:
    """What, where, and which offsets are lost."""
    lost = f"offset {damage.first_offset}"
    if damage.end_offset < 0:
        lost = f"all from offset {damage.first_offset} on"
    elif damage.end_offset > damage.first_offset + 1:
        lost = f"offsets {damage.first_offset} to {damage.end_offset - 1}"
    return f"{damage.path} is damaged at byte {damage.position}: {damage.reason}; {lost} lost"


# --- headers --------------------------------------------------------------------------------------


def read_headers(piece: Piece, verify_crc: bool) -> Iterator[pa.RecordBatch]:
    """Yield the headers of a piece; of one that reaches the end of its segment, what stands behind.

    ``piece.end`` is -1 in the plan there. A batch beyond ``piece.end_offset`` is not handed out,
    nor is what stands behind it.
    """
    segment = open_segment(*segment_base(piece.path))
    position, end = piece.position, piece.end if piece.end >= 0 else segment.limit
    name = os.path.basename(piece.path)
    offset = piece.first_offset
    while position < end:
        found = segment.headers(position, end, batches_max=CHUNK_BATCHES, verify_crc=verify_crc)
        rows = found.rows[found.rows["end_offset"] <= piece.end_offset]
        cut = len(rows) < len(found.rows)
        fault = found.fault
        position = found.position
        if len(rows):
            offset = int(rows["end_offset"][-1])
        trailing, after = 0, position
        if fault and not cut:
            after, base = resync(segment, position, end, offset)
            stop = after if base >= 0 else segment.data_end(position, end)
            if segment.lost_end() >= 0:
                stop = end
            trailing = stop - position
        if cut or piece.end_offset < OPEN_END and offset >= piece.end_offset:
            trailing, after, fault = 0, end, ""
        if len(rows) or trailing:
            yield _header_rows(rows, piece.replica, name, position, trailing, fault)
        if after == found.position and not (len(found.rows) == CHUNK_BATCHES):
            return
        position = after


def _header_rows(
    rows: Any, replica: str, name: str, position: int, trailing: int, fault: str
) -> pa.RecordBatch:
    schema = pa.schema(list(BATCH_FIELDS.items()))
    count = len(rows)
    if not count:
        known = {
            "replica": replica, "segment": name, "position": position, "trailing": trailing,
            "damage": fault,
        }  # fmt: skip
        return pa.RecordBatch.from_arrays(
            [pa.array([known.get(field.name)], field.type) for field in schema], schema=schema
        )
    columns = header_batch(rows, replica, name)
    behind = np.zeros(count, np.int64)
    behind[-1] = trailing
    damage = pa.nulls(count, pa.string())
    if trailing or not rows["crc_ok"].all():
        damage = pa.array(_damages(rows["crc_ok"], fault if trailing else ""), pa.string())
    columns |= {"trailing": numbers(behind, pa.int64()), "damage": damage}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _damages(crc_ok: Any, behind: str) -> list[str | None]:
    """Return what is wrong with each batch, and with what stands behind the last one."""
    found: list[str | None] = [None if ok else FAULT_TEXTS[Fault.CRC] for ok in crc_ok.tolist()]
    if behind:
        found[-1] = "; ".join(filter(None, (found[-1], f"behind it: {behind}")))
    return found
