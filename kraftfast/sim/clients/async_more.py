"""Programs of asyncio that do more with a producer: many tasks, little time, loops that end first.

They are held to what the others are (``async_clients``).
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.client.admin.admin import AsyncAdmin
from kraftfast.errors import (
    Closed,
    InvalidOption,
    KraftfastError,
    LocalError,
    NoQuorum,
    RecordTooLarge,
    RequestRefused,
    TimedOut,
    UnknownOutcome,
    WouldBlock,
)
from kraftfast.sim.clients.async_clients import (
    LARGE_BYTES,
    SHORT_S,
    AsyncLocalProducer,
    AsyncRemoteProducer,
)
from kraftfast.sim.clients.clients import FAILED, UNKNOWN, Told
from kraftfast.sim.clients.local_clients import LocalProducer
from kraftfast.sim.clients.remote_clients import CALL_S
from kraftfast.sim.machines.event_loop import SimEventLoop
from kraftfast.sim.require import expect

if TYPE_CHECKING:
    from kraftfast.client.producer.aio import AsyncProducer
    from kraftfast.client.quorum_base import Quorum
    from kraftfast.sim.world import World

BURST_MAX, MANY_MAX = 40, 200
OUTLIVES, HURRIES = 0.2, 0.6


class MoreAsync(AsyncRemoteProducer):
    """See the module."""

    # chance: its own. _left: what it appended to a producer that outlives its loop.

    _left: tuple[AsyncProducer, asyncio.Future[int], Told] | None

    def __init__(self, world: World, id: int, idempotent: bool) -> None:
        self.chance = Random(world.seed * 2 + 1 + (1 << 62))
        super().__init__(world, id, idempotent)

    async def _use(self, quorum: Quorum) -> None:
        if self.chance.random() < HURRIES:
            await self._hurry(quorum)
        if self.chance.random() < 0.3:
            await self._administer(quorum.async_admin())
        if self.chance.random() < OUTLIVES:
            self._left = await self._leave_open(quorum)
            return
        await super()._use(quorum)

    def act(self) -> None:
        self._left = None
        super().act()
        left, self._left = self._left, None
        if left is not None:
            self._close_late(*left)

    # --- many tasks, little time ------------------------------------------------------------------

    def _one(self, size: int = -1) -> Told:
        """Note a record whose order among the others is unknown."""
        world = self.world
        self._number += 1
        if size < 0:
            size = self.chance.randint(0, world.settings.value_bytes_max)
        value = b"r%d:%d:" % (self.id, self._number) + bytes(size)
        told = Told(world, value, (-self.id, -self._number))
        told.outcome = UNKNOWN
        world.history.append(told)
        return told

    async def _hurry(self, quorum: Quorum) -> None:
        """Append from several tasks at once, with less time and room than they need."""
        chance = self.chance
        self.busy = True
        try:
            self._made = made = quorum.async_producer(
                batch_bytes=1_000, window=chance.choice((1, 2, 8)), idempotent=self.idempotent,
                timeout=chance.choice((CALL_S, CALL_S, SHORT_S)),
            )  # fmt: skip
            await made
        except NoQuorum:
            self.world.count("async producers that found no leader")
            self.busy = False
            return
        try:
            ways = [self._burst, self._many, self._large, self._cancelled, self._wrong]
            tasks = [chance.choice(ways)(made) for _ in range(chance.randint(1, 5))]
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            for each in ends:
                if isinstance(each, BaseException) and not isinstance(each, KraftfastError):
                    raise each
            with suppress(UnknownOutcome):
                await made.flush(timeout=chance.choice((0.0, SHORT_S, CALL_S)))
        finally:
            await made.close(timeout=chance.choice((0.0, 1.0)))
            self.busy = False
        self.world.count("async producers in a hurry")

    async def _burst(self, made: AsyncProducer) -> None:
        """Append as fast as there is room, with all that a record may have."""
        futures: list[tuple[Told, asyncio.Future[int]]] = []
        for _ in range(self.chance.randint(1, BURST_MAX)):
            told = self._one()
            try:
                more: dict[str, Any] = {"key": b"k", "headers": [("a", b"1")], "timestamp": 5}
                fields = more if self.chance.random() < 0.3 else {}
                futures.append((told, made.append(told.values[0], **fields)))
            except (WouldBlock, RecordTooLarge):
                told.outcome = FAILED
                await asyncio.sleep(0)
        for told, future in futures:
            await self._end_of(told, future)

    async def _end_of(self, told: Told, future: Awaitable[int]) -> None:
        """Wait for a record's outcome, and note it."""
        try:
            self._note(told, await future)
        except UnknownOutcome:
            told.outcome = UNKNOWN
        except (TimedOut, WouldBlock, RecordTooLarge):
            told.outcome = FAILED
        except KraftfastError:
            told.outcome = UNKNOWN

    def _note(self, told: Told, offset: int) -> None:
        told.base_offset, told.end_offset, told.outcome = offset, offset + 1, "acknowledged"
        self.world.note_acknowledged(told)

    async def _many(self, made: AsyncProducer) -> None:
        """Append more than there may be time for; it is told how many were handed over (D24)."""
        told = [self._one() for _ in range(self.chance.randint(1, MANY_MAX))]
        values = [each.values[0] for each in told]
        try:
            timeout = self.chance.choice((CALL_S, SHORT_S, self.chance.random() * 0.1))
            for each, offset in zip(
                told, await made.append_many(values, timeout=timeout), strict=True
            ):
                self._note(each, offset)
        except UnknownOutcome as error:
            handed_over = getattr(error, "handed_over", None)
            if handed_over is not None:
                expect(0 < handed_over <= len(told), f"D24: {handed_over} of {len(told)}")
                self.world.count("async calls cut short")
                for each in told[handed_over:]:
                    each.outcome = FAILED

    async def _large(self, made: AsyncProducer) -> None:
        """Append what may need a larger ring."""
        told = self._one(self.chance.choice((20_000, LARGE_BYTES)))
        timeout = self.chance.choice((CALL_S, SHORT_S))
        await self._end_of(told, made.append_wait(told.values[0], timeout=timeout))

    async def _cancelled(self, made: AsyncProducer) -> None:
        """Append, and be cancelled in between: it may have been handed over."""
        told = self._one(self.chance.choice((10, LARGE_BYTES)))
        with suppress(TimeoutError, KraftfastError):
            async with asyncio.timeout(self.chance.random() * SHORT_S):
                self._note(told, await made.append_wait(told.values[0], timeout=CALL_S))

    async def _wrong(self, made: AsyncProducer) -> None:
        """What must not be asked for is refused."""
        wrong: tuple[tuple[dict[str, Any], type[Exception]], ...] = (
            ({"offset": 1}, TypeError), ({"headers": 7}, InvalidOption),
        )  # fmt: skip
        for fields, kind in wrong:
            try:
                made.append(b"late", **fields)
            except (kind, WouldBlock):
                continue
            expect(False, f"{kind.__name__} was to be raised by an async producer")
        with suppress(InvalidOption):
            await made.append_wait(b"late", timeout="1")  # type: ignore[arg-type]
            expect(False, "an async producer waits for a time that is none")

    async def _administer(self, admin: AsyncAdmin) -> None:
        """Ask what changes nothing."""
        what = self.chance.choice(("describe", "transfer", "upgrade", "reassign"))
        try:
            if what == "describe":
                await admin.describe(timeout=CALL_S)
            elif what == "transfer":
                await admin.transfer(99, timeout=SHORT_S * 20)
            elif what == "upgrade":
                await admin.upgrade(1, validate_only=True, timeout=SHORT_S * 20)
            else:
                await admin.reassign([], wait=True, timeout=SHORT_S * 20)
        except RequestRefused:
            self.world.count(f"an async admin is refused: {what}")
        except KraftfastError as error:
            self.world.count(f"an async admin: {type(error).__name__}")

    # --- a loop that ends before its producer -----------------------------------------------------

    async def _leave_open(
        self, quorum: Quorum
    ) -> tuple[AsyncProducer, asyncio.Future[int], Told] | None:
        """Make a producer and append; the loop ends without it."""
        self._made = made = quorum.async_producer(timeout=CALL_S, idempotent=self.idempotent)
        await made
        told = self._one()
        if self.chance.random() < 0.4:  # it is forgotten: closed when it is collected
            with suppress(KraftfastError):
                await self._end_of(told, made.append_wait(told.values[0], timeout=CALL_S))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                del self._made, made
            await asyncio.sleep(SHORT_S)
            self.world.count("async producers forgotten")
            return None
        try:
            return made, made.append(told.values[0]), told
        except KraftfastError:
            told.outcome = FAILED
            await made.close(timeout=0.0)
            return None

    def _close_late(self, made: AsyncProducer, _future: Any, _told: Told) -> None:
        """In another loop it appends nothing, and can be closed."""
        loop = SimEventLoop(self)

        async def close() -> None:
            with suppress(Closed, LocalError):
                made.append(b"late")
                expect(False, "a producer appends in another loop")
            await made.close(timeout=SHORT_S)
            with suppress(Closed):
                made.append(b"late")
                expect(False, "a closed producer appends")

        try:
            loop.run_until_complete(close())
        finally:
            loop.close()
        self.world.count("async producers that outlived their loop")


class MoreAsyncHere(MoreAsync, AsyncLocalProducer, LocalProducer):
    """The same over rings, on the host of the replicas."""
