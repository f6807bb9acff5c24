"""The asyncio producer.

>>> async def main():
...     async with quorum.async_producer() as producer:
...         offset = await producer.append_wait(b"hello", timeout=5)
...         future = producer.append(b"hello")                # an asyncio.Future of the offset
...         offsets = await producer.append_many([b"one", b"two"])
...         return await future - offset, len(offsets)
>>> asyncio.run(main())
(1, 2)

Everything runs in the event loop, but for what blocks: the search for a leader (the first too), a
larger sender, the question whether a leader was replaced, the close. A thread does those.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import warnings
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Generator
from typing import Any, Unpack

from kraftfast import forks
from kraftfast.client.producer.appender import DEFAULT_TIMEOUT
from kraftfast.client.producer.loop_refs import check_loop, end_in, let_go_in, weakly
from kraftfast.client.producer.loop_threads import SEARCH_S, in_steps, in_thread
from kraftfast.client.producer.own_threads import LEADER_SILENCE_S
from kraftfast.client.producer.producer import Producer
from kraftfast.client.producer.sender import Sender
from kraftfast.client.producer.tickets import (
    RecordFields,
    Value,
    add_tickets,
    check_fields,
    cut_short,
    naming,
    offsets_of,
    raise_left,
)
from kraftfast.client.producer.turns import NO_ROOM, Turns
from kraftfast.client.search import Pause, ends_search
from kraftfast.client.timing import deadline_after
from kraftfast.errors import (
    Closed,
    KraftfastError,
    LocalError,
    RecordTooLarge,
    TimedOut,
    UnknownOutcome,
    WouldBlock,
    WrongProcess,
)
from kraftfast.record.builder import Values

ALARM_STEP_S, ROOM_S = 0.005, 0.05
NO_LEADER = "no leader was found in time"
NO_TIME_TO_ENLARGE = "no time is left to make room for a record of this size"
NOT_IN_TIME = "not acknowledged in time: the record may still be committed"


class AsyncProducer(forks.Unique):
    """Wrap a ``producer`` (:class:`Producer`) for one event loop.

    ``async with`` it, or ``await`` it: there is a leader then. NoQuorum is raised there if none is
    found within ``timeout`` seconds. Not thread-safe; not to be mixed with blocking calls.
    """

    # producer: whose outcomes and sender. _waiting: (ticket, future, deadline), by ticket.
    # _alarm_at: the earliest deadline of these, or earlier; _alarm: goes off then, if there is one.
    # _turns: of the appends that wait for room.
    # _watched: the sender whose descriptor the loop watches. _room: set when there may be room.
    # _turn_ends: _end_turn is due. _search: the task that looks for a leader, or doubts one.
    # _exchange: the one that gets a larger sender, while it does: no sender is watched meanwhile.
    # _lead_by: when the first leader must be known. _failure: what the last search raised.
    # _tick: sees now and then whether the leader answers. _ending: resolves futures once _closed.

    def __init__(self, producer: Producer, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._host, self._now = producer.host, producer.host.monotonic
        self._lead_by = deadline_after(timeout, now=self._now)
        self._loop = asyncio.get_running_loop()
        self.producer, self._outcomes = producer, producer.outcomes
        self._failure: KraftfastError | None = None
        self._waiting: deque[tuple[int, asyncio.Future[int], float]] = deque()
        self._alarm_at = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._turns = Turns(self._now)
        self._watched: Sender | None = None
        self._room, self._turn_ends = asyncio.Event(), False
        self._search: asyncio.Task[None] | None = None
        self._exchange: asyncio.Task[None] | None = None
        self._closed = False
        self._ending: asyncio.Task[None] | None = None
        self.refusal: LocalError = Closed("the producer is closed")
        self._attention = weakly(self._attend)  # the loop keeps no producer alive
        self._tick = self._loop.call_later(LEADER_SILENCE_S, weakly(self._look_after))
        producer.keeper_sleeps = producer.caller_sleeps = False  # the loop does their work
        forks.own(self)
        self._watch()

    async def _connected(self) -> AsyncProducer:
        """Wait until there is a sender for the first time. Raises what the search for it did."""
        self._check_open()
        try:
            while self._watched is None:
                self._check_open()
                failure, self._failure = self._failure, None
                late = self._now() >= self._lead_by
                if failure is not None and (late or ends_search(failure)):
                    raise failure
                self.producer.check_fenced()
                self._room.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._room.wait(), ROOM_S)
        except (Exception, asyncio.CancelledError):  # not GeneratorExit: nothing is awaited then
            await self.close(timeout=0.0)
            raise
        return self

    def __await__(self) -> Generator[Any, None, AsyncProducer]:
        return self._connected().__await__()

    # --- appending --------------------------------------------------------------------------------

    def append(self, value: Value, **fields: Unpack[RecordFields]) -> asyncio.Future[int]:
        """Hand over one record; a future of its offset, which raises as :meth:`Producer.wait`.

        Fields as in :meth:`Producer.append`. Raises WouldBlock where there is no room or no leader,
        or other appends wait for room: records are handed over in the order of the calls. Raises
        RecordTooLarge (:meth:`append_wait` takes larger ones), InvalidOption, RecordsRefused,
        Closed.
        """
        check_fields(fields)
        if self._turns.wanted:
            self._check_open()
            raise WouldBlock("other appends wait for room")
        return self._append(value, fields, math.inf)

    def _append(self, value: Any, fields: RecordFields, deadline: float) -> asyncio.Future[int]:
        sender = self.producer.sender
        if sender is None or self._closed or _get_running_loop() is not self._loop:
            self._check_open()
            self.producer.check_fenced()
            raise WouldBlock("there is no leader at the moment")
        if fields:
            ticket = self.producer.try_append(value, **fields)
        else:
            ticket = sender.append(value)
            if ticket < 0:
                self._notice(sender)
                raise WouldBlock("no room in the window at the moment, or no leader")
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)
        return self._await_ticket(ticket, deadline)

    async def append_wait(
        self, value: Value, *, timeout: float = DEFAULT_TIMEOUT, **fields: Unpack[RecordFields]
    ) -> int:
        """Append one record; its offset once it is committed.

        Raises TimedOut (no room or no leader: not handed over), UnknownOutcome, and
        as :meth:`Producer.wait`. Cancelled, it may or may not have been handed over.
        """
        deadline = deadline_after(timeout, now=self._now)
        check_fields(fields)
        if not self._turns.wanted:
            try:
                return await self._append(value, fields, deadline)
            except (WouldBlock, RecordTooLarge):
                pass
        return await (await self._append_in_turn(value, fields, deadline))

    async def _append_in_turn(
        self, value: Any, fields: RecordFields, deadline: float
    ) -> asyncio.Future[int]:
        """Append as soon as there is room; the call that has waited longest is first."""
        wished = False
        self._check_open()
        async with self._turns.next(deadline):
            while True:
                try:
                    return self._append(value, fields, deadline)
                except WouldBlock:
                    wished = await self._wait_room(deadline, wished)
                except RecordTooLarge as error:
                    await self._enlarge(error.record_bytes, deadline)

    async def _enlarge(self, record_bytes: int, deadline: float) -> None:
        """Have a sender that takes such a record. Cancelled, the exchange goes on."""
        while self._exchange is not None:  # of an append that was cancelled
            await self._wait_room(deadline, False)
        self._exchange = self._loop.create_task(self._exchange_sender(record_bytes, deadline))
        # Cancelled, nothing awaits it: asyncio would print what it fails with.
        self._exchange.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._exchange)

    async def _exchange_sender(self, record_bytes: int, deadline: float) -> None:
        sender, wished, enlarge = self.producer.sender, False, self.producer.enlarge
        try:
            if sender is not None:
                sender.hold(True)  # nothing may be under way while it is exchanged
                while sender.broken is None and (sender.under_way or sender.backlog):
                    wished = await self._wait_room(deadline, wished)
            if self._now() >= deadline:
                raise TimedOut(NO_TIME_TO_ENLARGE)
            self._unwatch()  # before a thread closes it
            await in_steps(self._host, self._check_open, deadline, enlarge, record_bytes)
        finally:
            self._exchange = None
            if sender is not None:
                sender.hold(False)
            self._watch()

    async def append_many(
        self,
        values: Any,
        offsets: Any = None,
        *,
        size: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> range | list[int]:
        """Append many records and wait until all are committed; as :meth:`Producer.append_many`."""
        deadline = deadline_after(timeout, now=self._now)
        column = values if isinstance(values, Values) else Values(values, offsets, size=size)
        tickets: list[range] = []
        done, largest, wished = 0, -1, False
        try:
            self._check_open()
            async with self._turns.next(deadline):
                while done < len(column):
                    sender = self.producer.sender
                    taken = 0
                    if sender is not None and largest < 0:
                        self._check_open()
                        largest = sender.check_values(column)
                    if sender is not None and largest > sender.record_bytes_max:
                        await self._enlarge(largest, deadline)
                        continue
                    if sender is not None:
                        first, taken = sender.append_values(column, done)
                        add_tickets(tickets, first, taken)
                        done += taken
                    wished = not taken and await self._wait_room(deadline, wished)
        except KraftfastError as error:
            if not done:
                raise
            raise cut_short(tickets, len(column), error) from None
        with naming(tickets):
            await self._wait_ticket(tickets[-1].stop - 1 if tickets else -1, deadline)
        return offsets_of(self._outcomes, tickets)

    def _check_open(self) -> None:
        if self._closed:
            raise self.refusal.again()
        check_loop(self._loop)

    async def _wait_room(self, deadline: float, wished: bool) -> bool:
        """Say that room is wanted, and have the caller look again; if ``wished``, wait (R12)."""
        self._check_open()
        self.producer.check_fenced()
        left = deadline - self._now()
        sender, exchange = self.producer.sender, self._exchange
        if left <= 0:
            raise TimedOut(NO_LEADER if sender is None else NO_ROOM)
        if exchange is not None and exchange is not asyncio.current_task():
            await asyncio.wait((exchange,), timeout=min(left, ROOM_S))  # it waits for room too
            return False
        if sender is not None and not wished:
            sender.want_room()
            self._attend()
            return True
        self._room.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._room.wait(), min(left, ROOM_S))
        return False

    async def _wait_ticket(self, ticket: int, deadline: float) -> None:
        """Wait until a ticket, the last one that was handed out, is resolved. Or UnknownOutcome."""
        if ticket >= self._outcomes.resolved:
            check_loop(self._loop)
            try:
                await self._await_ticket(ticket, deadline)
            except UnknownOutcome:
                if ticket >= self._outcomes.resolved:
                    raise
            except KraftfastError:
                pass  # what became of it is not asked for here

    # --- futures ----------------------------------------------------------------------------------

    def _await_ticket(self, ticket: int, deadline: float) -> asyncio.Future[int]:
        """Return a future of the last ticket handed out; UnknownOutcome if its time is over before.

        If the awaiting task is cancelled, so is the future; the record is appended all the same.
        """
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((ticket, future, deadline))
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        return future

    def _set_alarm(self, deadline: float) -> None:
        """Set one timer for all futures: most are done long before it ends."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        if deadline < math.inf:
            left = deadline - self._now()
            self._alarm = self._loop.call_later(left, weakly(self._time_is_over))

    def _time_is_over(self) -> None:
        self._attend()
        self._alarm, soon, earliest = None, self._now() + ALARM_STEP_S, math.inf
        for ticket, future, deadline in self._waiting:
            if deadline > soon:
                earliest = min(earliest, deadline)
            elif not future.done():
                self.producer.reported_to = max(self.producer.reported_to, ticket + 1)
                future.set_exception(UnknownOutcome(NOT_IN_TIME))
        self._set_alarm(earliest)

    # --- what comes back --------------------------------------------------------------------------

    def _end_turn(self) -> None:
        """Send together what was appended in this turn of the loop."""
        self._turn_ends = False
        if (sender := self.producer.sender) is not None:
            sender.seal()
            self._watch()

    def _attend(self) -> None:
        """Take in what came back, and announce sleep (R12)."""
        sender = self._watched
        if sender is None:
            return
        sender.attend()
        while sender.broken is None and not sender.going_to_sleep():
            sender.poll()
        self._notice(sender)
        if self._waiting:
            self._outcomes.settle(self._waiting)
        self._room.set()

    def _watch(self) -> None:
        """Have the loop watch the present sender, unless a thread may close it."""
        sender = self.producer.sender
        settled = self._search is None and self._exchange is None and not self._closed
        if settled and sender is not self._watched:
            self._unwatch()
            self._watched = sender
            if sender is not None:
                self._fd = sender.fileno()
                self._loop.add_reader(self._fd, self._attention)
        self._attend()
        if self._watched is None:  # an exchange ended without a sender, say
            self._notice(sender)

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._loop.remove_reader(self._fd)
            self._watched = None

    # --- another leader ---------------------------------------------------------------------------

    def _notice(self, sender: Sender | None) -> None:
        """Look for a leader if there is none now."""
        is_idle = self._search is None and self._exchange is None and not self._closed
        is_gone = sender is None or sender.broken is not None
        if is_gone and is_idle and (self._waiting or not self.producer.has_nothing_to_do()):
            self._unwatch()
            self._search = self._loop.create_task(self._search_leader())

    async def _search_leader(self) -> None:
        pause = Pause(ROOM_S, SEARCH_S)
        try:
            while not self._closed and (self._waiting or not self.producer.has_nothing_to_do()):
                try:
                    await in_thread(self._host, self.producer.reconnect, self._now() + SEARCH_S)
                    break
                except KraftfastError as error:
                    self._failure = error
                    pause_s = pause.after(error)
                finally:
                    self._outcomes.settle(self._waiting)
                await asyncio.sleep(pause_s)
        finally:
            self._search = None
        if not self._closed:
            self._watch()
            self._end_turn()

    def _look_after(self) -> None:
        """Look after a leader that stopped or a host that fell silent: neither closes a connection.

        Whatever ended the last search for a leader, another one begins here at the latest.
        """
        self._tick = self._loop.call_later(LEADER_SILENCE_S, weakly(self._look_after))
        self._notice(self.producer.sender)
        sender = self._watched
        busy = self._search is not None or self._exchange is not None
        if sender is not None and sender.under_way and not busy:
            self._search = self._loop.create_task(self._check_silence(sender))

    async def _check_silence(self, sender: Sender) -> None:
        try:
            await in_thread(self._host, self.producer.check_silence, sender, self._now() + SEARCH_S)
        finally:
            self._search = None
        self._notice(sender)

    # --- end --------------------------------------------------------------------------------------

    async def flush(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until everything handed over is resolved; raises as :meth:`Producer.flush`."""
        if isinstance(self.refusal, WrongProcess):
            raise self.refusal.again()
        deadline, last = deadline_after(timeout, now=self._now), self._outcomes.next_ticket - 1
        await self._wait_ticket(last, deadline)
        raise_left(self._outcomes, self.producer.left_from, last)

    async def close(self, *, timeout: float = 5.0) -> None:
        """Wait for what is under way, then let go: what has no answer by then is UnknownOutcome.

        ``async with`` raises that at its end, as the blocking producer does. Cancelled, or after
        the end of the loop, it waits for no record. Raises InvalidOption, and LocalError in another
        loop or thread, which closes nothing.
        """
        deadline_after(timeout)
        if self._loop.is_closed() and not isinstance(self.refusal, WrongProcess):
            self._closed = True
            self._waiting.clear()  # nothing in that loop can be told
            await in_thread(self._host, self.producer.close, timeout=0.0)
            return
        if not self._closed or (self._ending is not None and not self._ending.done()):
            check_loop(self._loop)
        try:
            if not self._closed:
                self.producer.begin_close()
                await self.flush(timeout=timeout)
        except (UnknownOutcome, Closed):
            pass
        finally:
            if not self._closed:
                self._closed = True
                self._ending = self._loop.create_task(self._end())
            if self._ending is not None:
                await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._tick.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        self._unwatch()
        for task in (self._search, self._exchange):
            if task is not None:
                await asyncio.wait((task,))
        self._unwatch()
        try:
            await in_thread(self._host, self.producer.close, timeout=0.0)
        finally:
            self._outcomes.settle(self._waiting)
            self._room.set()

    def disown(self) -> None:
        """Leave the loop's epoll, which is the parent's too, as it is in a forked child."""
        self._closed, self.refusal = True, forks.refusal("producer")
        self._watched = None
        self._waiting.clear()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or forks.pending():
            return
        warnings.warn("an async producer was not closed", ResourceWarning, source=self)
        fd = -1 if self._watched is None else self._fd
        with contextlib.suppress(RuntimeError):
            if self._waiting:  # futures, which its end resolves
                end_in(self._loop, self.close, fd, self.producer)
                return
        self._closed = True
        let_go_in(self._loop, fd, self.producer)

    async def __aenter__(self) -> AsyncProducer:
        return await self._connected()

    async def __aexit__(self, kind: object, *_raised: object) -> None:
        was_closed = self._closed
        await self.close()
        if kind is None and not was_closed:
            await self.flush(timeout=0.0)
