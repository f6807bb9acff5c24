"""How an event loop calls an object without keeping it alive, and which calls are of that loop."""

from __future__ import annotations

import asyncio
import weakref
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kraftfast.errors import Closed, LocalError


class LetsGo(Protocol):
    """What owns a descriptor that a loop watches."""

    def let_go(self) -> None:
        """Close it."""


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Return what calls a method of an object, as long as anything else keeps that object."""
    known = weakref.WeakMethod(method)

    def call() -> None:
        found = known()
        if found is not None:
            found()

    return call


def let_go_in(loop: asyncio.AbstractEventLoop, fd: int, owner: LetsGo) -> None:
    """Have the loop watch the descriptor no longer (-1: it does not), and only then close it.

    From any thread; at once if the loop has ended.
    """

    def let_go() -> None:
        if fd >= 0:
            loop.remove_reader(fd)
        owner.let_go()

    try:
        loop.call_soon_threadsafe(let_go)
    except RuntimeError:
        owner.let_go()


_ending: dict[asyncio.Task[None], asyncio.AbstractEventLoop] = {}
"""A loop keeps its tasks by weak references."""


def end_in(
    loop: asyncio.AbstractEventLoop,
    end: Callable[[], Coroutine[Any, Any, None]],
    fd: int,
    owner: LetsGo,
) -> None:
    """Have the loop run ``end()`` for what nothing else holds, else do as :func:`let_go_in`.

    At once where the loop runs here: it may be in its last turns, and cancels what it has by then.
    Raises RuntimeError if the loop has ended.
    """

    began = False

    async def run() -> None:
        nonlocal began
        began = True
        await end()

    def ended(task: asyncio.Task[None]) -> None:
        _ending.pop(task, None)
        if not began:  # cancelled before
            if fd >= 0:
                loop.remove_reader(fd)
            owner.let_go()

    def begin() -> None:
        for task, where in list(_ending.items()):
            if where.is_closed():  # and has told no task of its end
                del _ending[task]
        task = loop.create_task(run())
        _ending[task] = loop
        task.add_done_callback(ended)

    if _get_running_loop() is loop:
        begin()
    else:
        loop.call_soon_threadsafe(begin)


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise Closed if the loop has ended, LocalError in another loop or thread."""
    if loop.is_closed():
        raise Closed("the event loop that this producer was made in has ended")
    if _get_running_loop() is not loop:
        raise LocalError("this producer belongs to another event loop, or another thread")
