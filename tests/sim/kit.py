"""A real log over a simulated disk, without the rest of the world."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kraftfast.log.directory import LogOptions, MetaProperties, ReplicaDirectory, format_directory
from kraftfast.log.recovery import Settings, open_log
from kraftfast.record import pure
from kraftfast.sim.disk import SimDisk
from kraftfast.sim.paged_file import SteppedFlush
from kraftfast.sim.preparer import SimPreparer

PATH = "/replica"
SETTINGS = Settings(segment_bytes=16 * 1024, stride_bytes=8 * 1024, prepare_bytes=0)


def batch(size: int = 200, records: int = 1, offset: int = 0, epoch: int = 1) -> bytes:
    """A batch of about so many bytes."""
    values = [bytes([97 + offset % 26]) * (size // records) for _ in range(records)]
    return pure.encode_batch(pure.values_to_records(values, 0, offset), leader_epoch=epoch)


class Home:
    """One machine with one directory; the process on it comes and goes."""

    def __init__(self, seed: int = 0, settings: Settings = SETTINGS) -> None:
        self.disk = SimDisk(Random(seed))
        self.settings = settings
        self.now_ms = 0
        self._pieces: list[Callable[[], None]] = []
        format_directory(self.disk, PATH, MetaProperties("c", 1, b"d" * 16), LogOptions())
        self.open()

    def open(self) -> None:
        """Start a process."""
        self.preparer = SimPreparer(self._pieces.append, lambda: None)
        self.directory = ReplicaDirectory(self.disk, PATH)
        self.recovered = open_log(self.disk, self.directory, self.settings, self.preparer)
        self.log: Any = self.recovered.log

    def tend(self) -> None:
        """Let the nursery do all that it has to do."""
        for _ in range(20):
            self.now_ms += 1000
            self.log.tend(self.now_ms)
            while self._pieces:
                self._pieces.pop(0)()

    def append(self, count: int = 1, epoch: int = 1, size: int = 200) -> None:
        """Batches of one record each, without a flush."""
        for _ in range(count):
            while not self.log.append(batch(size, offset=self.log.end_offset), epoch):
                self.tend()

    def flush(self) -> None:
        """As the flusher does it."""
        flush = SteppedFlush()
        flush.ask(self.log)
        state = 1
        while state > 0:
            state = flush.step(self.disk)
        flush.finish(self.log, -state)

    def kill(self) -> None:
        """The process dies; what it wrote stays in the page cache."""
        self.disk.kill()
        self.directory.close()

    def lose_power(self) -> None:
        """The machine stops."""
        self.directory.close()
        self.disk.lose_power()
