"""Collects the events of replicas and of a producer while a load runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kraftfast.bench.loads.looking import looking
from kraftfast.client.event_reader import EventReader
from kraftfast.client.local_socket import ask
from kraftfast.errors import NoQuorum, PeerGone, TimedOut
from kraftfast.link.timed_events import KINDS

LOOK_S = 0.05
"""Between two looks; a ring holds 65,536 events, of 0.13 s at 60,000 batches a second. Each look
delays the commits that are under way: with 20 a second they are less than a hundredth of 4,000."""
BYTES_MAX = 128 << 20
"""Of events of one process; what comes after that is counted, not kept."""
LAYOUT = np.dtype(
    [("ns", "<u8"), ("arg", "<u8"), ("offset", "<i8"), ("kind", "<u4"), ("count", "<u4")]
)
NAMES = {number: name for name, number in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one process noted. ``id``: of its replica, 0 for the producer.

    ``events``: an array of :data:`LAYOUT`, as they were noted. ``lost``: overwritten before they
    were read, or more than was kept. ``role``: when the recording began, "" for the producer.
    """

    name: str
    id: int
    pid: int
    events: Any
    lost: int
    role: str = ""

    def of(self, kind: str) -> Any:
        """Return the events of a kind, in their order."""
        return self.events[self.events["kind"] == KINDS[kind]]


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that was noted between two times, ns of CLOCK_MONOTONIC."""

    processes: list[Recorded]
    began_ns: int
    ended_ns: int

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.processes)


class _Source:
    """The events of one process, as they are read. ``close``: what ends their noting."""

    def __init__(self, name: str, id: int, pid: int, view: Any, close: Any, role: str = "") -> None:
        self.name, self.id, self.pid, self.view, self.close = name, id, pid, view, close
        self.role, self.bytes, self.dropped = role, 0, 0
        self.pieces: list[bytes] = []

    def look(self) -> None:
        """Take what is there."""
        while piece := self.view.read():
            if self.bytes + len(piece) > BYTES_MAX:
                self.dropped += len(piece) // LAYOUT.itemsize
                continue
            self.pieces.append(piece)
            self.bytes += len(piece)

    def recorded(self) -> Recorded:
        events = np.frombuffer(b"".join(self.pieces), LAYOUT)
        lost = self.view.lost + self.dropped
        return Recorded(self.name, self.id, self.pid, events, lost, self.role)


class Collector:
    """Reads events in a thread while the ``with`` block runs; ``recording`` is there after it.

    ``directories``: of the replicas, by id; those that do not run are left out, and named by
    ``missing``. ``latencies``: of a producer of this process, or None. Raises NoQuorum if no
    replica runs.
    """

    def __init__(self, directories: Mapping[int, str], latencies: Any = None) -> None:
        self.directories, self.latencies = directories, latencies
        self.missing: dict[int, str] = {}
        self.recording: Recording | None = None
        self._sources: list[_Source] = []

    @contextmanager
    def collecting(self) -> Iterator[Collector]:
        """Read while the block runs."""
        try:
            self._open()
            began_ns = time.monotonic_ns()
            with looking(self._look, LOOK_S, "kraftfast-events"):
                yield self
            found = [each.recorded() for each in self._sources]
            self.recording = Recording(found, began_ns, time.monotonic_ns())
        finally:
            for each in self._sources:
                each.close()

    def _open(self) -> None:
        for id, directory in sorted(self.directories.items()):
            try:
                role = str(ask(directory, {"kind": "status"})["role"])
                reader = EventReader(directory)
            except (PeerGone, TimedOut) as error:
                self.missing[id] = str(error)
                continue
            source = _Source(f"replica {id}", id, reader.pid, reader.view, reader.close, role)
            self._sources.append(source)
        if not self._sources:
            why = next(iter(self.missing.values()), "it has none")
            raise NoQuorum(f"no replica passes its events: {why}")
        if self.latencies is not None:
            events = self.latencies.record()
            source = _Source("producer", 0, os.getpid(), events.view(), events.end)
            self._sources.append(source)

    def _look(self) -> None:
        for each in self._sources:
            each.look()
