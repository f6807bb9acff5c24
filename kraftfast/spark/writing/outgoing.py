"""Rows on their way to a quorum: which columns they may have, and what they are as records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from kraftfast.errors import InvalidOption
from kraftfast.record.builder import Values
from kraftfast.spark.reading.arrow_batches import CONTENTS, HEADER_TYPE, ROW_FIELDS

FIELDS = {"value": "", "key": "", "headers": "array<struct<key:string,value:binary>>"}


def check_schema(schema: StructType, overwrite: bool) -> None:
    """Check the columns ``value`` and, if there, ``key`` and ``headers``. Raises InvalidOption.

    ``INSERT`` gives all columns of its table, null where it names none: they are all there then.
    """
    if overwrite:
        raise InvalidOption(
            "records of a log cannot be overwritten: use mode('append'), INSERT INTO, or of a "
            "stream outputMode('append')"
        )
    kinds = {each.name: each.dataType for each in schema.fields}
    if "value" not in kinds:
        raise InvalidOption(
            f"a column named value is wanted, binary or string; there are {', '.join(kinds)}"
        )
    of_a_table = set(ROW_FIELDS) <= set(kinds)
    for name, kind in kinds.items():
        if name not in FIELDS and not of_a_table:
            raise InvalidOption(
                f"the sink takes the columns {', '.join(FIELDS)}, not {name}: select those"
            )
        wanted = FIELDS.get(name)
        if wanted and kind.simpleString() != wanted:
            raise InvalidOption(f"column {name} is {kind.simpleString()}; {wanted} is wanted")
        if wanted == "" and not isinstance(kind, BinaryType | StringType):
            raise InvalidOption(f"column {name} is {kind.simpleString()}: cast it to binary")


def outgoing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Value, and key and headers where any record has them. Raises InvalidOption."""
    columns: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns):
        if name not in FIELDS:
            if column.null_count < len(column):
                raise InvalidOption(f"the log gives {name} itself: select value, key, headers")
        elif name == "value" or column.null_count < len(column):
            kind = HEADER_TYPE if name == "headers" else pa.binary()
            columns[name] = column if column.type == kind else column.cast(kind)
    return pa.record_batch(columns)


def values_of(batch: pa.RecordBatch) -> Values:
    """Return what :func:`outgoing` returned, for a producer."""
    has = batch.schema.names
    return Values(
        batch.column("value"),
        keys=batch.column("key") if "key" in has else None,
        headers=batch.column("headers") if "headers" in has else None,
    )


def first_difference(rows: pa.RecordBatch, stored: pa.RecordBatch) -> int:
    """Return the first record in which as many rows and stored records differ; -1 if none does."""
    least = len(rows)
    for name in CONTENTS:
        ours, theirs = (
            each.column(name) if name in each.schema.names else pa.nulls(len(each))
            for each in (rows, stored)
        )
        if ours.equals(theirs) or ours.null_count == theirs.null_count == len(ours):
            continue
        pairs = zip(ours.to_pylist(), theirs.to_pylist())
        plain = name != "headers"  # where no header and no list of headers are the same
        differ = (n for n, (a, b) in enumerate(pairs) if (a if plain else a or None) != b)
        least = min(least, next(differ, least))
    return -1 if least == len(rows) else least
