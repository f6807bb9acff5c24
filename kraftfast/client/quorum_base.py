"""What every quorum offers a program, however it is reached."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from kraftfast import limits
from kraftfast.arguments import OFFSET_MAX, whole_number
from kraftfast.client.timing import deadline_after
from kraftfast.errors import Closed, LocalError, loading
from kraftfast.forks import Birthplace, Unique

if TYPE_CHECKING:
    from kraftfast.client.admin.admin import Admin, AsyncAdmin
    from kraftfast.client.admin.quorum_info import QuorumInfo
    from kraftfast.client.connector import Connector
    from kraftfast.client.consumer.consumer import RecordStream
    from kraftfast.client.producer.aio import AsyncProducer
    from kraftfast.client.producer.producer import Producer

BATCH_BYTES = 64 * 1024
WINDOW_BATCHES = 64


class Loses(Protocol):
    """A client of a quorum that its process may close."""

    def lose_quorum(self) -> None:
        """Have calls raise Closed from now on: the quorum was closed."""


L = TypeVar("L", bound=Loses)


class Quorum(Unique, ABC):
    """A quorum: ``LocalQuorum`` runs one itself, :func:`kraftfast.connect` reaches one that runs:
    a ``HostQuorum`` on this host (``kraftfast/connected.py``), else a ``RemoteQuorum``.

    Thread-safe. It belongs to the process that made it.
    """

    _clients: weakref.WeakSet[Loses] | None = None

    @property
    @abstractmethod
    def topic(self) -> str:
        """The name of the quorum's log."""

    @abstractmethod
    def consumer(
        self, from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> RecordStream:
        """Return a consumer of the committed records from ``from_offset`` on, in order.

        ``follow``: wait for more at the end. Raises NoQuorum, TimedOut, OffsetOutOfRange, Closed,
        WrongProcess.
        """

    @abstractmethod
    def admin(self) -> Admin:
        """Membership, upgrades, reassignments, transfers. Raises Closed, WrongProcess."""

    def async_admin(self) -> AsyncAdmin:
        """Do as :meth:`admin`, to be awaited: ``await quorum.async_admin().read_barrier()``."""
        from kraftfast.client.admin.admin import AsyncAdmin

        return AsyncAdmin(self.admin())

    def describe(self, *, timeout: float = 10.0) -> QuorumInfo:
        """Return who leads, who votes, and how far every replica is. Raises NoQuorum."""
        return self.admin().describe(timeout=timeout)

    def read_barrier(self, *, timeout: float = 10.0) -> int:
        """Return an end offset: below it stands all that was committed before the call.

        Raises NoQuorum, TimedOut.
        """
        return self.admin().read_barrier(timeout=timeout)

    # --- producers --------------------------------------------------------------------------------

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
        compression: str | None = None,
        compression_level: int | None = None,
    ) -> Producer:
        """Return a blocking producer.

        ``batch_bytes``: a batch leaves once it is so large. ``window``: batches under way at most,
        1 to 32,768. ``timeout``: seconds until there must be a leader; calls have times of their
        own, the ``close`` at the end of a ``with`` block too: its default.
        ``record_bytes_max``: be ready for records of this size from the start; larger ones than
        the usual ring takes are possible at any time, but the first waits for what is under way.
        ``idempotent``, ``name``, ``connect``: as of :class:`Producer`.
        ``compression``: of batches, in this process: ``zstd``, ``lz4``, ``gzip``, ``snappy``, or
        ``none``. ``compression_level``: zstd has -131072 to 22 (below 0: faster, larger), lz4 0
        to 16, gzip 1 to 9; None: 3, 0, 6.

        Raises InvalidOption; UnsupportedCodec where a codec's package is not installed; NoQuorum if
        no leader is found in time, or if it takes no more producers; OutOfResources where this
        process has no descriptors left; ProducerFenced, Closed, WrongProcess.
        """
        with loading():  # not before replicas are being started
            from kraftfast.client.producer.producer import Producer
            from kraftfast.record.compression import compressor_of

        self._check_open()
        batch_bytes = whole_number("batch_bytes", batch_bytes, limits.BATCH_BYTES_LEAST, OFFSET_MAX)
        window = whole_number("window", window, 1, limits.WINDOW_BATCHES_MAX)
        compressor_of(compression, compression_level)  # raises for what is none
        connector = self._connector(batch_bytes, window)
        producer = Producer(
            connector, timeout, record_bytes_max, idempotent, name, connect,
            (compression, compression_level),
        )  # fmt: skip
        return self._kept(producer)

    def _keep_clients(self) -> None:
        """Take note of the clients: the end of this quorum will be theirs."""
        self._clients = weakref.WeakSet()

    def _kept(self, client: L) -> L:
        if self._clients is not None:
            self._clients.add(client)
        return client

    @contextmanager
    def _losing_clients(self) -> Iterator[None]:
        """Tell them at the end that the quorum has ended: it is closed, no more are made."""
        try:
            yield
        finally:
            for client in list(self._clients or ()):
                client.lose_quorum()

    def async_producer(
        self,
        *,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW_BATCHES,
        record_bytes_max: int = 0,
        timeout: float = 30.0,
        idempotent: bool | None = None,
        name: str | None = None,
        compression: str | None = None,
        compression_level: int | None = None,
    ) -> AsyncProducer:
        """Return an asyncio producer, for use inside a running loop; arguments as :meth:`producer`.

        ``async with`` it, or ``await`` it: the search for a leader is waited for there. Raises
        InvalidOption; LocalError where no loop runs.
        """
        with loading():  # with asyncio, which few programs need
            from kraftfast.client.producer.aio import AsyncProducer

        deadline_after(timeout)  # refused before there is a producer to close
        check_loop_runs()
        producer = self.producer(
            batch_bytes=batch_bytes,
            window=window,
            record_bytes_max=record_bytes_max,
            idempotent=idempotent,
            name=name,
            connect=False,
            compression=compression,
            compression_level=compression_level,
        )
        return AsyncProducer(producer, timeout)

    # --- end --------------------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Make no more clients: calls raise Closed from now on. Raises nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def check_loop_runs() -> None:
    """Raise LocalError where no event loop runs."""
    from asyncio import get_running_loop

    try:
        get_running_loop()
    except RuntimeError:
        raise LocalError(
            "an async producer is made inside a running event loop: call async_producer() in a "
            "coroutine that asyncio.run() runs"
        ) from None


class ConnectedQuorum(Quorum):
    """A quorum that other processes run. Closing it stops none of them, and no producer.

    Its producers and consumers have connections of their own, and are closed by themselves.
    """

    # birthplace: the process that may use it; in a forked child another thread may have held a
    # lock for ever. _admin: its calls. _refusal: what calls raise once it is closed, or None.

    def __init__(self, admin: Admin) -> None:
        self.birthplace = Birthplace("quorum")
        self._admin = admin
        self._refusal: LocalError | None = None

    def _check_open(self) -> None:
        self.birthplace.check()
        if self._refusal is not None:
            raise self._refusal.again()

    def admin(self) -> Admin:
        self._check_open()
        return self._admin

    def close(self) -> None:
        if self._refusal is None:
            self._refusal = Closed("the quorum is closed")
            self._admin.lose_quorum()
