"""What a replica uses of its host, so that it runs unchanged on another one.

``host.LocalHost`` is production's. The simulator's (``sim/machines/host.py``) has simulated time, a
simulated disk, and threads that are events.
"""

from __future__ import annotations

from typing import Any, Protocol

from kraftfast.link.ports import Local, Network, Threads
from kraftfast.log.disk import Disk
from kraftfast.node.event_log import Entry


class Host(Protocol):
    """The clocks, the disk, the threads and the sockets of one replica."""

    disk: Disk
    """Every system call on files goes through it."""
    unmap_wait_s: float
    """How long an orderly end waits for the processes that map its segments."""

    network: Network
    """TCP, to clients and replicas of other hosts."""
    local: Local
    """Processes of this host."""
    inline_bytes_max: int
    """Up to here records travel to replicas of this host as bytes, above it as references."""
    threads: Threads
    """What runs beside the loop."""

    def boot_id(self) -> str:
        """Return an id that each boot of the machine changes."""

    def monotonic_ns(self) -> int:
        """Return the time since some moment, nanoseconds; it never falls."""

    def wall_ms(self) -> int:
        """Return the time of day for records, milliseconds since 1970."""

    def seed(self) -> int:
        """Return a number for the replica's random generator that no other start gets."""

    def sleep(self, seconds: float) -> None:
        """Pause the loop; other threads of the replica go on."""

    def open_segment(self, path: str, inode: int) -> Any:
        """Return another replica's segment (``SegmentFile``); None if it is not to be had."""

    def is_kept(self, fd: int) -> bool:
        """Return whether a new descriptor must not be a client's: hardly any is left."""

    def show(self, told: Entry) -> None:
        """Show people an event; never wait for its reader."""

    def doorbell(self) -> Any:
        """Return what wakes the loop (``OwnDoorbell``)."""

    def flusher(self, doorbell: Any) -> Any:
        """Return the thread that flushes the log (``Flusher``). Raises StorageError."""

    def idle(self, doorbell: Any, flusher: Any) -> Any:
        """Return where the loop sleeps (``Idle``)."""

    def preparer(self, doorbell: Any) -> Any:
        """Return the thread that prepares files (``PreparerThread``). Raises StorageError."""

    def background(self) -> Any:
        """Return the thread for jobs that wait for the disk (``Background``)."""

    def resolver(self) -> Any:
        """Return what finds other hosts by their names (``Resolver``)."""

    def signals(self) -> Any:
        """Return the signals of this process (``Signals``)."""

    def embed(self, node: Any, state_machine: str) -> None:
        """Apply what ``node`` commits to a state machine. Raises InvalidOption."""

    def state_machine_failed(self, error: BaseException) -> None:
        """End the process at once: its state machine raised ``error``. Called in its thread."""
