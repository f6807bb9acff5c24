"""The order of asyncio appends that wait for room."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from kraftfast.errors import TimedOut

NO_ROOM = (
    "no room in time: what is under way is not acknowledged yet; without a majority it never is"
)


class Turns:
    """Appends that wait for room, one by one, in the order of their calls.

    ``wanted``: how many have their turn or wait for it.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.wanted = 0
        self._now, self._lock = now, asyncio.Lock()

    @contextlib.asynccontextmanager
    async def next(self, deadline: float) -> AsyncIterator[None]:
        """Wait until the appends that were called before are handed over. Raises TimedOut.

        Does not let others run if there are none.
        """
        self.wanted += 1  # the lock alone is free for a moment between two that wait for it
        try:
            try:
                async with asyncio.timeout(max(0.0, deadline - self._now())):
                    await self._lock.acquire()
            except TimeoutError:
                raise TimedOut(NO_ROOM) from None
            try:
                yield
            finally:
                self._lock.release()
        finally:
            self.wanted -= 1
