"""How an event loop calls an object without keeping it alive."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Protocol


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
