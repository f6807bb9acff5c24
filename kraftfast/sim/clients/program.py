"""A client's process: its threads, locks and sockets, for the clients as they are.

See ``kraftfast.client.client_host``. Its threads are stacks of which the world runs one at a time;
they change where one waits for time, a lock, or a descriptor. What they raise ends the run.
"""

from __future__ import annotations

import errno
import os
import select
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.sim.machines.client_calls import SimClock, SimStream
from kraftfast.sim.machines.files import File, Files, Poller, SimWaker
from kraftfast.sim.machines.tcp import TcpStream
from kraftfast.sim.machines.threads import (
    GreenletExit,
    drop,
    getcurrent,
    greenlet,
    leave,
    switch_to,
)

if TYPE_CHECKING:
    from kraftfast.sim.world import World

SWITCH_US = 20
"""A thread that may go on does so after a while, at most."""


class SimWaiter:
    """One wait of a thread; ``over`` once it was woken."""

    __slots__ = ("program", "stack", "over")

    def __init__(self, program: SimProgram) -> None:
        self.program, self.stack, self.over = program, getcurrent(), False

    def wake(self) -> None:
        """End the wait, soon."""
        if not self.over:
            self.over = True
            world = self.program.world
            world.later(world.random.randint(1, SWITCH_US), self.program.go_on, self.stack)


class SimProgram:
    """A process that runs clients on a host of its own; ``id``: of that host."""

    alive: bool

    def __init__(self, world: World, id: int) -> None:
        self.world, self.id = world, id
        self.begin_anew()

    def begin_anew(self) -> None:
        """Be another process: with nothing of the one before."""
        self.alive = True
        self.files = Files(self.world, self.id)
        self.host: Any = SimClientHost(self)
        self.stacks: list[greenlet] = []

    def end(self) -> None:
        """End wherever it is, as by SIGKILL."""
        self.alive = False
        self.files.vanish(power=False)
        for stack in self.stacks:
            drop(stack)
        self.stacks.clear()

    def run(self, call: Callable[[], object]) -> None:
        """Run something in a thread of its own."""
        stack = greenlet(call)
        self.stacks.append(stack)
        self.world.later(1, self.go_on, stack)

    def go_on(self, stack: greenlet) -> None:
        """Let a thread run until it waits, unless its process has ended."""
        if stack in self.stacks:
            switch_to(stack)
            if stack.dead and stack in self.stacks:
                self.stacks.remove(stack)

    def wait(self, waiter: SimWaiter, timeout_s: float | None) -> bool:
        """Leave this thread until it is woken, or the time is over; whether it was woken."""
        if not self.alive:
            raise GreenletExit
        woken = True
        if timeout_s is not None:
            self.world.later(max(1, int(timeout_s * 1e6)), waiter.wake)
        leave()
        return woken

    def wait_ready(self, fd: int, events: int, timeout_s: float | None) -> None:
        """Leave this thread until a descriptor has such events. Raises TimeoutError."""
        waiter = SimWaiter(self)
        poller = Poller(self.files, waiter.wake)
        poller.register(fd, events)
        try:
            self.wait(waiter, timeout_s)
            if not poller.ready():
                raise TimeoutError(errno.ETIMEDOUT, "timed out")
        finally:
            poller.close()


class ProgramThread:
    """A thread of a program: ``threading.Thread``. ``files``: of the process that it is of."""

    def __init__(self, program: SimProgram, files: Files, run: Callable[[], object]) -> None:
        self._program, self._files, self._stack = program, files, greenlet(run)

    def start(self) -> None:
        program = self._program
        if not program.alive or program.files is not self._files:
            raise RuntimeError("its process has ended")
        program.stacks.append(self._stack)
        program.world.later(1, program.go_on, self._stack)

    @property
    def ident(self) -> int | None:
        return id(self) if self.is_alive() or self._stack.dead else None

    def is_alive(self) -> bool:
        return self._stack in self._program.stacks

    def is_current(self) -> bool:
        return self._stack is getcurrent()

    def join(self, timeout: float | None = None) -> None:
        host = self._program.host
        until = host.monotonic() + (1e9 if timeout is None else timeout)
        while self.is_alive() and host.monotonic() < until:
            host.sleep(0.001)


class SimLock:
    """``threading.Lock``; ``owner``: the thread that took it."""

    def __init__(self, program: SimProgram, reentrant: bool = False) -> None:
        self._program, self._reentrant = program, reentrant
        self._owner: greenlet | None = None
        self._count = 0
        self._waiting: deque[SimWaiter] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        mine = self._reentrant and self._owner is getcurrent()
        program = self._program
        until = program.host.monotonic() + timeout if timeout >= 0 else None
        while self._count and not mine:
            left = None if until is None else until - program.host.monotonic()
            if not blocking or (left is not None and left <= 0):
                return False
            waiter = SimWaiter(program)
            self._waiting.append(waiter)
            program.wait(waiter, left)
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        self._owner, self._count = getcurrent(), self._count + 1
        return True

    def release(self) -> None:
        assert self._count, "it is taken"
        self._count -= 1
        if not self._count:
            self._owner = None
            if self._waiting:
                self._waiting.popleft().wake()

    def locked(self) -> bool:
        return self._count > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exc: object) -> None:
        self.release()


