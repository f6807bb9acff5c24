"""The examples in the docstrings of the room run as they stand."""

from __future__ import annotations

import doctest
import importlib

import pytest

pytest.importorskip("pyspark")


FILES = (
    "jobs.auditing", "jobs.conversion", "jobs.digests", "reading.arrow_batches",
    "reading.pure_readers", "sessions.spark_failures", "streaming.stream", "writing.sink",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"kraftfast.spark.{name}"))
    assert result.failed == 0 and result.attempted > 0, f"{name}: {result}"
