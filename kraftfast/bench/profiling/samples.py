"""Every commit's time in every stage, as rows of a Parquet file: what ``spark latency`` reads.

With one record outstanding a commit passes each stage once, and its time is what the stage's sum
has grown by. Under load commits are told apart no more: a row stands for as many as fell into one
bucket of a stage's histogram (1.6 %) since the look before.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from kraftfast.bench.loads.looking import looking
from kraftfast.bench.targets import check_replaceable
from kraftfast.errors import InputError, InvalidOption, StorageError
from kraftfast.link.percentiles import TOPS_US
from kraftfast.link.stats import STAGES

LOOK_S = 0.05
FIELDS = ("at_us", "commit", "stage", "replica", "us", "count")
WHOLE = "whole"
"""The stage of the producer, replica 0: from handing a record over to its commit."""


class Sampler:
    """Looks at the counters of replicas, and keeps what came to each stage since.

    ``views``: replica id -> a reader of its counters (``Watch.stats``).
    """

    # rows: those of FIELDS. _totals: (count, sum in ns) by replica and stage when last looked at.
    # _buckets: of its histogram then. _began: time.perf_counter() of time 0.

    def __init__(self, views: dict[int, Any]) -> None:
        self.views = views
        self.rows: list[tuple[int, int, str, int, float, int]] = []
        self._began = time.perf_counter()
        self._totals = {
            (id, stage): view.total(stage) for id, view in views.items() for stage in STAGES
        }
        self._buckets = {
            (id, stage): np.frombuffer(view.buckets(stage), np.uint64).copy()
            for id, view in views.items()
            for stage in STAGES
        }

    def look(self, commit: int = -1, whole_us: float | None = None) -> None:
        """Keep what came since the last look; ``whole_us``: of the commit that was just awaited."""
        at_us = int((time.perf_counter() - self._began) * 1e6)
        if whole_us is not None:
            self.rows.append((at_us, commit, WHOLE, 0, whole_us, 1))
        for (id, stage), before in self._totals.items():
            total = self.views[id].total(stage)
            came = total[0] - before[0]
            if came == 1:
                us = (total[1] - before[1]) / 1000
                self.rows.append((at_us, commit, stage, id, us, 1))
                bucket = min(int(np.searchsorted(TOPS_US, us)), len(TOPS_US) - 1)
                self._buckets[id, stage][bucket] += 1
            elif came > 1:
                self._spread(at_us, commit, stage, id)
            self._totals[id, stage] = total

    def _spread(self, at_us: int, commit: int, stage: str, id: int) -> None:
        now = np.frombuffer(self.views[id].buckets(stage), np.uint64).copy()
        grown = np.maximum(now, self._buckets[id, stage]) - self._buckets[id, stage]
        self._buckets[id, stage] = now
        for bucket in np.flatnonzero(grown):
            us = float(TOPS_US[bucket])
            self.rows.append((at_us, commit, stage, id, us, int(grown[bucket])))

    def looking(self) -> AbstractContextManager[None]:
        """Look now and then while the ``with`` block runs."""
        return looking(self.look, LOOK_S, "kraftfast-samples")

    def write(self, path: str) -> None:
        """Write all rows as a Parquet file. Raises InvalidOption without pyarrow, StorageError."""
        pa, pq = parquet()
        columns = list(zip(*self.rows)) if self.rows else [()] * len(FIELDS)
        kinds = (pa.int64(), pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds)]
        try:
            pq.write_table(pa.table(arrays, names=list(FIELDS)), path)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error}") from None


def parquet() -> Any:
    """Return (pyarrow, pyarrow.parquet). Raises InvalidOption where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InvalidOption("--samples needs pyarrow: pip install 'kraftfast[arrow]'") from None
    return pyarrow, pyarrow.parquet


def check_target(path: str) -> None:
    """Raises InputError if no file can be made there, before anything is measured."""
    place = path if path == "-" else os.path.realpath(path)  # it is written through a link
    check_replaceable(place, b"PAR1", "a Parquet file")
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
