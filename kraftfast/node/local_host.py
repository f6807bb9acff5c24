"""The host of a replica in production: this machine, by the kernel."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from kraftfast.link.host_ports import Local, Network, Threads
from kraftfast.link.kernel import LOCAL, NETWORK, THREADS
from kraftfast.link.resolver import Resolver
from kraftfast.link.ring_link import OwnDoorbell
from kraftfast.link.unix_socket import credentials, open_pidfd
from kraftfast.log.disk import Disk
from kraftfast.log.log import CLOSE_WAIT_S, install_guard
from kraftfast.log.nursery import PreparerThread
from kraftfast.node.event_log import NO_REPLICA, Entry, entry_now
from kraftfast.node.idle import Idle
from kraftfast.node.processes.line import show_as_text, unread_bytes, write_line
from kraftfast.node.processes.placement import move
from kraftfast.node.processes.signals import ProcessSignals
from kraftfast.node.rings.ring_fetch import INLINE_MAX, open_peer_segment
from kraftfast.node.slots import is_kept
from kraftfast.node.threads.background import Background
from kraftfast.node.threads.flusher import Flusher
from kraftfast.types import NO_EPOCH, NO_OFFSET, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node
    from kraftfast.node.node_config import NodeConfig
    from kraftfast.node.ports import OwnProcess

STATE_MACHINE_EXIT_CODE = 72
SWITCH_INTERVAL_S = 0.0005  # the loop gets the interpreter back this soon


class LocalHost:
    """See :class:`~kraftfast.node.ports.Host`. Made once for each replica, in its process."""

    unmap_wait_s = CLOSE_WAIT_S
    network: Network = NETWORK
    local: Local = LOCAL
    inline_bytes_max = INLINE_MAX
    open_segment = staticmethod(open_peer_segment)
    threads: Threads = THREADS
    monotonic_ns = staticmethod(time.monotonic_ns)
    sleep = staticmethod(time.sleep)
    is_kept = staticmethod(is_kept)
    run_on = staticmethod(move)

    def __init__(self, show: Callable[[Entry], None] = show_as_text) -> None:
        """Show events by ``show``, which must not wait."""
        self.show, self._node_id = show, NO_REPLICA
        install_guard()
        _take_all_descriptors()
        self.disk = Disk()

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000

    @staticmethod
    def memory_bytes() -> int:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
        return 0

    def seed(self) -> int:
        return int.from_bytes(os.urandom(8), "big")

    def doorbell(self) -> OwnDoorbell:
        return OwnDoorbell()

    def flusher(self, doorbell: OwnDoorbell) -> Flusher:
        return Flusher(doorbell.bell.address, doorbell.bell.fd)

    def idle(self, doorbell: OwnDoorbell, flusher: Flusher) -> Idle:
        return Idle(doorbell.bell, flusher.address)

    def preparer(self, doorbell: OwnDoorbell) -> PreparerThread:
        return PreparerThread(doorbell.bell.address, doorbell.bell.fd)

    def background(self) -> Background:
        return Background(self.threads)

    def resolver(self) -> Resolver:
        return Resolver(self.network, self.threads)

    def signals(self) -> ProcessSignals:
        return ProcessSignals()

    def embed(self, node: Node, state_machine: str) -> None:
        from kraftfast.node.state_machine import make
        from kraftfast.node.threads.applier import embed  # with numpy: half of a start's time
        from kraftfast.node.threads.held import Calls

        self._node_id = node.config.node_id
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        embed(node, make(state_machine, Calls()))

    def state_machine_failed(self, error: BaseException, at: OffsetAndEpoch | None) -> None:
        import traceback

        where = "" if at is None else f"in the batch at offset {at.offset}, epoch {at.epoch}: "
        offset, epoch = at or (NO_OFFSET, NO_EPOCH)
        fields = {
            "why": f"{where}{type(error).__name__}: {error}",
            "offset": offset,
            "epoch": epoch,
            "traceback": "".join(traceback.format_exception(error)),
        }
        self.show(entry_now("state_machine_failed", self._node_id, **fields))
        os._exit(STATE_MACHINE_EXIT_CODE)


def _take_all_descriptors() -> None:
    """Take as many descriptors as this user may have: a producer takes eight of its leader's."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class KernelProcess:
    """See :class:`~kraftfast.node.ports.OwnProcess`."""

    write = staticmethod(os.write)
    close = staticmethod(os.close)
    unread_bytes = staticmethod(unread_bytes)
    write_line = staticmethod(write_line)

    def open_socket(self, fd: int) -> socket.socket:
        return socket.socket(fileno=fd)

    def ignore_terminal(self) -> None:
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def is_one_thread(self) -> bool:
        return len(os.listdir("/proc/self/task")) == 1

    def fork_sibling(self, run: Callable[[OwnProcess], int]) -> int:
        from kraftfast.node.processes.sibling import fork_sibling

        pid = fork_sibling()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                code = run(self)
            except OSError as error:  # the caller would take it for a fork that failed
                raise RuntimeError("a sibling ends by an error of the system") from error
            sys.exit(code)
        return pid

    def node(self, config: NodeConfig, show: Callable[[Entry], None]) -> Node:
        from kraftfast.node.node import Node

        return Node(config, LocalHost(show))

    def loop(self, node: Node) -> Loop:
        from kraftfast.node.loop import Loop

        return Loop(node)

    def parent_of(self, sock: socket.socket) -> int:
        return open_pidfd(credentials(sock).pid)

    def settle(self) -> None:
        gc.freeze()  # the collector need not look at it
        gc.enable()

    def exit_at_once(self, code: int) -> NoReturn:
        os._exit(code)
