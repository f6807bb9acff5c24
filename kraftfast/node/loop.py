"""The loop of a replica: one thread that owns everything, and waits for work in one place.

A turn handles what has come (a flush that ended, rings, producers) and publishes what was written
to rings, then runs timers and publishes again. Between turns it spins a little while something was
in flight; an idle replica blocks. ARCHITECTURE.md, "Processes, threads and rings".
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.errors import FlushFailed
from kraftfast.node.node import Node
from kraftfast.node.processes.placement import Placement
from kraftfast.node.rings.local_door import LocalDoor
from kraftfast.node.rings.ring_peer import RingPeer
from kraftfast.node.rings.ring_peers import RingPeers
from kraftfast.node.tcp.prober import Prober
from kraftfast.node.witness import start_line

if TYPE_CHECKING:
    from kraftfast.node.tcp.sockets import Sockets

SLEEP_MS_MAX = 500
TURNS_BETWEEN_POLLS = 16
PROBE_LOOK_MS = 20
TEND_BUSY_MS = 4
"""While there is work, timers and the like are looked at so often: a client waits for that work."""
Failed = Callable[[Exception], None]
CPU_LATENCY_FILE = "/dev/cpu_dma_latency"


class Loop:
    """Runs a :class:`Node` until it is told to stop. Raises FlushFailed once the log has (D9)."""

    # node: whose loop. handlers: descriptor -> what to call with its events, and with what that
    # raises (None: it is final).
    # _forgotten: unwatched since the events at hand were fetched: a number may be in use again.
    # ring_peers, door: on this host. sockets: the TCP side, None without listeners.
    # resolver: where other hosts are. spin_us: how long to look around before blocking.
    # signals: those that stop it. stop_at_ms: when a graceful end is given up; None while none was
    # asked for.

    def __init__(
        self, node: Node, sockets: type[Sockets] | None = None, peer: type[RingPeer] = RingPeer
    ) -> None:
        if sockets is None and node.config.listeners:  # most replicas of one host have none
            from kraftfast.node.tcp.sockets import Sockets as sockets
        self.node = node
        self.handlers: dict[int, tuple[Callable[[int], object], Failed | None]] = {}
        self._forgotten: set[int] = set()
        self.spin_us = limits.IDLE_SPIN_US[node.config.idle]
        self.ring_peers = RingPeers(node, self, peer)
        self.door = LocalDoor(node, self)
        self.resolver = node.host.resolver()
        self.sockets = sockets(node, self) if sockets and node.config.listeners else None
        node.attach(Prober(node, self), self.sockets)
        self.placement = Placement(node)
        self.stop_at_ms: int | None = None
        self._turns = 0
        self._progress = 0
        self._tended_ms = -1
        self._latency_fd = -1
        if node.config.idle == "poll":
            node.idle.stay_awake(self.spin_us)
            self._latency_fd = _hold_cpu_latency()
        node.background.attach(self)
        self.signals = node.host.signals()
        self.watch(self.signals.fileno(), select.EPOLLIN, lambda _events: self._signalled())

    # --- descriptors ------------------------------------------------------------------------------

    def watch(
        self,
        fd: int,
        events: int,
        handler: Callable[[int], object],
        failed: Failed | None = None,
    ) -> None:
        """Call ``handler(events)`` when the descriptor is ready (level-triggered).

        What it raises goes to ``failed(error)``, which ends the session or raises it again;
        without ``failed`` it ends the replica.
        """
        self.handlers[fd] = handler, failed
        self.node.idle.register(fd, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Wait for other events of a watched descriptor."""
        self.node.idle.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor; to be called before it is closed."""
        if self.handlers.pop(fd, None) is not None:
            self.node.idle.unregister(fd)
            self._forgotten.add(fd)

    def _dispatch(self, ready: list[tuple[int, int]]) -> None:
        self._forgotten.clear()
        for fd, events in ready:
            found = self.handlers.get(fd)
            if found is None or fd in self._forgotten:
                continue
            handler, failed = found
            try:
                handler(events)
            except Exception as error:
                if failed is None:
                    raise
                failed(error)

    def _signalled(self) -> None:
        """Stop here, between two steps, and not wherever the signal was handled."""
        if self.signals.take():
            self.stop()

    # --- the loop ---------------------------------------------------------------------------------

    def stop(self, timeout_ms: int = 5000) -> None:
        """End gracefully: hand over leadership, flush, leave the files tidy."""
        if self.stop_at_ms is None:
            self.stop_at_ms = self.node.now_ms() + timeout_ms
            self.node.step(ev.ShutdownRequested(timeout_ms))

    def run(self) -> None:
        """Run until stopped. The doors are open already.

        The node is closed (or abandoned after a failed flush) when it returns.
        """
        node = self.node
        if node.witness:
            node.tell("witness", text=start_line(node.quorum_config.campaign, node.config))
        start, end = node.log.log_start_offset, node.log.end_offset
        path = node.directory.log_path
        node.tell("log_opened", path=path, log_start_offset=start, end_offset=end)
        try:
            node.start()
            self.ring_peers.start()
            if self.sockets is not None:
                self.sockets.start()
            while not node.stopped:
                if not self.turn():
                    self._rest()
                if self.stop_at_ms is not None and node.now_ms() >= self.stop_at_ms:
                    break
            if node.applier is not None:
                node.applier.end()  # while a flush that fails in it still counts (D9)
        except FlushFailed as error:
            node.tell("flush_failed", why=error)
            self._close_doors()
            node.abandon()
            raise
        node.publish()
        self._close_doors()
        node.close()
        node.event_log.tend(at_once=True)
        node.tell("replica_stopped")

    def _close_doors(self) -> None:
        self.door.close()
        if self.sockets is not None:
            self.sockets.close()

    def turn(self) -> bool:
        """Take what has come; True if there was anything."""
        node = self.node
        self._turns += 1
        worked = node.take_flush()
        for peer in self.ring_peers.peers:
            try:
                worked |= peer.handle()
            except Exception as error:
                peer.failed(error)
        worked |= node.flush_inline()
        if not node.appends_held and (node.ring_producers.waiting() or self._socket_appends()):
            before = node.log.bytes_appended
            node.step(ev.AppendsQueued())
            if node.log.bytes_appended == before:
                node.hold_appends()  # the core takes none now (D14): no reason to ask again at once
            worked = True
            node.flush_inline()
        node.publish()  # before anything that could wait
        now_ms = node.now_ms()
        if now_ms >= self._tended_ms + (TEND_BUSY_MS if worked else 1):
            self._tended_ms = now_ms
            self._tend(now_ms)
            node.publish()
            worked |= node.flush_inline()
        if worked and self._turns % TURNS_BETWEEN_POLLS == 0:
            self._dispatch(node.idle.poll())
        return worked

    def _socket_appends(self) -> bool:
        return self.sockets is not None and self.sockets.appends_waiting()

    def _tend(self, now_ms: int) -> None:
        """Look, once in a while, at timers, the nursery and connections."""
        node = self.node
        if now_ms >= node.core.deadline_ms:
            node.step(ev.Tick())
        node.tend()
        self.placement.tend(now_ms)
        node.show_ends()
        if node.appends_held:
            node.release_appends()
        self.ring_peers.drop_broken()
        if 0 <= self.ring_peers.due_ms <= now_ms:
            self.ring_peers.tend(now_ms)
        self.door.tend(now_ms)
        node.prober.tend(now_ms)
        if self.sockets is not None:
            self.sockets.tend(now_ms)

    def _rest(self) -> None:
        """Spin while something may come soon, then block until something has."""
        node = self.node
        assert not node.flush_wanted, "a turn ends with what it asked for"
        node.idle.mute(node.stalled is not None)
        if self.spin_us and self._in_flight():
            by_sockets = self.sockets is not None and not self.ring_peers.peers
            ready = node.idle.spin(self.spin_us, by_sockets)
            node.woke(node.idle.woke_ns)  # it may not have waited at all
            if ready is not None:
                self._dispatch(ready)
                return
        for peer in self.ring_peers.peers:
            if peer.quiet:
                peer.wake()  # a bare high watermark that no peer has looked at yet
        ready = node.idle.sleep(self._sleep_ms())
        node.woke(node.idle.woke_ns)
        self._dispatch(ready)

    def _in_flight(self) -> bool:
        """Return whether something waits for its commit, or came or was committed since the last
        time.

        A client that waited for a commit goes on at once, mostly. An idle quorum blocks.
        """
        log, committed = self.node.log, self.node.core.high_watermark
        before, self._progress = self._progress, log.bytes_appended + committed
        return before != self._progress or committed < log.end_offset

    def _sleep_ms(self) -> int:
        node = self.node
        now_ms = node.now_ms()
        due = min(node.core.deadline_ms, now_ms + SLEEP_MS_MAX)
        if self.ring_peers.due_ms >= 0:
            due = min(due, self.ring_peers.due_ms)
        if node.appends_held or node.stalled is not None or node.snapshots.is_waiting:
            due = min(due, now_ms + 1)
        if node.prober.probing:
            due = min(due, now_ms + PROBE_LOOK_MS)
        due = min(due, self.door.due_ms(due))
        if self.sockets is not None:
            due = min(due, self.sockets.due_ms(due))
        return max(0, due - now_ms)


def _hold_cpu_latency() -> int:
    """Ask the kernel to keep CPUs from halting (idle=poll); undone when the process ends."""
    try:
        fd = os.open(CPU_LATENCY_FILE, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, (0).to_bytes(4, "little"))
        return fd
    except OSError:
        return -1
