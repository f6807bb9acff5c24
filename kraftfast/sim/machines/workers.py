"""Processes that a supervisor starts: ``node/processes/worker.py`` itself, which becomes a replica.

A worker is a stack of its own before and after: it waits for its configuration, opens a replica
(``Process``) and runs its loop. Its parent is a program (``operators/supervising.py``), or a
process that was.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from kraftfast.errors import KraftfastError, PeerGone
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.node.loop import Loop
from kraftfast.node.processes.worker import main
from kraftfast.sim.clients.door import DoorSockets
from kraftfast.sim.clients.program import SimProgram, SimWaiter
from kraftfast.sim.machines.files import File, Files
from kraftfast.sim.machines.local import LocalSocket, Passed, Pidfd, SimLocalPeer
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.machines.threads import GreenletExit, drop, getcurrent, greenlet, switch_to
from kraftfast.sim.oracles.watching import WatchedProcess
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.node.event_log import Entry
    from kraftfast.node.node_config import NodeConfig
    from kraftfast.sim.machines.machine import Machine

IMPORTS_US_MAX = 60_000
"""So long a worker's interpreter imports, at most, before it does anything."""
FORK_US_MAX = 3_000
FORK_FAILS = 0.03
"""How often a process has another thread, or the system refuses a fork: then it forks no more."""
HEARD_US_MAX = 2_000
"""A message is noticed so much later than it was sent, at most."""
LOOK_S = 0.02
"""How often a machine that is not to start yet looks again."""


class KeptSocket(LocalSocket):
    """One end of a pair of sockets, which several processes may have a descriptor of."""

    ends: list[PairEnd]

    def __init__(self, process: Any) -> None:
        super().__init__(Files(process.world, process.id), process.world.local, process)
        self.ends, self.random = [], process.random

    def changed(self) -> None:
        for end in self.ends:
            end.changed()

    def post(self, message: tuple[bytes, list[Passed]] | None) -> None:
        """Put a message into the other end at once, as the kernel does; a waiter learns later.

        So what a worker says as it ends is there when its end is noticed.
        """
        peer = self.peer
        assert peer is not None
        if message is None:
            peer.at_end = True
        else:
            peer.inbox.append(message)
        self.host.world.later(self.random.randint(1, HEARD_US_MAX), peer.changed)

    def unread_bytes(self) -> int:
        """Return how much waits at the other end."""
        assert self.peer is not None
        return sum(len(data) for data, _ in self.peer.inbox)


class PairEnd(File):
    """A descriptor of it, in one process, whose calls wait."""

    def __init__(self, process: SimProgram, kept: KeptSocket, fd: int = -1) -> None:
        super().__init__(process.files, fd)
        self.process, self.kept = process, kept
        kept.ends.append(self)

    def readiness(self) -> int:
        return self.kept.readiness()

    def close(self) -> None:
        if self.fd >= 0:
            super().close()
            self.kept.ends.remove(self)
            if not self.kept.ends:
                self.kept.close()

    # --- as ``socket.socket`` has it --------------------------------------------------------------

    def recv(self, bytes_max: int, flags: int = 0) -> bytes:
        kept = self.kept
        if not kept.inbox and not kept.at_end:
            if flags & socket.MSG_DONTWAIT:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self.process.wait_ready(self.fd, select.EPOLLIN, None)
        return kept.inbox.popleft()[0][:bytes_max] if kept.inbox else b""

    def send(self, data: bytes, _flags: int = 0) -> int:
        return self.kept.send(data)


def pair(process: SimProgram) -> tuple[PairEnd, PairEnd]:
    """Return two connected sockets of a process, as ``socket.socketpair`` does."""
    ours, theirs = KeptSocket(process), KeptSocket(process)
    ours.peer, theirs.peer = theirs, ours
    return PairEnd(process, ours), PairEnd(process, theirs)


