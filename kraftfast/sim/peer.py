"""One end of a ring, as the effects of the node know it: its ``MeshPeer``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.core.messages import FetchResponse, Request
from kraftfast.errors import MalformedFrame
from kraftfast.node.diverging import check_cut

if TYPE_CHECKING:
    from kraftfast.sim.network import Link, Message
    from kraftfast.sim.process import Process
    from kraftfast.sim.records import Records


class SimPeer:
    """Another replica, at the other end of ``link``."""

    kraft_versions = (limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX)

    # records: those of the answer at hand, until they are copied.

    def __init__(self, process: Process, link: Link) -> None:
        self.process, self.link = process, link
        self.leader = link.other(process)  # of answers with records
        self.id = self.leader.id
        self.records: Records | None = None

    def send_request(self, correlation: int, request: Request) -> bool:
        """Send a request; False if it cannot go out now."""
        return self.link.ask(self.process, correlation, request)

    def take(self, message: Message) -> None:
        """Handle an answer: the core is told, unless it names a cut that fits no batch here."""
        process = self.process
        if isinstance(message.body, FetchResponse) and message.body.diverging is not None:
            try:
                check_cut(process.core, process.log, message.body)
            except MalformedFrame as error:
                self.failed(error)
                return
        if isinstance(message.records, bytes):
            process.at_hand = _as_on_the_wire(message.records)
        elif message.records is not None:
            self.records, process.at_hand = message.records, self
        process.step(ev.ResponseReceived(self.id, message.correlation, message.body))

    def copy_records(self, log: Any, epoch: int, stats: Any) -> tuple[bool, bool]:
        """Copy the records at hand into the log: (all taken, a part rejected)."""
        assert self.records is not None
        return self.records.copy(self.process, epoch)

    def failed(self, error: Exception) -> None:
        """End the link for bytes of the other side's. Raise everything else."""
        if not isinstance(error, MalformedFrame):
            raise error
        self.process.world.count("links ended by a wrong cut")
        first, second = sorted(end.id for end in self.link.ends)
        self.process.world.network.reset((first, second))

    def resume(self) -> None:
        """Read on: a copy does not wait for room any more."""
        self.process.world.later(1, self.process.read_on)

    def publish(self) -> None:
        """What was sent is on its way already."""

    def close(self) -> None:
        """The network ends links."""


def _as_on_the_wire(data: bytes) -> Any:
    """The bytes of a slice in the message that they came in."""
    partition = SimpleNamespace(unaligned_records=data)
    return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])
