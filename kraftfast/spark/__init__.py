"""The data pipeline on Apache Spark: read logs, follow them, write to quorums, and jobs on them.

``sessions``   a quiet local session with the sources registered, and what its workers need
``reading``    ``sources`` says how far a log is read (``committed``), cuts it into ``splits`` by
               the headers of its batches, and has tasks read those as ``arrow_batches``
``streaming``  the same log as a stream; ``lineage`` compares a checkpoint's log with what is there
``writing``    ``sink``: rows become records, appended by tasks themselves (``appending``) or staged
               in files that the driver's commit appends (``staging``)
``jobs``       audit, conversion to Parquet, compaction, percentiles, sweeps
``options``    the options of all of these, by name

Nothing else of kraftfast imports this, and this imports pyspark only where a session is wanted:

>>> from kraftfast.spark import get_spark, register                       # doctest: +SKIP
>>> spark = register(get_spark())                                        # doctest: +SKIP
>>> spark.read.format("kraftfast").load("quorum/1").count()              # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import Any

from kraftfast.spark.reading.uncompiled import stand_in

stand_in()

_DOORS: dict[str, str] = {
    "get_spark": "kraftfast.spark.sessions.local_session",
    "register": "kraftfast.spark.sessions.local_session",
    "audit": "kraftfast.spark.jobs.auditing",
    "convert": "kraftfast.spark.jobs.conversion",
    "compact": "kraftfast.spark.jobs.conversion",
    "latency": "kraftfast.spark.jobs.commit_percentiles",
    "sweep": "kraftfast.spark.jobs.sweeps",
    "explain": "kraftfast.spark.sessions.spark_failures",
    "told": "kraftfast.spark.sessions.spark_failures",
}


def __getattr__(name: str) -> Any:
    if name in _DOORS:
        return getattr(importlib.import_module(_DOORS[name]), name)
    raise AttributeError(f"module 'kraftfast.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_DOORS])
