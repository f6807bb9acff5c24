"""Threads that append numbered records to a quorum, each in its own way."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kraftfast.quorum import LocalQuorum
from tests.endurance.observer import Observer, value_of

TIMEOUT_S = 120.0
"""A quorum that commits nothing for so long, with a live majority most of the time, is wedged."""


class Writer(threading.Thread):
    """Records of ``size`` bytes under one name, from number 0 on. ``error``: what ended it."""

    def __init__(self, quorum: LocalQuorum, name: str, size: int, observer: Observer) -> None:
        super().__init__(name=name, daemon=True)
        self.quorum, self.size, self.observer = quorum, size, observer
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self.slowest_s = 0.0
        """The longest wait for an acknowledgement since it was last set to 0."""

    def run(self) -> None:
        try:
            self.write()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.error = error

    def write(self) -> None:
        raise NotImplementedError

    def values(self, first: int, count: int) -> list[bytes]:
        return [value_of(self.name, number, self.size) for number in range(first, first + count)]

    def acknowledged(self, first: int, offsets: Iterable[int], began: float) -> None:
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.observer.acknowledged(self.name, first, offsets)


class Bulk(Writer):
    """Many records a call; a new producer of the same name from time to time (KIP-98's fencing)."""

    def write(self) -> None:
        done = 0
        for count in itertools.cycle((1, 700, 30, 2000)):
            if self.stopping.is_set():
                return
            with self.quorum.producer(name=self.name, timeout=TIMEOUT_S) as producer:
                assert producer.last_sequence(timeout=TIMEOUT_S) == done - 1, "it lost its place"
                for _ in range(40):
                    began = time.monotonic()
                    offsets = producer.append_many(self.values(done, count), timeout=TIMEOUT_S)
                    self.acknowledged(done, offsets, began)
                    done += count
                    if self.stopping.wait(0.02):
                        return


class Threads(Writer):
    """Threads that share a producer; each waits for its own record. Names: ``threads-0`` and on."""

    def write(self) -> None:
        with self.quorum.producer(timeout=TIMEOUT_S, idempotent=True) as producer:
            callers = [
                Caller(self.quorum, f"{self.name}-{number}", self.size, self.observer, producer)
                for number in range(8)
            ]
            for each in callers:
                each.start()
            while not self.stopping.wait(0.2) and all(each.is_alive() for each in callers):
                self.slowest_s = max(self.slowest_s, *(each.slowest_s for each in callers))
                for each in callers:
                    each.slowest_s = 0.0
            for each in callers:
                each.stopping.set()
            for each in callers:
                each.join()
                if each.error is not None:
                    raise each.error


class Caller(Writer):
    """One thread of :class:`Threads`."""

    def __init__(
        self, quorum: LocalQuorum, name: str, size: int, observer: Observer, producer: Any
    ) -> None:
        super().__init__(quorum, name, size, observer)
        self.producer = producer

    def write(self) -> None:
        for number in itertools.count():
            began = time.monotonic()
            (value,) = self.values(number, 1)
            offset = self.producer.append_wait(value, timeout=TIMEOUT_S)
            self.acknowledged(number, (offset,), began)
            if self.stopping.wait(0.001):
                return


class Tasks(Writer):
    """An asyncio loop; records are appended together, and waited for together."""

    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        async with self.quorum.async_producer(idempotent=True) as producer:
            for first in itertools.count(0, 32):
                began = time.monotonic()
                values = self.values(first, 32)
                calls = [producer.append_wait(value, timeout=TIMEOUT_S) for value in values]
                self.acknowledged(first, await asyncio.gather(*calls), began)
                await asyncio.sleep(0.005)
                if self.stopping.is_set():
                    return


KINDS: dict[str, Callable[..., Writer]] = {"bulk": Bulk, "threads": Threads, "tasks": Tasks}
