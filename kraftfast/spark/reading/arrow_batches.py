"""Rows as Arrow record batches, in the schemas that Spark sees: name for name, type for type.

Spark takes a batch as it is only if its schema is the one announced, down to the order of fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraftfast.errors import InvalidOption
from kraftfast.record.columns import BytesColumn
from kraftfast.record.rows import Rows
from kraftfast.record.shapes import CODEC_MASK, CONTROL, Codec

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
STAMP = pa.timestamp("us", tz="UTC")

ROW_FIELDS: Final = {
    "offset": pa.int64(),
    "epoch": pa.int32(),
    "timestamp": STAMP,
    "attributes": pa.int32(),
    "control": pa.bool_(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int32(),
    "sequence": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADER_TYPE,
}
"""A record, with what it shares with its batch."""

CONTENTS: Final = ("key", "value", "headers")
SHARED_FIELDS: Final = {
    "epoch": "epoch",
    "attributes": "attributes",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
}
"""What a record has from its batch as it stands there."""
REPLICA: Final = "replica"
DAMAGE: Final = "damage"

BATCH_FIELDS: Final = {
    "replica": pa.string(),
    "segment": pa.string(),
    "position": pa.int64(),
    "baseOffset": pa.int64(),
    "lastOffset": pa.int64(),
    "epoch": pa.int32(),
    "count": pa.int32(),
    "size": pa.int64(),
    "crc": pa.int64(),
    "crcOk": pa.bool_(),
    "attributes": pa.int32(),
    "codec": pa.string(),
    "control": pa.bool_(),
    "baseTimestamp": STAMP,
    "maxTimestamp": STAMP,
    "producerId": pa.int64(),
    "producerEpoch": pa.int32(),
    "baseSequence": pa.int32(),
    "trailing": pa.int64(),
    "damage": pa.string(),
}
"""A batch's header; ``trailing``: bytes behind it that are no batch, the first of them damage or a
torn tail. What stands there before any batch is a row without a header."""

SQL_TYPES: Final = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "binary",
    STAMP: "timestamp",
    HEADER_TYPE: "array<struct<key:string,value:binary>>",
}


def row_fields(contents: bool, several: bool, report: bool) -> dict[str, pa.DataType]:
    """Return the fields of rows: without contents, with the replica, with words on damage."""
    fields = {name: kind for name, kind in ROW_FIELDS.items() if contents or name not in CONTENTS}
    if several:
        fields[REPLICA] = pa.string()
    if report:
        fields[DAMAGE] = pa.string()
    return fields


def ddl(fields: dict[str, pa.DataType]) -> str:
    """Return the same for Spark.

    >>> ddl(row_fields(False, False, True)).split(", ")[-2:]
    ['`sequence` int', '`damage` string']
    """
    return ", ".join(f"`{name}` {SQL_TYPES[kind]}" for name, kind in fields.items())


def chosen(fields: dict[str, pa.DataType], names: Sequence[str]) -> pa.Schema:
    """Return the schema of some of the fields, in the order asked for. Raises InvalidOption."""
    unknown = [name for name in names if name not in fields]
    if unknown:
        raise InvalidOption(
            f"there is no column {unknown[0]!r}: the columns are {', '.join(fields)}"
        )
    return pa.schema([(name, fields[name]) for name in names])


def asked_for(fields: dict[str, pa.DataType], schema: Any) -> pa.Schema:
    """Return those of the fields in Spark's schema, which a caller may have written. Raises
    InvalidOption.

    Bytes that were asked for as text are refused here, in the driver. Any other type that is not
    the column's Spark refuses, when it compares the schema with what a task has read.
    """
    found = chosen(fields, schema.names)
    for field in schema:
        if fields[field.name] == pa.binary() and field.dataType.simpleString() == "string":
            raise InvalidOption(
                f"column {field.name} is binary, not string: leave the schema out, and cast in "
                "the query"
            )
    return found


def bits(flags: Any) -> pa.Buffer:
    """Return booleans as Arrow keeps them, and its marks of what is there."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def numbers(values: Any, kind: pa.DataType, absent: Any = None) -> pa.Array:
    """Return a numpy array as the type named, null where ``absent`` says so.

    ``pa.array`` and ``pa.scalar`` do as much, and import pandas first: half a second of each
    worker's first task, and 34,000 objects that PySpark's daemon looks through after every task.
    """
    data = pa.py_buffer(np.ascontiguousarray(values, f"i{kind.bit_width // 8}"))
    valid = None if absent is None or not absent.any() else bits(~absent)
    return pa.Array.from_buffers(kind, len(values), [valid, data])


