"""The data pipeline on Apache Spark: read logs, follow them, write to quorums, and jobs on them.

===============  ================================================================================
``session``      a quiet local session, the sources registered; what is missing, in one line
``archive``      the classes of a session in a file, so that the next starts twice as quickly
``forked``       what a worker does for itself that PySpark's daemon forked
``options``      the options of sources and sinks, by name
``places``       where logs are: directories of replicas, quorums on this host, servers
``committed``    how far a log may be read
``transactions`` which records of a Kafka partition were aborted
``survey``       which batches a log holds, from their headers; pieces for tasks to read
``remote``       ranges of offsets of a running quorum, read from its servers
``fetched``      its newest snapshot, as a copy
``pieces``       reading a piece, damage included
``plain``        what is compiled, where only the ``.py`` files are; ``twins`` take its place
``tables``       rows as Arrow record batches, in the schemas that Spark sees
``sources``      the batch sources: ``kraftfast``, ``kraftfast-batches``, ``kraftfast-snapshot``
``catalog``      what tables of a catalog keep of their options
``stream``       the same log as a stream
``followed``     what it follows, and what stays open between its triggers
``lineage``      of which log its checkpoint is
``leader``       one connection to a quorum's leader
``sink``         rows become records of a quorum, each once
``destination``  where they go, and where the sink keeps what it must know to begin again
``outgoing``     which columns rows may have, and what they are as records
``staging``      rows that tasks stage, and the driver's commit appends
``appending``    rows that tasks append by themselves, compared with what is committed already
``tasks``        one function over many items, by tasks
``digests``      headers of a piece in one row: whether replicas are alike
``shared``       what replicas should have alike
``findings``     what an audit says
``auditing``     replicas held against each other
``conversion``   a log as Parquet; the latest value of each key
``percentiles``  where the time of commits went, of a benchmark's samples
``sweeps``       many runs of one function, with Spark or without
===============  ================================================================================

Nothing else of kraftfast imports this, and this imports pyspark only where a session is wanted:

>>> from kraftfast.spark import get_spark, register                       # doctest: +SKIP
>>> spark = register(get_spark())                                        # doctest: +SKIP
>>> spark.read.format("kraftfast").load("quorum/1").count()              # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import Any

from kraftfast.spark.plain import stand_in

stand_in()

_DOORS: dict[str, str] = {
    "get_spark": "kraftfast.spark.session",
    "register": "kraftfast.spark.session",
    "audit": "kraftfast.spark.auditing",
    "convert": "kraftfast.spark.conversion",
    "compact": "kraftfast.spark.conversion",
    "latency": "kraftfast.spark.percentiles",
    "sweep": "kraftfast.spark.sweeps",
    "explain": "kraftfast.spark.failures",
    "told": "kraftfast.spark.failures",
}


def __getattr__(name: str) -> Any:
    if name in _DOORS:
        return getattr(importlib.import_module(_DOORS[name]), name)
    raise AttributeError(f"module 'kraftfast.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_DOORS])
