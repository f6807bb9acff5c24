"""The asyncio producer.

    async with quorum.async_producer() as producer:
        offset = await producer.append_wait(b"hello", timeout=5)
        future = producer.append(b"hello")      # an asyncio.Future of the offset
        offsets = await producer.append_many(list_of_bytes)

Everything runs in the event loop: the doorbell of the ring is one of its descriptors.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from kraftfast.client.producer import Producer
from kraftfast.errors import Closed, KraftfastError, PeerGone, QuorumError, TimedOut, UnknownOutcome, WouldBlock

CHECK_S = 0.5


class AsyncProducer:
    """Wraps a :class:`Producer` for one event loop. Not thread-safe; not to be mixed with blocking calls."""

    # producer: whose ledger and sender. waiting: (ticket, future), by ticket.
    # watched: the sender whose doorbell the loop watches. room: set when there may be room again.

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._watched: Any = None
        self._room = asyncio.Event()
        self._sealing = False
        self._closed = False
        self._task = self._loop.create_task(self._watch_over())
        self._watch()

    # --- appending --------------------------------------------------------------------------------

    def append(self, value: bytes, **fields: Any) -> asyncio.Future[int]:
        """Hand over one record; a future of its offset.

        Fields as in :meth:`Producer.try_append`. Raises WouldBlock where there is no room, Closed.
        """
        if self._closed:
            raise Closed("the producer is closed")
        sender = self.producer.sender
        if fields or sender is None or sender.broken is not None:
            ticket = self.producer.try_append(value, **fields)
        else:
            ticket = sender.append(value)
            if ticket < 0:
                raise WouldBlock("the window is full: nothing more can be under way at the moment")
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((ticket, future))
        if not self._sealing:
            self._sealing = True
            self._loop.call_soon(self._seal)
        return future

    async def append_wait(self, value: bytes, *, timeout: float = 30.0, **fields: Any) -> int:
        """Append one record; its offset once it is committed.

        Raises TimedOut (no room: not handed over), UnknownOutcome, and as :meth:`Producer.wait`.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                future = self.append(value, **fields)
                break
            except (WouldBlock, PeerGone):
                await self._wait_room(deadline)
        try:
            return await asyncio.wait_for(asyncio.shield(future), max(0.0, deadline - time.monotonic()))
        except asyncio.TimeoutError:
            raise UnknownOutcome("not acknowledged in time: the record may still be committed") from None

    async def append_many(self, values: Any, offsets: Any = None, *, timeout: float = 30.0) -> list[int]:
        """Append many records (a list of bytes, or what :meth:`Producer.append_many` takes)."""
        from kraftfast.record.builder import Values

        deadline = time.monotonic() + timeout
        column = values if isinstance(values, Values) else Values(values, offsets)
        done, first = 0, -1
        while done < len(column):
            sender = self.producer.sender
            taken = 0
            if sender is not None and sender.broken is None:
                first = self.producer.ledger.next_ticket if first < 0 else first
                taken = sender.append_values(column, done)
            done += taken
            if taken == 0:
                await self._wait_room(deadline)
        if not done:
            return []
        last: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((first + done - 1, last))
        await asyncio.wait({last}, timeout=max(0.0, deadline - time.monotonic()))
        ledger = self.producer.ledger
        if ledger.resolved < first + done:
            raise UnknownOutcome("not acknowledged in time: the records may still be committed")
        return [ledger.offset_of(ticket) for ticket in range(first, first + done)]

    async def _wait_room(self, deadline: float) -> None:
        sender = self.producer.sender
        if sender is not None and sender.broken is None:
            sender.want_room()
        self._room.clear()
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimedOut("no room: the quorum does not keep up, or has no majority")
        try:
            await asyncio.wait_for(self._room.wait(), min(left, 0.05))
        except asyncio.TimeoutError:
            pass

    # --- what comes back --------------------------------------------------------------------------

    def _seal(self) -> None:
        """At the end of this turn of the loop: what was appended in it leaves together."""
        self._sealing = False
        sender = self.producer.sender
        if sender is None or sender.broken is not None:
            return
        try:
            sender.seal()
            sender.doorbell.bell.going_to_sleep()
            if sender.news():
                self._rung()
        except KraftfastError:
            pass  # the sender is broken; _watch_over connects again

    def _rung(self) -> None:
        """Answers are there."""
        sender = self._watched
        bell = sender.doorbell.bell
        bell.clear()
        while True:
            sender.poll()
            bell.going_to_sleep()
            if not sender.news():  # R12: look again after announcing it
                break
        self._resolve()
        self._room.set()

    def _resolve(self) -> None:
        ledger, waiting = self.producer.ledger, self._waiting
        resolved = ledger.resolved
        while waiting and waiting[0][0] < resolved:
            ticket, future = waiting.popleft()
            if future.done():
                continue
            try:
                future.set_result(ledger.offset_of(ticket))
            except KraftfastError as error:
                future.set_exception(error)

    def _watch(self) -> None:
        """Have the loop watch the present sender's doorbell and its replica."""
        sender = self.producer.sender
        if sender is self._watched:
            return
        self._unwatch()
        self._watched = sender
        if sender is not None:
            sender.doorbell.bell.going_to_sleep()
            self._loop.add_reader(sender.fileno(), self._rung)
            self._loop.add_reader(sender.link.sock.fileno(), self._gone, sender)

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._loop.remove_reader(self._watched.fileno())
            self._loop.remove_reader(self._watched.link.sock.fileno())
            self._watched = None

    def _gone(self, sender: Any) -> None:
        sender.replica_gone()
        self._unwatch()
        self._resolve()

    async def _watch_over(self) -> None:
        """Connect again when the leader is gone."""
        while not self._closed:
            sender = self.producer.sender
            if sender is None or sender.broken is not None:
                self._unwatch()
                try:
                    await asyncio.to_thread(self.producer._reconnect, time.monotonic() + CHECK_S)
                except QuorumError:
                    pass
                self._resolve()
                self._watch()
                self._room.set()
                self._seal()
            await asyncio.sleep(0.005 if self._watched is None else 0.05)

    # --- end --------------------------------------------------------------------------------------

    async def flush(self, *, timeout: float = 30.0) -> None:
        """Wait until everything handed over is resolved."""
        futures = [future for _, future in self._waiting]
        if futures:
            await asyncio.wait(futures, timeout=timeout)

    async def close(self, *, timeout: float = 5.0) -> None:
        """Wait for what is under way, then let go."""
        if self._closed:
            return
        await self.flush(timeout=timeout)
        self._closed = True
        self._task.cancel()
        self._unwatch()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(UnknownOutcome("the producer was closed before the answer came"))
        await asyncio.to_thread(self.producer.close)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
