"""What a replica uses of its host, so that it runs unchanged on another one.

``local_host.LocalHost`` is production's. The simulator's (``sim/machines/sim_host.py``) has
simulated time, a simulated disk, and threads that are events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from kraftfast.link.host_ports import Local, Network, Threads
from kraftfast.log.disk import Disk
from kraftfast.node.event_log import Entry

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from kraftfast.core.messages import Request
    from kraftfast.link.resolver import Resolver
    from kraftfast.log.segment_file import SegmentFile
    from kraftfast.node.idle import Idle
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node
    from kraftfast.node.node_config import NodeConfig
    from kraftfast.node.tcp.session import Session
    from kraftfast.node.threads.background import Background
    from kraftfast.node.threads.flusher import Flusher
    from kraftfast.types import OffsetAndEpoch
    from kraftfast.wire.messages import InitProducerIdRequest
    from kraftfast.wire.schema import Message


class Source(Protocol):
    """What a request came from: it takes the answer, or what answering raised."""

    def failed(self, error: Exception) -> None:
        """End this session alone. Raise ``error`` if it is final."""

    def reply(self, response: Any) -> object:
        """Answer with a core response, or a ``Slice``; False: there is no room for it yet."""


class SliceSource(Source, Protocol):
    """What asked for a slice of a snapshot: a ``SessionRequest`` or a ``RingRequest``."""

    @property
    def slice_bytes_max(self) -> int:
        """How much it takes at once."""

    @property
    def session(self) -> Session | None:
        """The connection that its answer leaves over, None once it has gone, and of a ring."""


class Asking(Protocol):
    """A request of Kafka's that is answered with a message of Kafka's, once."""

    version: int

    def failed(self, error: Exception) -> None:
        """End its session alone. Raise ``error`` if it is final."""

    def respond(self, body: Message) -> object:
        """Answer with a wire message."""


class AskingOperator(Asking, Source, Protocol):
    """A request of an operator, over TCP or through the door for processes of this host."""

    api_key: int

    @property
    def listener(self) -> str:
        """Whose addresses are given out."""

    @property
    def software(self) -> str:
        """What its client says of itself, "" if nothing."""


class Link(Protocol):
    """What leads to another replica: a ``RingPeer`` or a ``SocketPeer``."""

    def send_request(self, correlation: int, request: Request | InitProducerIdRequest) -> bool:
        """Send a request; False if it cannot go out now."""

    def publish(self) -> None:
        """Make visible what was sent."""

    def failed(self, error: Exception) -> None:
        """End this link alone for what it raised. Raise ``error`` if it is final."""

    def close(self) -> None:
        """Hang up."""


class Preparer(Protocol):
    """The thread that prepares files; the nursery knows what else it can."""

    def close(self) -> None:
        """End it."""


class Signals(Protocol):
    """The signals of one process."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when a signal came."""

    def handle(self) -> None:
        """Record the signals that stop the replica from now on; called in the main thread."""

    def take(self) -> bool:
        """Forget the signals that came; True if one of them stops the replica."""


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

    def monotonic_ns(self) -> int:
        """Return the time since some moment, nanoseconds; it never falls."""

    def wall_ms(self) -> int:
        """Return the time of day for records, milliseconds since 1970."""

    def memory_bytes(self) -> int:
        """Return the memory of this process beside mapped files (RssAnon)."""

    def seed(self) -> int:
        """Return a number for the replica's random generator that no other start gets."""

    def sleep(self, seconds: float) -> None:
        """Pause the loop; other threads of the replica go on."""

    def open_segment(self, path: str, inode: int) -> SegmentFile | None:
        """Return another replica's segment; None if it is not to be had."""

    def is_kept(self, fd: int) -> bool:
        """Return whether a new descriptor must not be a client's: hardly any is left."""

    def run_on(self, processors: Sequence[int]) -> None:
        """Have every thread of this process run on these processors, where it may."""

    def show(self, told: Entry) -> None:
        """Show people an event; never wait for its reader."""

    def doorbell(self) -> Any:
        """Return what wakes the loop (``OwnDoorbell``)."""

    def flusher(self, doorbell: Any) -> Flusher:
        """Return the thread that flushes the log. Raises StorageError."""

    def idle(self, doorbell: Any, flusher: Flusher) -> Idle:
        """Return where the loop sleeps."""

    def preparer(self, doorbell: Any) -> Preparer:
        """Return the thread that prepares files. Raises StorageError."""

    def background(self) -> Background:
        """Return the thread for jobs that wait for the disk."""

    def resolver(self) -> Resolver:
        """Return what finds other hosts by their names."""

    def signals(self) -> Signals:
        """Return the signals of this process."""

    def embed(self, node: Node, state_machine: str) -> None:
        """Apply what ``node`` commits to a state machine. Raises InvalidOption."""

    def state_machine_failed(self, error: BaseException, at: OffsetAndEpoch | None) -> None:
        """End the process at once: its state machine raised ``error``. Called in its thread.

        ``at``: where the batch begins that it was applying.
        """


class OwnProcess(Protocol):
    """The process that a worker is, from its first descriptor to its exit code.

    ``local_host.KernelProcess`` is production's.
    """

    def open_socket(self, fd: int) -> socket.socket:
        """Return the socket that this process was started with."""

    def ignore_terminal(self) -> None:
        """Have no terminal stop this process because it writes to it."""

    def is_one_thread(self) -> bool:
        """Return whether no other thread could hold a lock, so that it may fork. Raises OSError."""

    def fork_sibling(self, run: Callable[[OwnProcess], int]) -> int:
        """Return the process id of another child of our parent, which exits with ``run(itself)``.

        Raises OSError.
        """

    def write(self, fd: int, data: bytes) -> object:
        """Send one message over a socket that this process was started with. Raises OSError."""

    def close(self, fd: int) -> None:
        """Close a descriptor that another process keeps."""

    def node(self, config: NodeConfig, show: Callable[[Entry], None]) -> Node:
        """Return the replica, which shows events by ``show``. Raises StorageError, OSError."""

    def loop(self, node: Node) -> Loop:
        """Return its loop. Raises OSError."""

    def parent_of(self, sock: socket.socket) -> int:
        """Return a descriptor that is readable once the supervisor has ended. Raises PeerGone."""

    def settle(self) -> None:
        """Record that what a start makes is there, and stays."""

    def unread_bytes(self, sock: socket.socket) -> int:
        """Return how much the other end of a socket has not read yet. Raises OSError."""

    def write_line(self, text: str) -> None:
        """Write a line to stderr, or drop it; never wait for its reader."""

    def exit_at_once(self, code: int) -> NoReturn:
        """End without a destructor."""
