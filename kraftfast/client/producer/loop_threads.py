"""Blocking calls of an asyncio producer: they run in a thread, for half a second at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kraftfast.errors import NoQuorum, TimedOut

SEARCH_S = 0.5
"""A thread that looks for a leader cannot be interrupted: a close waits so long for it."""


async def in_steps(
    now: Callable[[], float],
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
        until = min(deadline, now() + SEARCH_S)
        try:
            await asyncio.to_thread(call, *arguments, until)
            return
        except (NoQuorum, TimedOut):
            if now() >= deadline:
                raise
        check()
