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
from kraftfast.log import scan
from kraftfast.record.headers import decode_headers
from kraftfast.record.rows import decode_rows
from kraftfast.spark.options import BATCH_BYTES, LogOptions
from kraftfast.spark.survey import (
    OPEN_END,
    Damage,
    Piece,
    open_segment,
    resync,
    segment_base,
)
from kraftfast.spark.tables import (
    BATCH_FIELDS,
    damage_batch,
    flags,
    header_batch,
    numbers,
    row_batch,
)
from kraftfast.spark.transactions import void

CHUNK_BATCHES = 1 << 14


def read_rows(
    piece: Piece, options: LogOptions, schema: pa.Schema, contents: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a piece as record batches. Raises CorruptLog, OffsetOutOfRange."""
    segment = open_segment(*segment_base(piece.path))
    position = piece.position
    while position < piece.end:
        try:
            batch, position = _decode(
                segment.map, position, piece.end, piece, options, schema, contents
            )
            if len(batch):
                yield batch
            continue
        except CorruptBatch as error:
            damage, sound_end, after = _damage(segment.map, position, piece, error)
        if options.on_corrupt == "fail":
            raise damage.error() from None
        while position < sound_end:
            batch, position = _decode(
                segment.map, position, sound_end, piece, options, schema, contents
            )
            if len(batch):
                yield batch
        if options.on_corrupt == "report":
            yield damage_row(damage, schema)
        position = after


def _decode(
    data: Any, position: int, end: int, piece: Piece, options: LogOptions, schema: pa.Schema,
    contents: bool,
) -> tuple[pa.RecordBatch, int]:  # fmt: skip
    rows = decode_rows(
        data, position, end, first_offset=piece.first_offset, end_offset=piece.end_offset,
        records_max=options.batch_rows, bytes_max=BATCH_BYTES, contents=contents,
        control=options.control, verify_crc=options.verify_crc,
    )  # fmt: skip
    batch = row_batch(rows, schema, piece.replica)
    gone = void(rows, piece.aborted)
    return batch if gone is None else batch.filter(flags(~gone)), rows.position


def _damage(
    data: Any, position: int, piece: Piece, error: CorruptBatch
) -> tuple[Damage, int, int]:
    """(the damage, up to where all is sound from ``position`` on, where to go on behind it).

    The header was sound when the piece was planned, so that it mostly says where it ends.
    """
    sound = decode_headers(data, position, piece.end).rows
    at = error.position if error.position >= 0 else position
    here = sound[sound["position"] == at]
    before = sound[sound["position"] < at]
    offset = int(before["end_offset"][-1]) if len(before) else piece.first_offset
    if len(here):
        offset, after = int(here["base_offset"][0]), at + int(here["size"][0])
        ends = int(here["end_offset"][0])
    else:
        after, ends = resync(data, at, piece.end, offset)
    reason = error.reason
    return Damage(piece.replica, piece.path, at, after, offset, ends, reason), at, after


def damage_row(damage: Damage, schema: pa.Schema) -> pa.RecordBatch:
    """One row in the place of what is lost."""
    return damage_batch(schema, damage.replica, damage.first_offset, damage_text(damage))


def damage_text(damage: Damage) -> str:
    """What, where, and which offsets are lost."""
    lost = f"offset {damage.first_offset}"
    if damage.end_offset < 0:
        lost = f"all from offset {damage.first_offset} on"
    elif damage.end_offset > damage.first_offset + 1:
        lost = f"offsets {damage.first_offset} to {damage.end_offset - 1}"
    return f"{damage.path} is damaged at byte {damage.position}: {damage.reason}; {lost} lost"


# --- headers --------------------------------------------------------------------------------------


def read_headers(piece: Piece, verify_crc: bool) -> Iterator[pa.RecordBatch]:
    """The headers of a piece; of one that reaches the end of its segment, what stands behind.

    ``piece.end`` is -1 in the plan there. A batch beyond ``piece.end_offset`` is not handed out,
    nor is what stands behind it.
    """
    segment = open_segment(*segment_base(piece.path))
    data: Any = segment.map if segment.map is not None else b""
    position, end = piece.position, piece.end if piece.end >= 0 else segment.limit
    name = os.path.basename(piece.path)
    offset = piece.first_offset
    while position < end:
        found = decode_headers(
            data, position, end, batches_max=CHUNK_BATCHES, verify_crc=verify_crc
        )
        rows = found.rows[found.rows["end_offset"] <= piece.end_offset]
        cut = len(rows) < len(found.rows)
        fault = found.fault
        position = found.position
        if len(rows):
            offset = int(rows["end_offset"][-1])
        trailing, after = 0, position
        if fault and not cut:
            after, base = resync(data, position, end, offset)
            stop = after if base >= 0 else scan.data_end(data, position, end)
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
    """What is wrong with each batch, and with what stands behind the last one."""
    found: list[str | None] = [None if ok else "CRC-32C does not match" for ok in crc_ok.tolist()]
    if behind:
        found[-1] = "; ".join(filter(None, (found[-1], f"behind it: {behind}")))
    return found
