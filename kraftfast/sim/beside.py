"""What runs beside a simulated process's loop, and what the node's parts see of that process.

``kraftfast.node.snapshots`` and ``kraftfast.node.retention`` run here as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftfast.core.events import Event
    from kraftfast.core.replica import Replica
    from kraftfast.sim.process import Process


class SimBeside:
    """One job after the other, each an event of its own: ``kraftfast.node.beside.Beside``."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def ask(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Have ``job()`` run beside the loop, then ``done(result)`` in it."""
        self._jobs.append((job, done))
        if len(self._jobs) == 1:
            self._process.beside_later(self._run)

    def _run(self) -> None:
        job, done = self._jobs[0]
        result = job()
        self._jobs.popleft()
        if self._jobs:
            self._process.beside_later(self._run)
        self._process.enter(done, result)


class Around:
    """What the node's parts know as their node."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.disk, self.directory = process.disk, process.directory
        self.durability, self.witness = process.durability, process.witness
        self.beside = SimBeside(process)
        self.on_role: list[Callable[[Any], None]] = []
        self.on_commit: list[Callable[[int], None]] = []
        self.links: dict[int, Any] = {}  # nobody asks here for ids without a name
        self.applier: Any = None
        self.at_hand: Any = None  # the answer with the slice that came last
        self.now_ms = process.now_ms
        self.step = process.step

    @property
    def core(self) -> Replica:
        """The process's."""
        return self._process.core

    @property
    def log(self) -> Any:
        """The process's."""
        return self._process.log

    def slice_arrived(self, data: bytes) -> None:
        """Bytes of a snapshot, as the wire has them."""
        partition = SimpleNamespace(unaligned_records=data)
        self.at_hand = SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])

    def queue(self, event: Event) -> None:
        """For the core, once what is under way is done."""
        self._process.tell(event)

    def run_events(self) -> None:
        """Now."""
        self._process.go_through()

    def wait_for_flush(self) -> None:
        """The process is blocked until then: see ``Carrying``."""
        assert not self._process.flush.running

    def log_line(self, text: str) -> None:
        """For the trace."""
        self._process.world.trace(f"{self._process.id}: {text}")

    def show(self) -> None:
        """Nobody looks."""
