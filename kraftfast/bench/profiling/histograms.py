"""Histograms of times as HdrHistogram writes them: any of its tools reads them, and they add up.

The library is ``hdrhistogram`` (HdrHistogram's V2 format, compressed, as base64). Values are
nanoseconds. What the replicas count has buckets of 1.6 %: a histogram of theirs is no finer.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from kraftfast.errors import InputError, InvalidOption
from kraftfast.link.stats import STAGES, bucket_tops

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

TOP_NS = 2**48
DIGITS = 3
TEXT_BYTES_MAX = 4 << 20
MISSING = "histograms need hdrhistogram: pip install 'kraftfast[bench]'"


def installed() -> bool:
    """Return whether the library is there."""
    try:
        import hdrh.histogram  # noqa: F401
    except ImportError:
        return False
    return True


def empty() -> HdrHistogram:
    """Return a histogram from 1 ns to 3 days, of three digits. Raises InvalidOption without the
    library."""
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        raise InvalidOption(MISSING) from None
    return HdrHistogram(1, TOP_NS, DIGITS)


def of_buckets(counts: Any) -> HdrHistogram:
    """Return a histogram of what a replica or a producer counted: one count for each of
    :func:`bucket_tops <kraftfast.link.stats.bucket_tops>`."""
    made, tops = empty(), bucket_tops()
    for at in np.flatnonzero(counts):
        made.record_value(max(1, min(tops[at], TOP_NS)), int(counts[at]))
    return made


def of_times(times_ns: Any) -> HdrHistogram:
    """Return a histogram of an array of times, nanoseconds."""
    made = empty()
    bounded = np.clip(np.asarray(times_ns, np.int64), 1, TOP_NS)
    for value, count in zip(*np.unique(bounded, return_counts=True)):
        made.record_value(int(value), int(count))
    return made


def encode(histogram: HdrHistogram) -> str:
    """Return the text of a histogram."""
    return bytes(histogram.encode()).decode()


def decode(text: str) -> HdrHistogram:
    """Return the histogram of a text. Raises InputError where it is none, InvalidOption without
    the library."""
    made = empty()
    if not isinstance(text, str) or len(text) > TEXT_BYTES_MAX:
        raise InputError("no HdrHistogram: neither text nor of its size")
    try:
        base64.b64decode(text, validate=True)
        return type(made).decode(text.encode())
    except (ValueError, TypeError, IndexError, binascii.Error, zlib.error, ArithmeticError):
        raise InputError(f"no HdrHistogram, or a damaged one: {text[:20]!r}...") from None
    except Exception as error:  # of the library's own, none with a base of their own
        if type(error).__module__.partition(".")[0] != "hdrh":
            raise
        raise InputError(f"no HdrHistogram: {type(error).__name__}") from None


class Counted:
    """The histograms of replicas and of a producer, of what comes to them from now on."""

    # views: replica id -> a reader of its counters. producer: None where there is none.
    # _before: the counts of each (replica, stage) when this was made.

    def __init__(self, views: dict[int, Any], producer: Any = None) -> None:
        self.views, self.producer = views, producer
        self._before = {key: self._now(*key) for key in self._keys()}

    def _keys(self) -> list[tuple[int, str]]:
        return [(id, stage) for id in self.views for stage in STAGES]

    def _now(self, id: int, stage: str) -> Any:
        return np.frombuffer(self.views[id].buckets(stage), np.uint64).astype(np.int64)

    def counts(self) -> dict[tuple[int, str], Any]:
        """Return what came to each stage of each replica, by bucket."""
        return {
            (id, stage): np.maximum(self._now(id, stage) - self._before[id, stage], 0)
            for id, stage in self._keys()
        }

    def stages(self) -> dict[str, HdrHistogram]:
        """Return a histogram of each stage that was passed since, of all replicas together."""
        found: dict[str, Any] = {}
        for (_, stage), came in self.counts().items():
            found[stage] = found.get(stage, 0) + came
        made = {f"stage {name}": of_buckets(each) for name, each in found.items() if each.any()}
        if self.producer is not None:
            counts = np.frombuffer(self.producer.latencies.commit_buckets(), np.uint64)
            made["commit"] = of_buckets(counts)
        return made