class WorkerProcess(SimProgram):
    """A process between its start and its exit code. ``replica``: what it has become, or None."""

    # machine: whose replica it is to be, once it was told. _error: what its replica raised, which
    # the world judges. _code: what it exits with. _random: what befalls it, apart from all else.

    replica: WatchedProcess | None
    machine: Machine | None

    def __init__(
        self, parent: SimProgram, inherited: dict[int, KeptSocket], random: Random
    ) -> None:
        super().__init__(parent.world, parent.id)
        self.pid = self.world.local.began(self)
        self.parent, self.random = parent, random
        self.parent_pid: int = parent.pid  # type: ignore[attr-defined]
        self.machine = self.replica = None
        self.error: KraftfastError | None = None
        self._code = -signal.SIGKILL
        for fd, kept in inherited.items():
            PairEnd(self, kept, fd)
            kept.process = self  # type: ignore[assignment]

    def inherited(self) -> dict[int, KeptSocket]:
        """Return what a process that it forks now has, too."""
        files = self.files.by_fd.items()
        return {fd: each.kept for fd, each in files if isinstance(each, PairEnd)}

    def begin(self, call: Callable[[SimOwnProcess], int], delay_us: int) -> None:
        """Run something as its only thread, after a while."""
        stack = greenlet(partial(self._main, call))
        self.stacks.append(stack)
        self.world.later(delay_us, self.go_on, stack)

    def _main(self, call: Callable[[SimOwnProcess], int]) -> None:
        code = call(SimOwnProcess(self))
        replica = self.replica
        if self.error is not None:
            self._code = code
            raise self.error
        if replica is not None and not replica.closed:  # its supervisor ended just now
            require(code == PeerGone.exit_code, f"L1: worker {self.id} ends with {code}")
            self.world.end(replica.machine, power=False)
        self.finish(code)

    def go_on(self, stack: greenlet) -> None:
        if stack not in self.stacks:
            return
        try:
            switch_to(stack)
            if self.replica is not None:
                self.world.took_turn(self.replica)
        except (Crash, AssertionError, KraftfastError) as error:
            if self.replica is not None:
                self.world.ends_by(self.replica, error)
            else:
                assert self.machine is not None, "it knows which replica it is to be"
                self.world.cannot_start(self.machine, error)
                self.finish(self._code)

    def finish(self, code: int) -> None:
        """End, with this exit code, wherever it is."""
        stacks = self.stacks
        self.leave(code)
        for stack in stacks:
            drop(stack)

    def leave(self, code: int) -> None:
        """End the process for all others; the caller drops the stack."""
        if self.alive:
            self.alive, self.stacks = False, []
            self.world.local.exit_codes[self.pid] = code if self.error is None else self._code
            self.world.local.ended(self.pid)
            self.files.vanish(power=False)

    def signal(self, signo: int) -> None:
        """Get a signal."""
        replica = self.replica
        if replica is None:
            if signo in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self.finish(-signo)
        elif signo == signal.SIGKILL:
            self.world.end(replica.machine, power=False)
        elif signo == signal.SIGSTOP:
            replica.paused = True
        elif signo == signal.SIGCONT and replica.paused:
            replica.resume()
        elif signo == signal.SIGTERM:
            replica.loop.signals.ring()  # type: ignore[attr-defined]

    def fails_by(self, error: KraftfastError) -> None:
        """Note what its replica raised: the world judges it once the worker has reported it."""
        self.error = error
        supervising = self.world.supervising
        assert self.machine is not None
        if supervising is self.parent and supervising.pid == self.parent_pid:
            supervising.note_failed(self.machine.id, error)

    def become(self, config: NodeConfig, show: Callable[[Entry], None]) -> WatchedProcess:
        """Open the replica. Raises KraftfastError, Crash."""
        self.machine = machine = self.world.machine(config.node_id)
        supervising = self.world.supervising
        if supervising is self.parent and supervising.pid == self.parent_pid:
            supervising.check_may_start(machine.id)
        while machine.dead or not machine.may_start:
            self.wait(SimWaiter(self), LOOK_S)
        self.id = self.files.host = machine.id
        if machine.process is not None:  # it holds the lock
            holder = machine.process.worker
            require(
                holder is not None and holder.parent_pid != self.parent_pid,
                f"R11: its supervisor starts replica {machine.id} twice",
            )
            ReplicaDirectory(machine.disk, machine.path)  # type: ignore[arg-type]
            raise AssertionError(f"D15: the directory of {machine.id} is not held")
        try:
            if supervising is not None and supervising.lost is machine:
                machine.take_key()
            self.replica = self.world.open_replica(machine, self)
        except KraftfastError as error:
            self.fails_by(error)
            raise
        self.replica.shows = show
        self.replica.runs_in(getcurrent())
        return self.replica


class WatchedLoop(Loop):
    """The loop of a worker, whose errors the world judges once the worker has reported them."""

    def run(self) -> None:
        try:
            super().run()
        except KraftfastError as error:
            worker: WorkerProcess = self.node.worker  # type: ignore[attr-defined]
            worker.fails_by(error)
            raise


class SimOwnProcess:
    """See :class:`kraftfast.node.ports.OwnProcess`."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def open_socket(self, fd: int) -> Any:
        return self._process.files.by_fd[fd]

    def ignore_terminal(self) -> None:
        """Do nothing: there is none."""

    def is_one_thread(self) -> bool:
        return self._process.random.random() >= FORK_FAILS

    def fork_sibling(self, run: Callable[[Any], int]) -> int:
        process = self._process
        if process.random.random() < FORK_FAILS:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        sibling = WorkerProcess(process.parent, process.inherited(), process.random)
        sibling.begin(run, process.random.randint(1, FORK_US_MAX))
        return sibling.pid

    def write(self, fd: int, data: bytes) -> object:
        return self.open_socket(fd).send(data)

    def close(self, fd: int) -> None:
        self._process.files.by_fd[fd].close()

    def node(self, config: NodeConfig, show: Callable[[Entry], None]) -> WatchedProcess:
        return self._process.become(config, show)

    def loop(self, node: Any) -> WatchedLoop:
        node.loop = loop = WatchedLoop(node, DoorSockets, SimLocalPeer)
        return loop

    def parent_of(self, sock: Any) -> int:
        process, parent = self._process, sock.kept.peer.process
        if parent.pid not in process.world.local.processes:
            raise PeerGone(f"process {parent.pid} is gone: {os.strerror(errno.ESRCH)}")
        return Pidfd(process.files, process.world.local, parent.pid).fd

    def settle(self) -> None:
        """Do nothing: the collector is the simulator's."""

    def unread_bytes(self, sock: Any) -> int:
        kept: KeptSocket = sock.kept
        return kept.unread_bytes()

    def write_line(self, text: str) -> None:
        self._process.world.trace(f"{self._process.id}: stderr: {text}")

    def exit_at_once(self, code: int) -> NoReturn:
        """End by what is being handled: the world judges it."""
        self._process._code = code
        raise sys.exception() or GreenletExit


def spawn(parent: SimProgram, fds: list[int], random: Random) -> WorkerProcess:
    """Start a worker's interpreter, as a child of a program."""
    inherited = {fd: parent.files.by_fd[fd].kept for fd in fds}  # type: ignore[attr-defined]
    process = WorkerProcess(parent, inherited, random)
    process.begin(lambda own: main(fds, own), random.randint(1, IMPORTS_US_MAX))
    return process
