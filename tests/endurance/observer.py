"""Reads the log as it grows, and compares it with what the writers were told, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from kraftfast.errors import KraftfastError, NoQuorum
from kraftfast.quorum import LocalQuorum
from kraftfast.record.shapes import Record

PAUSE_S = 0.2
SILENCE_S_MAX = 120.0
BEHIND_MAX = 3_000_000
"""So many acknowledged records may be waited for; more means that the observer is too slow."""


def value_of(name: str, number: int, size: int) -> bytes:
    """Return the record with this number: a name, a number, and bytes that follow from them."""
    head = b"%s %d " % (name.encode(), number)
    return head + b"%08x" % (number * 2654435761 % 2**32) * (max(0, size - len(head)) // 8)


class Observer(threading.Thread):
    """A consumer. ``wrong``: what should not be; ``records``: so many were read.

    Each name's numbers must come in order, each once and none left out, where its
    acknowledgement said (I23), and offsets must rise.
    """

    # _next: name -> the number that comes next. _read: (name, number) -> the offset where it was
    # read, until the acknowledgement comes; _told the other way round. _read_at: when a record came
    # last. _silent_s: the longest time without one since the last look.

    def __init__(self, quorum: LocalQuorum, size: int) -> None:
        super().__init__(name="observer", daemon=True)
        self.quorum, self.size, self.records, self.last_offset = quorum, size, 0, -1
        self.wrong: list[str] = []
        self._next: dict[str, int] = {}
        self._read: dict[tuple[str, int], int] = {}
        self._told: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._end: int | None = None
        self._read_at, self._silent_s = time.monotonic(), 0.0

    def acknowledged(self, name: str, first: int, offsets: Iterable[int]) -> None:
        """Note that the records of ``name`` from number ``first`` on were acknowledged there."""
        with self._lock:
            for number, offset in enumerate(offsets, first):
                at = self._read.pop((name, number), None)
                if at is None:
                    self._told[name, number] = offset
                elif at != offset:
                    self._complain(f"{name} {number}: told {offset}, read at {at}")
        if len(self._told) > BEHIND_MAX:
            self._complain(f"{len(self._told)} acknowledged records were not read yet")

    def _complain(self, text: str) -> None:
        if len(self.wrong) < 100:
            self.wrong.append(text)

    def run(self) -> None:
        try:
            with self.quorum.consumer(0) as consumer:
                while self._end is None or consumer.position < self._end:
                    try:
                        self._note(consumer)
                        consumer.wait(PAUSE_S)
                    except NoQuorum:  # all are dead at the moment; it goes on where it was
                        time.sleep(PAUSE_S)
        except KraftfastError as error:
            self._complain(f"the consumer ended: {type(error).__name__}: {error}")

    def _note(self, consumer: Iterable[Record]) -> None:
        for record in consumer:
            name, number_text, _ = record.value.split(b" ", 2)
            key = name.decode(), int(number_text)
            if record.offset <= self.last_offset:
                self._complain(f"offset {record.offset} came after {self.last_offset}")
            if key[1] != self._next.get(key[0], 0):
                self._complain(f"{key} at {record.offset}: {self._next.get(key[0], 0)} was next")
            if record.value != value_of(*key, self.size):
                self._complain(f"{key} at {record.offset} has other bytes")
            self._next[key[0]], self.last_offset = key[1] + 1, record.offset
            self.records += 1
            self.check_silence()
            with self._lock:
                self._note_time()
                told = self._told.pop(key, None)
                if told is None:
                    self._read[key] = record.offset
                elif told != record.offset:
                    self._complain(f"{key}: told {told}, read at {record.offset}")

    def _note_time(self) -> None:
        now = time.monotonic()
        self._silent_s, self._read_at = max(self._silent_s, now - self._read_at), now

    def silence(self) -> float:
        """Return the longest time without a record since the last call, or one that lasts still."""
        with self._lock:
            longest_s = max(self._silent_s, time.monotonic() - self._read_at)
            self._silent_s = 0.0
        return longest_s

    def check_silence(self) -> None:
        """Complain if the last record came two minutes ago: somebody appends all the time."""
        silent_s = time.monotonic() - self._read_at
        if silent_s > SILENCE_S_MAX:
            self._complain(f"the consumer got nothing for {silent_s:.0f} s")

    def finish(self, end_offset: int, timeout_s: float) -> None:
        """Read up to the end; each record must have its acknowledgement and the other way round."""
        self._end = end_offset
        self.join(timeout_s)
        if self.is_alive():
            self._complain(f"read up to {self.last_offset}, not {end_offset}, in {timeout_s} s")
        self.compare()

    def compare(self) -> None:
        """Complain of what was read or acknowledged, and not both."""
        for left, what in ((self._told, "acknowledged, and not read"), (self._read, "not told")):
            if left:
                self._complain(f"{len(left)} records were {what}: {next(iter(left.items()))}")
