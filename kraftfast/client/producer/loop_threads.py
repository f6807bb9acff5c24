"""Blocking calls of asyncio clients: they run in threads of their own.

Not in those of the loop's executor: a program's own calls may take all of them, and may wait for
the very records that a producer cannot send until a thread has found a leader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from kraftfast.client.client_host import ClientHost
from kraftfast.errors import NoQuorum, TimedOut

T = TypeVar("T")

SEARCH_S = 0.5
"""A thread that looks for a leader cannot be interrupted: a close waits so long for it."""


async def in_thread(host: ClientHost, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Return what ``call(...)`` returns, or raise what it raises, from a thread of its own.

    Cancelled, or where the loop has ended meanwhile, the call goes on, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(resolve: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            resolve(value)

    def run() -> None:
        resolve: Callable[[Any], None] = future.set_result
        value: Any
        try:
            value = call(*arguments, **named)
        except (Exception, SystemExit) as error:  # what awaits the call gets it
            resolve, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, resolve, value)

    host.thread(run, "kraftfast-asyncio").start()
    return await future


async def in_steps(
    host: ClientHost,
    check: Callable[[], None],
    deadline: float,
    call: Callable[..., object],
    *arguments: Any,
) -> None:
    """Call ``call(*arguments, until)`` in a thread, again and again, until it finds a leader.

    ``until``: a moment soon, ``deadline`` at last: then whatever it raises is raised. ``check`` is
    called between, and ends it by what it raises.
    """
    while True:
        until = min(deadline, host.monotonic() + SEARCH_S)
        try:
            await in_thread(host, call, *arguments, until)
            return
        except (NoQuorum, TimedOut):
            if host.monotonic() >= deadline:
                raise
        check()
