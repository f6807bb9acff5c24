"""What DescribeQuorum says, as Python values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.errors import ErrorCode, NotLeader, RequestRefused
from kraftfast.types import METADATA_PARTITION, ZERO_UUID, Endpoint, Uuid
from kraftfast.wire.messages import DescribeQuorumRequest

if TYPE_CHECKING:
    from kraftfast.wire.frame import WireMessage


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica as the leader sees it. Times: wall-clock milliseconds, -1 if it never fetched."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """What DescribeQuorum says (KIP-595, KIP-836): leader, epoch, and how far everyone is.

    ``target``: the voters that a reassignment is on the way to (KIP-642), None: none is.
    ``ended_target``: that of the last one, if it ended before it got there.
    ``voters_committed``: False while the leader does not know that these voters and this target are
    committed; they may be undone then. Kafka's leaders do not tell: True.
    """

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    target: tuple[int, ...] | None = None
    ended_target: tuple[int, ...] | None = None
    voters_committed: bool = True

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """Ids of the voters, ascending."""
        return tuple(sorted(each.id for each in self.voters))

    def find(self, id: int) -> ReplicaState | None:
        """Return the voter or observer of this id."""
        return next((each for each in (*self.voters, *self.observers) if each.id == id), None)


def kraft_version_of(info: QuorumInfo) -> int:
    """Return the version of the voter set: static voters have no directory id (KIP-853)."""
    return int(all(each.directory_id != ZERO_UUID for each in info.voters))


def check_dynamic(info: QuorumInfo) -> None:
    """Raise RequestRefused if the voters cannot change: kraft.version is 0.

    For callers that make and start a replica before they ask the leader: it would stay, as an
    observer that no operator asked for.
    """
    if kraft_version_of(info) == 0:
        raise RequestRefused(
            "UNSUPPORTED_VERSION: kraft.version is 0: upgrade it to 1 before voters can be added "
            "or removed (kraftfast quorum upgrade --feature kraft.version=1)",
            ErrorCode.UNSUPPORTED_VERSION,
        )


def check_addition(info: QuorumInfo, id: int | None) -> None:
    """Raise RequestRefused if the leader would refuse this replica as one more voter.

    ``id`` None: one that is not there yet.
    """
    check_dynamic(info)
    if id in info.voter_ids:
        raise RequestRefused(f"DUPLICATE_VOTER: {id} is a voter", ErrorCode.DUPLICATE_VOTER)
    if len(info.voters) >= limits.VOTERS_MAX:
        raise RequestRefused(
            f"INVALID_REQUEST: there are {limits.VOTERS_MAX} voters: no more fit",
            ErrorCode.INVALID_REQUEST,
        )


def base_port(info: QuorumInfo) -> int:
    """Return the port such that replica N listens on it + N (``kraftfast start --port``), else 0.

    For callers that make a replica before any process can say where it would listen.
    """
    bases = {each.endpoints[0].port - each.id for each in info.voters if each.endpoints}
    return max(0, bases.pop()) if len(bases) == 1 else 0


def question(topic: str) -> DescribeQuorumRequest:
    """Return a DescribeQuorum of the one partition of a quorum's log."""
    partition = DescribeQuorumRequest.Partition(METADATA_PARTITION)
    return DescribeQuorumRequest([DescribeQuorumRequest.Topic(topic, [partition])])


def read_answer(answer: WireMessage) -> QuorumInfo:
    """Return what it says. Raises NotLeader, RequestRefused."""
    found = [part for topic in answer.topics for part in topic.partitions]
    code = answer.error_code or (
        found[0].error_code if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise NotLeader("the server does not lead")
    if code != ErrorCode.NONE:
        raise RequestRefused(f"the server does not describe the quorum: error {code}", code)
    endpoints = {
        node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
        for node in answer.nodes
    }

    def state(each: WireMessage) -> ReplicaState:
        return ReplicaState(
            each.replica_id,
            each.replica_directory_id,
            each.log_end_offset,
            each.last_fetch_timestamp,
            each.last_caught_up_timestamp,
            endpoints.get(each.replica_id, ()),
        )

    part = found[0]
    target, ended = part.target_voters, part.ended_target
    return QuorumInfo(
        part.leader_id,
        part.leader_epoch,
        part.high_watermark,
        tuple(map(state, part.current_voters)),
        tuple(map(state, part.observers)),
        None if target is None else tuple(sorted(each.replica_id for each in target)),
        None if ended is None else tuple(ended),
        not part.uncommitted_voters,
    )
