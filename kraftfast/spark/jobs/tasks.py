"""One function over many items, by Spark's tasks: the jobs that answer little and read much."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kraftfast.spark.sessions.forked import settle
from kraftfast.spark.sessions.spark_failures import told

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TASKS_MAX = 512
Item = TypeVar("Item")


def fan_out(spark: SparkSession, run: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """Yield what ``run`` makes of each item, in their order: anything that JSON holds.

    Raises what ``run`` raises, or SparkFailed.
    """

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        settle()
        for batch in numbers:
            taken = batch.column(0).to_pylist()
            lines = [json.dumps(run(items[number]), default=str) for number in taken]
            yield pyarrow.record_batch({"number": taken, "answer": lines})

    if not items:
        return []
    numbers = spark.range(0, len(items), 1, min(len(items), TASKS_MAX))
    with told():
        rows = numbers.mapInArrow(task, "number bigint, answer string").collect()
    return [json.loads(row.answer) for row in sorted(rows, key=lambda row: row.number)]
