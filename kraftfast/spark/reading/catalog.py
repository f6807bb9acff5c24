"""Tables of a catalog: ``CREATE TABLE t USING kraftfast OPTIONS (...)``, also with ``LOCATION``.

Spark (4.2, 4.3) hands a table's options to a Python source only when the table is made. Later it
has the table's schema, so the options go into that, as metadata of every column.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from kraftfast.spark.spark_options import OF_TABLES, options_of_a_table

MARK = "kraftfast.options"
PLACES = frozenset({"path", "bootstrap.servers"})


def makes_a_table(options: Any) -> bool:
    """Return whether these are the properties of a table that is being made."""
    return bool(OF_TABLES & {name.lower() for name in dict(options)})


def table_schema(fields: dict[str, pa.DataType], options: Any) -> StructType:
    """Return the fields, each with the options of the table."""
    text = json.dumps(options_of_a_table(dict(options)))
    return StructType(
        [
            StructField(name, from_arrow_type(kind), metadata={MARK: text})
            for name, kind in fields.items()
        ]
    )


def recalled(options: Any, schema: StructType) -> dict[str, Any]:
    """Return options with those of a schema's table, where they do not say themselves."""
    given = dict(options)
    if PLACES & {name.lower() for name in given}:
        return given
    kept = (json.loads(each.metadata[MARK]) for each in schema.fields if MARK in each.metadata)
    return {**next(kept, {}), **given}
