"""The link to each peer, and the request in flight to it.

Kafka's ``RequestManager``: at most one request in flight per peer, late answers dropped by their
correlation id, a pause after a failure. Peers are voters, leaders outside the set, and bootstrap
servers, which have ids below -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftfast.core.log_view import NEVER_MS
from kraftfast.types import ZERO_UUID, Endpoint, Uuid


@dataclass(eq=False)
class Peer:
    """One peer as this replica sees it."""

    id: int
    correlation: int = 0  # of the request in flight, 0 if there is none
    is_fetch: bool = False  # that request is a Fetch
    deadline_ms: int = NEVER_MS  # when the request in flight is given up
    ready_at_ms: int = 0  # the peer is left alone until then
    up: bool = False  # a link stands
    streaming: bool = False  # that link is a ring: Fetch may be pipelined
    pre_vote: bool = True  # the peer's Vote reaches v2, as far as is known
    ended: bool = False  # the kernel reported that the process ended; nothing came from it since
    directory_id: Uuid = ZERO_UUID  # from the hello of its link, zero while that is not known
    ended_at: tuple[Endpoint, ...] = ()  # where it was then

    def due_ms(self) -> int:
        """Return when something is to be done about this peer: now (0), at a time-out, after a
        pause.
        """
        return self.deadline_ms if self.correlation else self.ready_at_ms


@dataclass(eq=False)
class RequestManager:
    """All peers. Invariants: at most one request in flight per peer, and one Fetch overall."""

    request_timeout_ms: int  # an unanswered request is given up after this
    retry_backoff_ms: int  # and the peer left alone for this long after a failure
    next_correlation: int = 1  # of the next request; 1 and above, 0 means a stream
    fetching: Peer | None = None  # the peer that a Fetch is in flight to
    _peers: dict[int, Peer] = field(default_factory=dict)

    def peer(self, peer_id: int) -> Peer:
        """Return the peer of this id, remembered from now on."""
        peer = self._peers.get(peer_id)
        if peer is None:
            peer = self._peers[peer_id] = Peer(peer_id)
        return peer

    def is_ready(self, peer_id: int, now_ms: int) -> bool:
        """Return whether a request may go: none is in flight and no pause is on."""
        peer = self._peers.get(peer_id)
        return peer is None or (peer.correlation == 0 and now_ms >= peer.ready_at_ms)

    def is_ended(self, peer_id: int) -> bool:
        """Return whether the peer's process is known to be gone."""
        peer = self._peers.get(peer_id)
        return peer is not None and peer.ended

    def note_place(self, peer_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """Record where a message says the peer is: elsewhere it may run, though it ended where it
        was.
        """
        peer = self._peers.get(peer_id)
        if peer is not None and peer.ended and endpoints and endpoints != peer.ended_at:
            peer.ended = False

    def note_life(self, peer_id: int) -> None:
        """Record that the peer has sent something: if it ended, it was started again since."""
        peer = self._peers.get(peer_id)
        if peer is not None:
            peer.ended = False

    def is_up(self, peer_id: int) -> bool:
        """Return whether a link to the peer stands."""
        peer = self._peers.get(peer_id)
        return peer is not None and peer.up

    def directory_of(self, peer_id: int) -> Uuid:
        """Return the directory id that the peer's link told, zero if none did."""
        peer = self._peers.get(peer_id)
        return ZERO_UUID if peer is None else peer.directory_id

    def due_ms(self, peer_id: int) -> int:
        """Return when something is to be done about the peer, 0 for at once."""
        peer = self._peers.get(peer_id)
        return 0 if peer is None else peer.due_ms()

    def sent(self, peer_id: int, now_ms: int, is_fetch: bool = False) -> int:
        """Record a request to the peer; return its correlation id."""
        peer = self.peer(peer_id)
        assert peer.correlation == 0, f"a request to {peer_id} is already in flight"
        correlation = self.next_number()
        peer.correlation = correlation
        peer.is_fetch = is_fetch
        peer.deadline_ms = now_ms + self.request_timeout_ms
        if is_fetch:
            assert self.fetching is None, "one Fetch at a time"
            self.fetching = peer
        return correlation

    def next_number(self) -> int:
        """Return a correlation id; of a request beside the one in flight, if used alone."""
        correlation = self.next_correlation
        self.next_correlation = correlation + 1 if correlation < 2**31 - 1 else 1
        return correlation

    def answered(self, peer_id: int, correlation: int) -> bool:
        """Record an answer; return False if no request waits for it."""
        peer = self._peers.get(peer_id)
        if peer is None or correlation == 0 or peer.correlation != correlation:
            return False
        self._settle(peer)
        return True

    def back_off(self, peer_id: int, now_ms: int) -> None:
        """Leave the peer alone for a while: a request failed."""
        peer = self.peer(peer_id)
        self._settle(peer)
        peer.ready_at_ms = now_ms + self.retry_backoff_ms

    def expire(self, now_ms: int) -> None:
        """Give up what was not answered in time."""
        for peer in self._peers.values():
            if peer.correlation and now_ms >= peer.deadline_ms:
                self.back_off(peer.id, now_ms)

    def reset(self, keep: Iterable[int]) -> None:
        """Drop late answers and pauses: the role changed.

        Peers that are neither in ``keep`` nor linked are forgotten, so that strangers who name
        leaders cannot fill the memory (I25).
        """
        kept = set(keep)
        for peer_id, peer in list(self._peers.items()):
            self._settle(peer)
            peer.ready_at_ms = 0
            if peer_id not in kept and not peer.up:
                del self._peers[peer_id]

    def link_up(
        self, peer_id: int, streaming: bool, pre_vote: bool, directory_id: Uuid = ZERO_UUID
    ) -> None:
        """Record a link. If it replaces one, or is a ring, nothing sent before is answered.

        What was sent while none stood is kept: it may go out over this one.
        """
        peer = self.peer(peer_id)
        if peer.up or streaming:
            self._settle(peer)
        peer.ready_at_ms = 0
        peer.up = True
        peer.streaming = streaming
        peer.pre_vote = pre_vote
        peer.ended = False
        peer.directory_id = directory_id

    def link_down(self, peer_id: int, now_ms: int) -> None:
        """Record that the link broke, and with it what was in flight."""
        peer = self.peer(peer_id)
        peer.up = False
        peer.streaming = False
        peer.directory_id = ZERO_UUID
        if peer.correlation:
            self.back_off(peer_id, now_ms)

    def _settle(self, peer: Peer) -> None:
        """Record that no request is in flight to this peer."""
        peer.correlation = 0
        peer.deadline_ms = NEVER_MS
        if self.fetching is peer:
            self.fetching = None

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        in_flight = [peer for peer in self._peers.values() if peer.correlation and peer.is_fetch]
        assert len(in_flight) <= 1
        assert (self.fetching is not None) == (len(in_flight) == 1)
        assert self.fetching is None or self.fetching is in_flight[0]
