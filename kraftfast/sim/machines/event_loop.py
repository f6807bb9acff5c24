"""An event loop of asyncio over a program's descriptors and its time.

The loop is Python's own: what it waits by, its clock, and the threads that it starts are simulated.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio import events
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftfast.sim.clients.program import SimProgram


class SimSelector(selectors._BaseSelectorImpl):
    """``selectors.EpollSelector``: its numbers for events are those of ``select.poll``."""

    def __init__(self, program: SimProgram) -> None:
        super().__init__()
        self._poller = program.host.poller()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._poller.register(key.fd, _of_poll(events))
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._poller.unregister(key.fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._poller.poll(-1 if timeout is None else max(0.0, timeout))
        found = []
        for fd, came in ready:
            key = self.get_map().get(fd)
            if key is not None:
                out = selectors.EVENT_WRITE if came & ~1 else 0
                into = selectors.EVENT_READ if came & ~4 else 0
                found.append((key, (out | into) & key.events))
        return found

    def close(self) -> None:
        self._poller.close()
        super().close()


def _of_poll(events: int) -> int:
    return (1 if events & selectors.EVENT_READ else 0) | (
        4 if events & selectors.EVENT_WRITE else 0
    )


class SimEventLoop(asyncio.SelectorEventLoop):
    """The loop of one program, in one of its threads."""

    def __init__(self, program: SimProgram) -> None:
        self._program, self._host, self._files = program, program.host, program.files
        super().__init__(SimSelector(program))

    def time(self) -> float:
        return self._program.host.monotonic()  # type: ignore[no-any-return]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception that nobody handled, unless the process has ended."""
        if self._program.alive and self._program.files is self._files:
            super().call_exception_handler(context)

    # --- how other threads wake it, for which asyncio has a pair of sockets ----------------------

    def _make_self_pipe(self) -> None:
        self._waker = self._program.host.waker()
        self._add_reader(self._waker.fileno(), self._waker.clear)  # type: ignore[attr-defined]

    def _close_self_pipe(self) -> None:
        if self._waker.fileno() >= 0:  # else it went with the process
            self._remove_reader(self._waker.fileno())  # type: ignore[attr-defined]
            self._waker.close()

    def _write_to_self(self) -> None:
        if self._waker.fileno() >= 0:
            self._waker.ring()


def waits_beside_loop(wait: Callable[[], bool]) -> bool:
    """Call ``wait()``, which leaves this stack: no loop runs in those that go on meanwhile."""
    loop = events._get_running_loop()
    events._set_running_loop(None)
    try:
        return wait()
    finally:
        events._set_running_loop(loop)
