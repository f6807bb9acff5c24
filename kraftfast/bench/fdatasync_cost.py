"""What an fdatasync costs on a disk, by the state of the file that was written.

The page cache's folio size and the file system's journal decide (ARCHITECTURE.md, "Where the bytes
land"): a store into blocks that were only reserved needs the journal, one into a file that was
written in small pieces flushes what it touched, one into a file that was filled through its
mapping may flush more than it touched.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import Any

from kraftfast.log.disk import Disk, storage_error

FILES = ("fresh", "written", "mapped")
MEANINGS = {
    "fresh": "reserved, never written",
    "written": "filled by writes of 64 KiB: how durable quorums prepare",
    "mapped": "filled through its mapping: how memory quorums prepare",
}
SAMPLES = {4 << 10: 300, 64 << 10: 200, 1 << 20: 50}
"""Bytes stored before each fdatasync -> how many are measured."""
SLOW_P99_US = 10_000
"""At 4 KiB, prepared: above it elections and tail latency suffer."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One state of the file and one size. Microseconds."""

    file: str
    size: int
    samples: int
    p50_us: float
    p99_us: float
    max_us: float


def measure(directory: str, scale: float = 1.0) -> list[Cell]:
    """Measure every file with every size; ``scale`` shortens it. Raises StorageError, DiskFull."""
    cells = []
    samples = {size: max(2, int(count * scale)) for size, count in SAMPLES.items()}
    for kind in FILES:
        total = sum(size * count for size, count in samples.items())
        path = os.path.join(directory, f"disk-{kind}")
        file = Disk().create_segment(path, total)
        try:
            _make(file, path, kind, total)
            with open(path, "r+b") as opened, mmap.mmap(opened.fileno(), total) as map:
                at = 0
                for size, count in samples.items():
                    cells.append(_cell(kind, size, _sample(opened.fileno(), map, at, size, count)))
                    at += size * count
        except OSError as error:
            raise storage_error("cannot measure", path, error) from None
        finally:
            file.close()
            os.unlink(path)
    return cells


def _make(file: Any, path: str, kind: str, total: int) -> None:
    if kind == "fresh":
        with open(path, "r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, total)
            os.fsync(opened.fileno())
    else:
        file.prepare(0, total, kind)
        file.sync()


def _sample(fd: int, map: mmap.mmap, start: int, size: int, count: int) -> list[float]:
    """Store the next ``size`` bytes and flush, ``count`` times; only the flush is timed."""
    data = b"\xa5" * size
    times = []
    for number in range(count):
        at = start + number * size
        map[at : at + size] = data
        began = time.perf_counter_ns()
        os.fdatasync(fd)
        times.append((time.perf_counter_ns() - began) / 1000)
    return times


def _cell(kind: str, size: int, times: list[float]) -> Cell:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return Cell(kind, size, len(ordered), ordered[len(ordered) // 2], p99, ordered[-1])


def verdict(cells: list[Cell]) -> str:
    """Return what the figures mean, in one line."""
    by_place = {(cell.file, cell.size): cell for cell in cells}
    small = by_place["written", 4 << 10]
    if small.p99_us > SLOW_P99_US:
        return (
            f"slow: p99 of a 4 KiB fdatasync is above {SLOW_P99_US / 1000:.0f} ms; "
            "expect long commits, and raise the election and fetch timeouts"
        )
    written, mapped = (by_place[kind, 1 << 20].p50_us for kind in ("written", "mapped"))
    if written > mapped * 1.25:
        return "fit; on this disk files filled through their mapping flush faster than written ones"
    return f"fit: p99 of a 4 KiB fdatasync is below {SLOW_P99_US / 1000:.0f} ms"


assert set(MEANINGS) == set(FILES)
