"""What every kind of quorum hands out: producers, blocking and asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kraftfast.client.aio import AsyncProducer
from kraftfast.client.connector import Connector
from kraftfast.client.producer import BATCH_BYTES, WINDOW_BATCHES, Producer


class MakesProducers(ABC):
    """A part of a quorum: how its producers are made."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise Closed, WrongProcess."""

    @abstractmethod
    def _connector(self, batch_bytes: int, window: int) -> Connector:
        """Return the way to its leader."""

    def producer(
        self,
        *,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW_BATCHES,
        record_bytes_max: int = 0,
        timeout: float = 30.0,
        idempotent: bool | None = None,
        name: str | None = None,
        connect: bool = True,
    ) -> Producer:
        """A blocking producer; ``window``: batches under way at most. Raises NoQuorum.

        ``record_bytes_max``: be ready for records of this size from the start; larger ones than
        the usual ring takes are possible at any time, but the first waits for what is under way.
        ``idempotent``, ``name``, ``connect``: as of :class:`Producer`.
        """
        self._check_open()
        connector = self._connector(batch_bytes, window)
        return Producer(connector, timeout, record_bytes_max, idempotent, name, connect)

    def async_producer(self, *, timeout: float = 30.0, **settings: Any) -> AsyncProducer:
        """An asyncio producer, for use inside a running loop; settings as :meth:`producer`.

        ``async with`` it, or ``await`` it: the search for a leader is waited for there.
        """
        return AsyncProducer(self.producer(connect=False, **settings), timeout)