class PollerFile(File):
    """The descriptor of an epoll, which others may wait for."""

    def __init__(self, files: Files, poller: Poller) -> None:
        super().__init__(files)
        self._poller = poller

    def readiness(self) -> int:
        return select.EPOLLIN if self._poller.ready() else 0


class SimPoller:
    """``select.epoll``, for threads that wait."""

    _file: PollerFile | None = None

    def __init__(self, program: SimProgram) -> None:
        self._program = program
        self._poller = Poller(program.files, self._wake)
        self.register, self.modify = self._poller.register, self._poller.modify
        self.unregister = self._poller.unregister
        self._waiting: list[SimWaiter] = []

    def fileno(self) -> int:
        if self._file is None:
            self._file = PollerFile(self._program.files, self._poller)
        return self._file.fd

    def _wake(self) -> None:
        if self._file is not None:
            self._file.changed()
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.wake()

    def poll(self, timeout: float = -1) -> list[tuple[int, int]]:
        ready = self._poller.ready()
        if not ready and timeout != 0:
            waiter = SimWaiter(self._program)
            self._waiting.append(waiter)
            self._program.wait(waiter, None if timeout < 0 else timeout)
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            ready = self._poller.ready()
        return ready

    def close(self) -> None:
        """Watch nothing."""
        self._poller.close()
        if self._file is not None:
            self._file.close()


class SimPoll(SimPoller):
    """``select.poll``: as that, in milliseconds."""

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        return super().poll(-1 if timeout is None else timeout / 1000)


class ClientSocket(TcpStream):
    """A connection whose calls wait, up to ``settimeout``."""

    timeout: float | None = None
    program: SimProgram

    def settimeout(self, timeout: float | None) -> None:
        self.timeout = timeout

    def setblocking(self, flag: bool) -> None:
        self.timeout = None if flag else 0.0

    def connect_within(self, place: tuple[str, int], timeout: float) -> None:
        """Connect, or raise OSError."""
        self.timeout = timeout
        self.connect_ex(place)
        while self.state == "connecting":
            self._wait(select.EPOLLOUT)
        if self.error:
            error, self.error = self.error, 0
            raise OSError(error, os.strerror(error))

    def recv_into(self, buffer: Any) -> int:
        while True:
            try:
                return super().recv_into(buffer)
            except BlockingIOError:
                if self.timeout == 0.0:
                    raise
                self._wait(select.EPOLLIN)

    def recv(self, size: int) -> bytes:
        room = bytearray(size)
        return bytes(room[: self.recv_into(room)])

    def sendall(self, data: bytes, _flags: int = 0) -> None:
        rest = memoryview(data)  # a slice of it copies nothing, and requests can be large
        while rest:
            try:
                rest = rest[self.sendmsg([rest]) :]
            except BlockingIOError:
                self._wait(select.EPOLLOUT)

    def _wait(self, events: int) -> None:
        self.program.wait_ready(self.fd, events, self.timeout)


class SimClientHost:
    """What :class:`~kraftfast.client.client_host.KernelClientHost` is in production."""

    def __init__(self, program: SimProgram) -> None:
        self._program, self._files = program, program.files
        self.clock = SimClock(program.world)

    def monotonic(self) -> float:
        return self._program.world.now_us / 1e6

    def sleep(self, seconds: float) -> None:
        self._program.wait(SimWaiter(self._program), max(0.0, seconds))

    def lock(self) -> SimLock:
        return SimLock(self._program)

    def reentrant_lock(self) -> SimLock:
        return SimLock(self._program, reentrant=True)

    def thread(self, run: Callable[[], object], _name: str) -> ProgramThread:
        return ProgramThread(self._program, self._files, run)

    def is_current(self, thread: ProgramThread) -> bool:
        return thread.is_current()

    def connect(self, address: tuple[str, int], timeout: float) -> ClientSocket:
        sock = ClientSocket(self._program.files, self._program.world.tcp)
        sock.program = self._program
        try:
            sock.connect_within(address, timeout)
        except BaseException:
            sock.close()
            raise
        return sock

    def stream(self, fd: int) -> SimStream:
        return SimStream(self._program.files.by_fd[fd])

    def poller(self) -> SimPoller:
        return SimPoller(self._program)

    def poll(self) -> SimPoll:
        return SimPoll(self._program)

    def waker(self) -> SimWaker:
        return SimWaker(self._program.files)
