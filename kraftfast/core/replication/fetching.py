"""How a replica that does not lead finds the leader, fetches from it, and acknowledges.

Its Fetch offset is its acknowledgement, so no Fetch of any kind leaves with an offset that is not
on disk (D3, I11); over a stream the read cursor may run ahead of it, within one epoch.
"""

from __future__ import annotations

from typing import Any

from kraftfast import limits
from kraftfast.core.effects import FlushedTo, Send
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership.joining import is_asking, tend_membership
from kraftfast.core.messages import FetchRequest
from kraftfast.core.replication.flush_policy import flush_follower
from kraftfast.core.replication.follower import Follower
from kraftfast.core.roles import Role
from kraftfast.core.snapshots.download import fetch_slice
from kraftfast.core.state import QuorumState

UNATTACHED = Role.UNATTACHED  # looked up far faster than an enum's member


def fetch_next(state: QuorumState, now_ms: int) -> None:
    """Send the next Fetch, or open a stream, if it is time; flush first if that is needed."""
    follower = state.follower
    if follower is None and state.role is not UNATTACHED:
        return
    if state.writing or state.peers.fetching is not None or now_ms < state.fetch_at_ms:
        return
    if follower is not None:
        if follower.stream:
            return
        if follower.download is not None:
            fetch_slice(state, follower.download, now_ms)
            return
        tend_membership(state, follower, now_ms)  # first: a parked Fetch occupies the connection
        if is_asking(state, follower):
            return
    if state.log.ackable_end_offset() < state.log.end_offset:
        flush_follower(state)  # D3: whenever a stream is opened, too
        return
    target = choose_target(state, now_ms)
    if target is None:
        return
    if follower is not None and target == state.leader_id:
        if state.peers.peer(target).streaming and not state.ask_others:
            open_stream(state, follower, now_ms)
            return
        state.ask_others = False  # L1: no answer on a stream says what disk and voters a leader has
    correlation = state.peers.sent(target, now_ms, is_fetch=True)
    send_fetch(state, target, correlation, fetch_request(state, 0, False))


def send_keep_alive(state: QuorumState, now_ms: int) -> None:
    """Send a Fetch to show the leader that this replica is alive while it writes a snapshot.

    A leader resigns if no majority fetches, and the download would begin again under the next
    leader. A snapshot that takes long to check would never be installed (L5).
    """
    leader_id = state.leader_id
    if state.peers.fetching is None and state.peers.is_ready(leader_id, now_ms):
        correlation = state.peers.sent(leader_id, now_ms, is_fetch=True)
        send_fetch(state, leader_id, correlation, fetch_request(state, 0, False))


def choose_target(state: QuorumState, now_ms: int) -> int | None:
    """Return the leader; while it is unknown or silent, any bootstrap server, at random."""
    peers = state.peers
    leader_id = state.leader_id if state.follower is not None else None
    leader_ready = leader_id is not None and peers.is_ready(leader_id, now_ms)
    if leader_ready and not state.ask_others:
        return leader_id
    ready = [
        peer_id
        for peer_id in bootstrap_ids(state)
        if peer_id != leader_id and peers.is_ready(peer_id, now_ms)
    ]
    if ready:
        state.ask_others = False
        return state.random.choice([id for id in ready if id in state.unheard] or ready)
    return leader_id if leader_ready else None


def bootstrap_ids(state: QuorumState) -> list[int]:
    """Return the ids to ask for the leader: bootstrap servers, and the voters as known here.

    Kafka asks bootstrap servers alone, and is stuck where none of them is still a voter
    (KAFKA-19354).
    """
    ids = dict.fromkeys((*state.config.bootstrap_ids, *state.voters.ids))
    return [peer_id for peer_id in ids if peer_id != state.local.id]


def fetch_due_ms(state: QuorumState, current: Any) -> int:
    """Return when ``fetch_next`` has something to do, as far as time decides it."""
    follower = state.follower
    if follower is not None and follower.download is not None:
        if follower.download.busy:
            return NEVER_MS
        return max(state.peers.due_ms(state.leader_id), state.fetch_at_ms)
    if state.writing or state.log.flushing:
        return NEVER_MS
    if follower is not None and follower.stream:
        return NEVER_MS
    if follower is not None and is_asking(state, follower):
        return state.peers.due_ms(state.leader_id)
    if state.peers.fetching is not None:
        return state.peers.fetching.deadline_ms
    targets = bootstrap_ids(state)
    if follower is not None:
        targets.append(state.leader_id)
    due_ms = min([state.peers.due_ms(peer_id) for peer_id in targets], default=NEVER_MS)
    return max(due_ms, state.fetch_at_ms)


def open_stream(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Open a stream at the log's end, which must be on disk (D3). The leader validates that end."""
    follower.stream = state.next_stream
    state.next_stream += 1
    follower.stream_deadline_ms = now_ms + state.config.request_timeout_ms
    send_fetch(state, state.leader_id, 0, fetch_request(state, follower.stream, True))


def update_stream(state: QuorumState, follower: Follower) -> None:
    """Send both cursors: what is on disk (acknowledged) and what was copied (flow control)."""
    send_fetch(state, state.leader_id, 0, fetch_request(state, follower.stream, False))


def fetch_request(state: QuorumState, stream: int, opens: bool) -> FetchRequest:
    """Return a Fetch of the present epoch that acknowledges what is on disk."""
    log = state.log
    request = FetchRequest(
        state.epoch,
        state.local,
        log.ackable_end_offset(),
        log.last_epoch(),
        state.high_watermark,
        state.config.fetch_max_wait_ms,
        state.config.fetch_max_bytes,
        stream,
        opens,
        log.end_offset if stream else -1,
        log.in_memory,
        state.cluster_id,
    )
    if state.tells_endpoints and (opens or not stream):
        request.observer_endpoints = state.config.endpoints
        request.observer_kraft_versions = (limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX)
    return request


def send_fetch(state: QuorumState, peer_id: int, correlation: int, request: FetchRequest) -> None:
    """Send a Fetch; the node asserts that its offset is on disk (D3)."""
    after = None if request.in_memory else FlushedTo(request.fetch_offset)
    state.effects.append(Send(peer_id, correlation, request, after))


def retry_later(state: QuorumState, now_ms: int, peer_id: int | None = None) -> None:
    """Pause before the next Fetch, twice as long after each failure in a row (L7).

    ``peer_id``: the peer that failed. If it is the leader, another replica is asked next.
    """
    state.ask_others = peer_id == state.leader_id
    pause_ms = state.config.retry_backoff_ms << min(state.fetch_failures, 16)
    state.fetch_failures += 1
    state.fetch_at_ms = now_ms + min(pause_ms, state.config.fetch_max_wait_ms)


def close_stream(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Ignore what still comes on the open stream; another is opened after a pause."""
    follower.stream = 0
    follower.stream_deadline_ms = NEVER_MS
    retry_later(state, now_ms)
