"""Everything that can happen to a replica: the argument of ``Replica.step(event, now_ms)``.

``source`` and ``payload`` values are opaque to the core. It returns the source of a request in the
effect that answers it, and the payload of a response in the effect that writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from kraftfast.core.membership.voter_controls import VoterControls
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.messages import Payload, Source
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, OffsetAndEpoch, Uuid


@dataclass
class Tick:
    """Time has passed; due at the latest at ``Replica.deadline_ms``."""


class LinkUp(Struct):
    """A link to a peer is ready. ``streaming``: a ring, so Fetch may be pipelined.

    Also sent when a link was replaced by a fresh one: streams must be opened again (D3). Requests
    that wait for the first link to stand (sockets) may go out over it; all others are given up.
    """

    peer_id: int
    streaming: bool = False
    pre_vote: bool = True  # the peer's Vote reaches v2
    directory_id: Uuid = ZERO_UUID  # of the peer, if the link says so


class LinkDown(Struct):
    """The link to a peer broke. It says nothing about whether the peer lives."""

    peer_id: int


class PeerEnded(Struct):
    """The kernel says that the peer's process is gone: pidfd, refused or closed at once."""

    peer_id: int


@dataclass
class RequestReceived:
    """A peer (or a stranger) asks."""

    source: Source
    request: Any  # a Request; its handler is chosen by its type


@dataclass
class ResponseReceived:
    """A peer answered the request that ``Send`` numbered ``correlation``.

    For streams ``correlation`` is 0 and the response's ``stream`` tells.
    """

    peer_id: int
    correlation: int
    response: Any  # a Response; its handler is chosen by its type
    payload: Payload = None  # where its records, or its bytes of a snapshot, are


class RequestFailed(Struct):
    """A request was not answered.

    BROKER_NOT_AVAILABLE: the link broke or never stood. UNSUPPORTED_VERSION: no version in common,
    or a field does not fit it, as a pre-vote to a peer whose Vote ends below v2.
    """

    peer_id: int
    correlation: int
    error: ErrorCode


@dataclass
class AppendsQueued:
    """Producers have batches waiting.

    The core remembers it: where it may not drain now (D14), ``DrainAppends`` comes later unasked.
    """


@dataclass
class Appended:
    """The log wrote batches as leader of ``epoch`` (after DrainAppends or AppendControl).

    Reported after every DrainAppends, with the old end and 0 bytes if nothing could be taken.
    ``controls``: the KRaftVersion and KRaftVoters records among them.
    """

    epoch: int
    end_offset: int
    bytes: int
    controls: VoterControls = ()


@dataclass
class FetchedWritten:
    """The log wrote the records of a Fetch answer (after WriteFetched).

    ``epochs`` are the changes of the epoch trail, (epoch, start offset) in order. ``rejected`` is
    True if the rest of the answer failed a check (D20) or found no room: nothing of that rest was
    kept, and it is fetched again. ``controls``: the KRaftVersion and KRaftVoters records among what
    was kept.
    """

    end_offset: int
    bytes: int
    epochs: tuple[tuple[int, int], ...] = ()
    rejected: bool = False
    controls: VoterControls = ()


@dataclass
class Flushed:
    """Everything below ``end_offset`` is on disk.

    That may be less than the log's end as of when the flush began. ``truncations``: the log's
    counter then (D1, D2), so that a completion from before a cut is known as such.
    """

    end_offset: int
    truncations: int


@dataclass
class StreamAnswered:
    """A pushed answer with records went out up to ``end_offset`` (after AnswerFetch on a stream).

    ``end_offset`` is where the answer begins if the ring had no room for it.
    """

    replica_id: int
    stream: int
    end_offset: int


class SnapshotCreated(Struct):
    """A snapshot of the records below ``snapshot_id.offset``, made here, is on disk: the state
    machine's, or that of retention where there is no state machine.

    ``Replica.may_create_snapshot`` was asked first.
    """

    snapshot_id: OffsetAndEpoch


class RetentionDue(Struct):
    """The log may begin where this snapshot ends: what is below is not to be kept any longer.

    ``urgent``: the disk is full, or the log has far outgrown its limit, so that nothing is kept for
    replicas that fetch a snapshot.
    """

    snapshot_id: OffsetAndEpoch
    urgent: bool = False


class SliceAnswered(Struct):
    """What one ``AnswerSlice`` asked for has left this process, or never will."""


class SliceWritten(Struct):
    """A slice of a snapshot was written up to ``end_position`` (after WriteSlice).

    ``rejected``: it could not be, or the whole failed its check: the file is dropped.
    """

    snapshot_id: OffsetAndEpoch
    end_position: int
    rejected: bool = False


class SnapshotInstalled(Struct):
    """The snapshot stands in place of the log (after InstallSnapshot).

    ``history``: its KRaftVersion and KRaftVoters records, filed at its end offset less one.
    ``rejected``: it could not be put in place and was dropped; the log is as it was.
    """

    snapshot_id: OffsetAndEpoch
    history: VoterHistory
    rejected: bool = False


class Probed(Struct):
    """What ``Probe`` number ``probe`` found: the ``kraft.version`` range of an ApiVersions answer.

    -1: the answer had none. REQUEST_TIMED_OUT or another error: no answer, or not by that voter.
    """

    probe: int
    error: ErrorCode = ErrorCode.NONE
    kraft_version_min: int = -1
    kraft_version_max: int = -1


class ResignRequested(Struct):
    """The state machine or an operator asks the leader of ``epoch`` to step down.

    An older epoch is ignored; ``step`` raises ``InvalidOption`` for a negative or later one and
    ``NotLeader`` where this replica does not lead.
    """

    epoch: int


class TransferRequested(Struct):
    """An operator asks the leader to hand over to a voter, -1: to the one with the longest log.

    Answered by a ``Reply`` with ``TransferResponse`` to ``source``. ``in_any_case``: it resigns in
    the end, though that voter may not have all of its log.
    """

    source: Source
    target_id: int = -1
    in_any_case: bool = False


class ReadBarrierRequested(Struct):
    """A reader wants to see all that is committed now: answered by ``AnswerReadBarrier``."""

    source: Source
    timeout_ms: int = 2000


class ShutdownRequested(Struct):
    """Graceful end: a leader hands over before it goes."""

    timeout_ms: int = 5000


Event = (
    Tick
    | LinkUp
    | LinkDown
    | PeerEnded
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | AppendsQueued
    | Appended
    | FetchedWritten
    | Flushed
    | StreamAnswered
    | SnapshotCreated
    | RetentionDue
    | SliceAnswered
    | SliceWritten
    | SnapshotInstalled
    | Probed
    | ResignRequested
    | TransferRequested
    | ReadBarrierRequested
    | ShutdownRequested
)