def flags(values: Any) -> pa.Array:
    """Return a numpy array of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits(values)])


def words(text: str, count: int) -> pa.Array:
    """Return the same text in every row."""
    data = text.encode()
    ends = pa.py_buffer(np.array([0, len(data)], np.int32))
    one = pa.StringArray.from_buffers(1, ends, pa.py_buffer(data))
    return one.take(numbers(np.zeros(count, np.int64), pa.int64()))


def stamps(milliseconds: Any) -> pa.Array:
    """Return microseconds of UTC; no timestamp (-1), or one beyond bounds, is null."""
    absent = (milliseconds < 0) | (milliseconds > TIMESTAMP_MS_MAX)
    return numbers(np.where(absent, 0, milliseconds) * 1000, STAMP, absent)


def byte_strings(column: BytesColumn) -> pa.Array:
    """Nulls cost nothing where there is nothing else."""
    count = len(column)
    return pa.nulls(count, pa.binary()) if column.null_count == count else column.to_arrow()


def headers_of(rows: Rows) -> pa.Array:
    """Return a list a row, null where it has none, as Spark's source for Kafka has it: nulls cost
    less.

    Kafka takes keys that are no UTF-8, of which a column of text can hold the bytes as escapes.
    """
    if rows.header_ends is None:
        return pa.nulls(len(rows), HEADER_TYPE)
    assert rows.header_keys is not None and rows.header_values is not None
    keys = rows.header_keys.to_arrow()
    try:
        keys = keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [key.decode(errors="backslashreplace") for key in keys.to_pylist()]
        keys = pa.array(texts, pa.string())
    pairs = pa.StructArray.from_arrays([keys, byte_strings(rows.header_values)], ["key", "value"])
    ends = np.concatenate([[0], rows.header_ends]).astype(np.int32)
    none = np.append(ends[1:] == ends[:-1], False)
    return pa.ListArray.from_arrays(numbers(ends, pa.int32(), none), pairs)


def row_column(rows: Rows, name: str, replica: str) -> pa.Array:
    """Return one field of every row."""
    count = len(rows)
    if name == "offset":
        return numbers(rows.offsets, pa.int64())
    if name == "timestamp":
        return stamps(rows.timestamps)
    if name == "control":
        return flags(rows.spread("attributes") & CONTROL != 0)
    if name == "sequence":
        return numbers(rows.sequences(), pa.int32())
    if name in SHARED_FIELDS:
        return numbers(rows.spread(SHARED_FIELDS[name]), ROW_FIELDS[name])
    if name == REPLICA:
        return words(replica, count)
    if name == DAMAGE:
        return pa.nulls(count, pa.string())
    if name == "headers":
        return headers_of(rows)
    column = rows.keys if name == "key" else rows.values
    assert column is not None, "contents were asked for"
    return byte_strings(column)


def row_batch(rows: Rows, schema: pa.Schema, replica: str = "") -> pa.RecordBatch:
    """Return rows with the fields of a schema, in its order."""
    arrays = [row_column(rows, name, replica) for name in schema.names]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.nulls(len(rows), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def damage_batch(schema: pa.Schema, replica: str, offset: int, text: str) -> pa.RecordBatch:
    """Return one row that says what is not there: its offset is the first one lost."""
    known = {"offset": offset, REPLICA: replica, DAMAGE: text}
    arrays = [pa.array([known.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


HEADER_FIELDS: Final = {
    "position": "position",
    "baseOffset": "base_offset",
    "epoch": "epoch",
    "count": "count",
    "size": "size",
    "crc": "crc",
    "attributes": "attributes",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
}
"""What a row of ``kraftfast-batches`` has from the header as it stands there."""
CODECS: Final = pa.concat_arrays([words(each.name.lower(), 1) for each in Codec])


def header_batch(rows: Any, replica: str, segment: str) -> dict[str, Any]:
    """Return the columns of ``kraftfast-batches`` for headers, but for the last two."""
    count = len(rows)
    taken = {
        name: numbers(rows[field], BATCH_FIELDS[name]) for name, field in HEADER_FIELDS.items()
    }
    return taken | {
        "replica": words(replica, count),
        "segment": words(segment, count),
        "lastOffset": numbers(rows["end_offset"] - 1, pa.int64()),
        "crcOk": flags(rows["crc_ok"]),
        "codec": CODECS.take(numbers(rows["attributes"] & CODEC_MASK, pa.int64())),
        "control": flags(rows["attributes"] & CONTROL != 0),
        "baseTimestamp": stamps(rows["base_timestamp"]),
        "maxTimestamp": stamps(rows["max_timestamp"]),
    }
