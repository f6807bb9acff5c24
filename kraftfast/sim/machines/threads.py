"""Threads of a simulated process: stacks of their own, of which the world runs one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.errors import HostUnsupported
from kraftfast.sim.machines.files import SimWaker

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ModuleNotFoundError:
    text = "the simulator needs the package greenlet -> pip install 'kraftfast[sim]'"
    raise HostUnsupported(text) from None

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process

__all__ = ["GreenletExit", "SimThread", "SimThreads", "drop", "getcurrent", "greenlet", "leave"]

HEARD_US_MAX = 200
"""A thread goes on so much later than what it waits for, at most."""


def is_world() -> bool:
    """Return whether the world runs now, and no stack that can be left."""
    return getcurrent().parent is None


def leave() -> None:
    """Leave this stack; the one that switched to it goes on."""
    parent = getcurrent().parent
    assert parent is not None, "the world waits for nobody"
    parent.switch()


def switch_to(stack: greenlet) -> None:
    """Go on with a stack until it is left, or ends. Raises what it raises."""
    stack.parent = getcurrent()
    stack.switch()


def drop(stack: greenlet | None) -> None:
    """End a stack where it stands."""
    if stack is not None and stack is not getcurrent() and stack and not stack.dead:
        stack.parent = getcurrent()
        stack.throw(GreenletExit)


class SimThread(greenlet):  # type: ignore[misc]
    """One thread beside a loop."""

    def __init__(self, process: Process, run: Callable[[], object]) -> None:
        super().__init__(run)
        self.process = process

    def go_on(self) -> None:
        """Run until it waits."""
        switch_to(self)

    def join(self, timeout: float | None = None) -> None:
        """Have the loop wait until this thread has ended."""
        assert timeout is not None
        until_us = self.process.world.now_us + int(timeout * 1e6)
        while not self.dead and self.process.world.now_us < until_us:
            self.process.pause(1_000)


class SimQueue:
    """``queue.SimpleQueue``. An item is taken as a request to the disk takes its time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._items: deque[Any] = deque()
        self._waiting: SimThread | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._process.thread_later(waiting, 1)

    def get(self) -> Any:
        thread = getcurrent()
        while not self._items:
            self._waiting = thread
            leave()
        self._process.thread_later(thread, self._process.disk_delay_us())
        leave()
        return self._items.popleft()


class SimEvent:
    """``threading.Event``, for one thread that waits and a loop that sets it."""

    # _set: whether it is. _waiting: the thread that waits. _turn: which wait of it: what was to
    # end an earlier one comes too late.

    def __init__(self, process: Process) -> None:
        self._process = process
        self._set = False
        self._waiting: SimThread | None = None
        self._turn = 0

    def set(self) -> None:
        self._set = True
        if self._waiting is not None:
            self._end_later(self._process.world.random.randint(1, HEARD_US_MAX))

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._waiting, self._turn = getcurrent(), self._turn + 1
            if timeout is not None:
                self._end_later(max(1, int(timeout * 1e6)))
            leave()
        return self._set

    def _end_later(self, delay_us: int) -> None:
        turn = self._turn

        def end() -> None:
            if self._waiting is not None and turn == self._turn:
                waiting, self._waiting = self._waiting, None
                waiting.go_on()

        self._process.beside_later(end, delay_us)


class SimThreads:
    """See :class:`kraftfast.link.host_ports.Threads`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def start(self, run: Callable[[], object], _name: str) -> SimThread:
        process = self._process
        thread = SimThread(process, run)
        process.threads.append(thread)
        process.thread_later(thread, process.disk_delay_us())
        return thread

    def queue(self) -> SimQueue:
        return SimQueue(self._process)

    def event(self) -> SimEvent:
        return SimEvent(self._process)

    def waker(self) -> SimWaker:
        return SimWaker(self._process.files)

    def monotonic(self) -> float:
        return self._process.host.monotonic_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self._process.thread_later(getcurrent(), max(1, int(seconds * 1e6)))
        leave()
