"""Everything that the core can have done: the result of ``Replica.step(event, now_ms)``.

Effects are carried out in order. ``after`` names the durability that an effect relies on; the node
asserts that it holds (D3, D5), so the rule is visible here and checked there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from kraftfast.core.membership.voter_controls import ControlRecord
from kraftfast.core.messages import (
    BeginQuorumEpochRequest,
    FetchResponse,
    FetchSnapshotResponse,
    Payload,
    Request,
    Response,
    Source,
    VoteRequest,
)
from kraftfast.errors import ErrorCode
from kraftfast.types import Endpoint, OffsetAndEpoch, ReplicaKey, VoterSet


@dataclass(frozen=True)
class Persisted:
    """Quorum-state with at least this epoch is on disk (D5).

    The vote in it is not compared: the effect that writes it must come first.
    """

    epoch: int


@dataclass(frozen=True)
class FlushedTo:
    """The log is on disk up to this exclusive end (D3, D21)."""

    end_offset: int


After = Persisted | FlushedTo | None


class PersistQuorumState(Struct):
    """Write ``quorum-state`` and wait until it is durable (D5).

    The file's ``data_version`` is the ``kraft_version`` in force. ``superseded``: the configured
    voters no longer count (D23). ``was_voter``: the log may no longer tell so.
    """

    epoch: int
    leader_id: int = -1
    voted: ReplicaKey | None = None
    kraft_version: int = 0
    superseded: bool = False
    was_voter: bool = False


@dataclass
class Send:
    """Send a request to a peer; the answer comes back under ``correlation``.

    ``correlation`` 0 is a Fetch of a stream: its answers carry the stream's number instead.
    A ``ReadBarrierRequest`` goes beside the request in flight: not behind a Fetch that is parked.
    """

    peer_id: int
    correlation: int
    request: Request
    after: After = None


@dataclass
class Reply:
    """Answer a request; also a Fetch that is refused, diverges, or needs a snapshot."""

    source: Source
    response: Response
    after: After = None


def election_first(effects: list[Any]) -> list[Any]:
    """Vote and BeginQuorumEpoch leave before ``quorum-state`` is written: they do not rely on it.

    The own vote counts, and the first record of an epoch leaves, only after this step (D5). So
    the candidate and the voters write their files at the same time, not one after the other.
    """
    asks = [each for each in effects if _is_of_election(each)]
    return asks + [each for each in effects if not _is_of_election(each)]


def _is_of_election(effect: Any) -> bool:
    return type(effect) is Send and type(effect.request) in (VoteRequest, BeginQuorumEpochRequest)


@dataclass
class AnswerFetch:
    """Answer a Fetch with the log's bytes from ``read_offset``, at most ``max_bytes`` of them.

    One whole batch is returned even if it is larger; ``read_offset`` -1: no records.
    For a stream (``response.stream``) ``source`` is that of the Fetch which opened it, and every
    answer with ``read_offset`` >= 0 is followed by ``StreamAnswered``. Until then nothing more is
    pushed on that stream.
    """

    source: Source
    response: FetchResponse
    read_offset: int = -1
    max_bytes: int = 0
    # Never beyond: a consumer's high watermark (I20), or for a stream the end that the core knows,
    # for the log may hold more of which Appended is still to come. -1: the log's end.
    end_offset_max: int = -1


@dataclass
class DrainAppends:
    """Copy what producers queued into the log, stamped with ``epoch``; then ``Appended``.

    At most ``max_bytes``, but one whole batch even if it is larger.
    """

    epoch: int
    max_bytes: int


class RefuseAppends(Struct):
    """Tell producers with queued batches that this replica takes none."""

    error: ErrorCode
    leader_id: int


@dataclass
class AppendControl:
    """Append these in one control batch at the log's end; then ``Appended`` with their offsets.

    A ``RoleChanged`` cancels one that still waits for room.
    """

    epoch: int
    records: tuple[ControlRecord, ...]


@dataclass
class WriteFetched:
    """Check and copy the records of a Fetch answer to ``offset``; then ``FetchedWritten``.

    ``payload`` is that of the ``ResponseReceived``. Where the log has no room yet, the node keeps
    it and hands the core no later answer of that peer before ``FetchedWritten``. A ``RoleChanged``
    in between cancels this effect; a broken link does not: what can no longer be read is reported
    as rejected.
    """

    payload: Payload
    epoch: int  # batches of a later epoch, and all after, are not stored (KAFKA-18723)
    offset: int


class Truncate(Struct):
    """Cut the log to ``end_offset`` (D8) and raise its truncation counter to ``truncations``."""

    end_offset: int
    truncations: int


class AnswerSlice(Struct):
    """Answer a FetchSnapshot with at most ``max_bytes`` from ``position``; ``SliceAnswered``
    once they have left, or no longer can.

    The node fills in the size; a position at or behind it is answered POSITION_OUT_OF_RANGE.
    """

    source: Source
    response: FetchSnapshotResponse
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class WriteSlice(Struct):
    """Write a slice to the snapshot that is being fetched; then ``SliceWritten``.

    ``payload`` is that of the ``ResponseReceived``. Position 0 begins a new file. A ``RoleChanged``
    cancels this effect and drops the file.
    """

    payload: Payload
    snapshot_id: OffsetAndEpoch
    position: int
    last: bool


class InstallSnapshot(Struct):
    """Give the fetched snapshot its name, and begin the log again at its end, all durably.

    It was checked when its last slice was written (``WriteSlice``).

    The log's truncation counter becomes ``truncations``. Then ``SnapshotInstalled``.
    """

    snapshot_id: OffsetAndEpoch
    truncations: int


class DeleteBefore(Struct):
    """Let the log begin at ``offset``: segments and snapshots wholly below it may go."""

    offset: int


@dataclass
class Flush:
    """Put everything appended so far on disk; then ``Flushed``. ``inline``: inside the loop."""

    end_offset: int
    inline: bool = False


@dataclass
class AdvanceHighWatermark:
    """Records below ``offset`` are committed."""

    offset: int


@dataclass
class AcknowledgedByAll:
    """Every voter holds the records below ``offset`` on disk (``durability=all``).

    It gates only the producer's answer, together with the high watermark.
    """

    offset: int


class RoleChanged(Struct):
    """Apply the new role. A former leader fails the appends that wait, outcome unknown.

    ``leader_endpoints``: where the leader is, if it is no voter or has moved.
    """

    role: str
    epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...] = ()


class LeaderMoved(Struct):
    """The leader that this replica follows is at these endpoints, not at those known before."""

    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]


class AnswerReadBarrier(Struct):
    """Answer a reader: records below ``offset`` include all that was committed before it asked.

    -1 with an ``error`` if that could not be known in time.
    """

    source: Source
    offset: int
    error: ErrorCode = ErrorCode.NONE


class Probe(Struct):
    """Ask these endpoints of voter ``voter_id`` for ApiVersions; then ``Probed``."""

    probe: int
    voter_id: int
    endpoints: tuple[Endpoint, ...]


class VotersChanged(Struct):
    """Another voter set or ``kraft.version`` is in force: links go where these voters are."""

    kraft_version: int
    voters: VoterSet


class Warn(Struct):
    """Report to operators that this replica refused something."""

    text: str


@dataclass
class Stopped:
    """A graceful shutdown is complete."""


Effect = (
    PersistQuorumState
    | Send
    | Reply
    | AnswerFetch
    | DrainAppends
    | RefuseAppends
    | AppendControl
    | WriteFetched
    | Truncate
    | AnswerSlice
    | WriteSlice
    | InstallSnapshot
    | DeleteBefore
    | Flush
    | AdvanceHighWatermark
    | AcknowledgedByAll
    | RoleChanged
    | LeaderMoved
    | AnswerReadBarrier
    | Probe
    | VotersChanged
    | Warn
    | Stopped
)
