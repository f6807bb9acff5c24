"""``CREATE TABLE ... USING kraftfast``, and ``INSERT`` into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

import kraftfast  # noqa: E402
from kraftfast import errors  # noqa: E402
from kraftfast.spark.reading.catalog import recalled  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.writing.outgoing import check_schema  # noqa: E402
from tests.spark.kit import LogFiles, rows_of  # noqa: E402

PROPERTIES = {"provider": "kraftfast", "owner": "me", "option.path": "", "external": "true"}
SMALL: dict[str, Any] = {
    "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20,
}  # fmt: skip


@pytest.mark.parametrize("name", ["path", "location"])
def test_a_table_remembers_its_options_by_its_schema(log: LogFiles, name: str) -> None:
    """As Spark does it: the properties when it is made, no option when it is read."""
    made = LogSource({**PROPERTIES, name: f"file:{log.path}", "columns": "meta"}).schema()
    assert isinstance(made, StructType)
    schema = StructType.fromJson(made.jsonValue())  # as it comes back from the catalog
    assert "value" not in schema.names
    source = LogSource({})
    reader = source.reader(schema)
    assert sum(len(b) for part in reader.partitions() for b in reader.read(part)) == 120
    assert recalled({"PATH": "x"}, schema) == {"PATH": "x"}
    with pytest.raises(errors.InvalidOption, match="wants either a path"):
        LogSource({}).reader(StructType())
    managed = {**PROPERTIES, "is_managed_location": "true", "location": "/warehouse/t"}
    with pytest.raises(errors.InvalidOption, match="wants either a path"):
        LogSource(managed).schema()


def test_insert_names_some_columns(log: LogFiles) -> None:
    made = LogSource({**PROPERTIES, "path": str(log.path)}).schema()
    assert isinstance(made, StructType)
    check_schema(made, False)
    some = StructType([each for each in made.fields if each.name in ("value", "offset")])
    with pytest.raises(errors.InvalidOption, match="not offset"):
        check_schema(some, False)


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[kraftfast.LocalQuorum]:
    with kraftfast.LocalQuorum(
        tmp_path / "q", 1, transport="socket", durability="memory", **SMALL
    ) as found:
        yield found


@pytest.mark.spark
@pytest.mark.processes
def test_tables_on_spark(spark: Any, quorum: kraftfast.LocalQuorum) -> None:
    host, port = quorum.addresses[1]
    spark.sql(f"CREATE TABLE by_path USING kraftfast OPTIONS (path '{quorum.path}')")
    servers = f"'bootstrap.servers' '{host}:{port}'"
    spark.sql(f"CREATE TABLE by_servers USING kraftfast OPTIONS ({servers})")
    spark.sql(f"CREATE TABLE by_place USING kraftfast LOCATION '{quorum.path}'")
    try:
        for number, name in enumerate(("by_path", "by_servers", "by_place")):
            spark.sql(f"INSERT INTO {name} (value) VALUES (cast('table {number}' as binary))")
            assert spark.table(name).count() == number + 1
        both = "cast('k' as binary), cast('table 3' as binary)"
        spark.sql(f"INSERT INTO by_path (key, value) SELECT {both}")
    finally:
        for name in ("by_path", "by_servers", "by_place"):
            spark.sql(f"DROP TABLE {name}")
    rows = rows_of(LogSource({"path": str(quorum.path)}))
    assert [(row["key"], row["value"]) for row in rows] == [
        (None, b"table 0"), (None, b"table 1"), (None, b"table 2"), (b"k", b"table 3"),
    ]  # fmt: skip
