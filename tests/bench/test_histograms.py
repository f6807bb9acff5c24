"""Histograms of results: what goes in comes out, and what is none is named."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from kraftfast.bench.profiling import histograms
from kraftfast.errors import InputError, InvalidOption
from kraftfast.link.stats import bucket_tops


def test_the_library_reads_what_was_counted() -> None:
    tops = bucket_tops()
    counts = np.zeros(len(tops), np.int64)
    counts[[100, 700, len(tops) - 1]] = (900, 99, 1)
    read = HdrHistogram.decode(histograms.encode(histograms.of_buckets(counts)).encode())
    assert read.get_total_count() == 1000
    for percentile, bucket in ((50, 100), (99, 700)):
        assert read.get_value_at_percentile(percentile) == pytest.approx(tops[bucket], rel=0.001)
    assert read.get_max_value() >= histograms.TOP_NS * 0.99


def test_times_are_kept_to_three_digits() -> None:
    times = np.array([1, 250, 1_000_000, 3_600_000_000_000])
    read = histograms.decode(histograms.encode(histograms.of_times(times)))
    found = [read.get_value_at_percentile(each) for each in (25, 50, 75, 100)]
    assert found == pytest.approx(list(times), rel=0.001)


def test_what_is_no_histogram_is_named() -> None:
    whole = histograms.encode(histograms.of_times([1, 2, 3]))
    bad: tuple[Any, ...] = ("", "abc", "HISTFAAAAA==", whole[:-8], whole[4:], "\u00e9", "A" * 100,
                            whole[:20] + "!!!!" + whole[24:], None, 7, "A" * (5 << 20))  # fmt: skip
    for text in bad:
        with pytest.raises(InputError, match="HdrHistogram"):
            histograms.decode(text)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def refuse(name: str, *args: Any, **settings: Any) -> Any:
        if name.startswith("hdrh"):
            raise ImportError(name)
        return found(name, *args, **settings)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert not histograms.installed()
    with pytest.raises(InvalidOption, match=r"pip install 'kraftfast\[bench\]'"):
        histograms.empty()


class Page:
    """The counters of a replica that a test sets."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(bucket_tops()), np.uint64)

    def buckets(self, stage: str) -> bytes:
        return self.counts.tobytes() if stage == "queue" else bytes(self.counts.nbytes)


def test_only_what_came_since_is_counted_of_all_replicas() -> None:
    pages = {1: Page(), 2: Page()}
    pages[1].counts[10] = 5
    counted = histograms.Counted(pages)
    pages[1].counts[10] = 7
    pages[2].counts[20] = 1
    ((name, found),) = counted.stages().items()
    assert name == "stage queue" and found.get_total_count() == 3
