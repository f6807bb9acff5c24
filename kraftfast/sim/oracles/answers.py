"""L2: every request that a replica takes is answered, as long as the way to its asker stands.

Answers leave a connection in the order of the requests, so one that never comes keeps back all
behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.node.rings.ring_peer import RingPeer, RingRequest
from kraftfast.node.tcp.session import SessionRequest
from kraftfast.sim.require import require
from kraftfast.wire.messages import ApiKey

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process

ASKS = ev.RequestReceived, ev.TransferRequested, ev.ReadBarrierRequested
TURN_MS = 100
"""How much later than asked a replica that is at rest may answer."""


class Answers:
    """What one process was asked, and has not answered yet."""

    # _asked: source -> what was asked, and until when it may wait, in ms of the process. A source
    # is kept here, so that no other one gets its id meanwhile.

    def __init__(self, process: Process) -> None:
        self.process = process
        self._asked: dict[int, tuple[Any, Any, int]] = {}

    def asked(self, event: ev.Event) -> None:
        """Note what the core is asked. A Fetch of a stream is answered as often as it likes."""
        if isinstance(event, ASKS) and not isinstance(event.source, RingPeer):
            what = event.request if type(event) is ev.RequestReceived else event
            until_ms = self.process.now_ms() + self._patience_ms(what) + TURN_MS
            self._asked[id(event.source)] = event.source, what, until_ms

    def answered(self, source: Any) -> None:
        """Note that the core has answered."""
        self._asked.pop(id(source), None)

    def waiting(self) -> list[tuple[Any, Any, int]]:
        """Return source, question and time of all that nothing was said to yet."""
        waiting = [each for each in self._asked.values() if self._is_reached(each[0])]
        sockets = self.process.sockets
        sessions = () if sockets is None else sockets.sessions
        for request in [each for session in sessions for each in session.asked]:
            is_of_core = id(request) in self._asked or request.api_key == ApiKey.FETCH
            if not request.done and not is_of_core:  # a consumer's Fetch waits as long as it says
                waiting.append((request, ApiKey(request.api_key), 0))
        return waiting

    def check(self, before: list[tuple[Any, Any, int]]) -> None:
        """Check that nothing of what waited ``before`` the quorum was at rest waits still."""
        now_ms, waiting = self.process.now_ms(), {id(each[0]) for each in self.waiting()}
        for source, what, until_ms in before:
            is_late = id(source) in waiting and now_ms >= until_ms
            require(not is_late, f"L2: {self.process.id} does not answer {what}")

    def _patience_ms(self, what: Any) -> int:
        """Return how long an answer may take: a Fetch waits for records."""
        wait_ms = getattr(what, "max_wait_ms", 0)
        return int(max(getattr(what, "timeout_ms", 0), min(wait_ms, self._fetch_timeout_ms)))

    @property
    def _fetch_timeout_ms(self) -> int:
        return self.process.quorum_config.fetch_timeout_ms

    def _is_reached(self, source: Any) -> bool:
        """Return whether an answer could reach the sender of the request."""
        if isinstance(source, RingRequest):
            return self.process.links.get(source.peer.id) is source.peer
        return not isinstance(source, SessionRequest) or source.session is not None
