"""Spark finds data sources by itself in modules called ``pyspark_*``: nothing to register.

The option ``pushFilters`` wants a session that allows it: ``kraftfast.spark.register``.
"""

from kraftfast.spark.reading.sources import LogSource

DefaultSource = LogSource
