"""Samples of stages: each once, exact where commits are told apart, by buckets where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftfast import errors
from kraftfast.bench.profiling.samples import Sampler, check_target
from kraftfast.link.stats import Stats, bucket_tops


def test_every_sample_is_kept_once(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    stats = Stats()
    stats.flushed("append", 0, 7_000, 0)  # before the clock starts
    sampler = Sampler({3: stats.view()})
    stats.flushed("append", 0, 123_456, 0)
    sampler.look(1, 150.5)
    for ns in (123_456, 123_456, 900_000, 50):
        stats.flushed("append", 0, ns, 0)
    stats.flushed("commit", 0, 60_000, 0)
    sampler.look(2)
    sampler.look(3)
    sampler.write(str(tmp_path / "samples"))
    rows = parquet.read_table(tmp_path / "samples").to_pylist()
    exact = [row for row in rows if row["commit"] == 1]
    assert [(row["stage"], row["replica"], row["us"]) for row in exact] == [
        ("whole", 0, 150.5), ("append", 3, 123.456),
    ]  # fmt: skip
    later = [row for row in rows if row["commit"] == 2]
    assert [row["count"] for row in later] == [1, 2, 1, 1] and len(rows) == 6
    found = [row["us"] * 1000 for row in later]
    for row, ns in zip(found, (50, 123_456, 900_000, 60_000)):
        assert ns <= row + 0.5 <= ns * 1.017 + 1


def test_buckets_rise() -> None:
    tops = bucket_tops()
    assert tops == sorted(tops) and tops[0] == 0


def test_a_file_that_cannot_be_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="cannot write"):
        check_target(str(tmp_path / "no" / "file"))
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(errors.InputError, match="it is there, and not a Parquet file"):
        check_target(str(tmp_path / "result.json"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(errors.InputError, match="no ordinary file"):
        check_target(str(tmp_path / "pipe"))
    assert (tmp_path / "result.json").read_text() == "{}"
