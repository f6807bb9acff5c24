"""The examples in the docstrings of the log's and the codec's doors run as they stand."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.log.kit import Home, append, batch

WITHOUT_LOG = [
    "kraftfast.cli.log.dump",
    "kraftfast.log.small_files.epoch_checkpoint",
    "kraftfast.log.snapshots.newest_snapshot",
    "kraftfast.log.small_files.properties",
    "kraftfast.log.segment",
    "kraftfast.log.snapshots.snapshot_files",
    "kraftfast.record",
    "kraftfast.record.batch",
    "kraftfast.record.builder",
    "kraftfast.record.checksum",
    "kraftfast.record.columns",
    "kraftfast.record.control",
    "kraftfast.record.pure_crc",
    "kraftfast.types",
]
WITH_LOG = ["kraftfast.log.reading.reader", "kraftfast.log.reading.verify"]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(name: str, **names: object) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs=names, optionflags=OPTIONS)
    assert result.failed == 0 and result.attempted > 0, f"{name}: {result}"


@pytest.mark.parametrize("name", WITHOUT_LOG)
def test_examples(name: str) -> None:
    run(name)


@pytest.mark.parametrize("name", WITH_LOG)
def test_examples_with_a_log(name: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    for values in ((b"a", b"b"), (b"c",)):
        append(home.log if home.recovered else home.open(), batch(values))
    home.close()
    run(name, log_path=home.log_path)
