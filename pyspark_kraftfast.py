"""Spark finds data sources by itself in modules called ``pyspark_*``: nothing to register.

Filters are not pushed down then, for Spark must be told to allow it: ``kraftfast.spark.register``.
"""

from kraftfast.spark.sources import PlainLogSource

DefaultSource = PlainLogSource
