"""The examples in the docstrings of the room run as they stand."""

from __future__ import annotations

import doctest
import importlib

import pytest

pytest.importorskip("pyspark")


FILES = ("auditing", "conversion", "digests", "failures", "sink", "stream", "tables", "twins")


@pytest.mark.parametrize("name", FILES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"kraftfast.spark.{name}"))
    assert result.failed == 0 and result.attempted > 0, f"{name}: {result}"
