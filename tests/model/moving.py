"""What may move a replica to another epoch, another role, or another set of voters.

No commit is lost where these are broken, so no rule of logs sees it: one replica that was cut off
could depose leaders for ever, a removed one could campaign for ever, and a move of the voters could
stop half-way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import messages as msg
from kraftfast.types import KRaftVoters, ReplicaKey
from tests.model import timeless

if TYPE_CHECKING:
    from tests.model.alone import Lone
    from tests.model.happening import Arrived

LATE = 9
"""The correlation of what nobody waits for (``turns``)."""
ASKING = ("prospective", "candidate")


def moves_as_it_may(host: Lone, arrived: Arrived | None, role: str, epoch: int) -> None:
    """Assert it after a turn; ``role`` and ``epoch``: those before it."""
    replica = host.replica
    if replica is None or role == "down":
        return
    if replica.role in ASKING and role not in ASKING:
        host.world.looked["campaigns"] += 1
        assert may_count(host, ReplicaKey(host.id, host.directory_id)), (
            f"D17: {host.id}, whose removal is committed, campaigns"
        )
    asked = arrived[2].body if arrived is not None and arrived[0] == "ask" else None
    if not isinstance(asked, msg.VoteRequest) or not host.disk.records:
        return  # a disk without a log is moved by whoever shows it a quorum (D23)
    if not replica.epoch == asked.epoch > epoch or replica.role in (*ASKING, "leader"):
        return
    host.world.looked["moved by a vote"] += 1
    if role == "leader":  # that a voter which it does not reach is in a higher epoch
        told = asked.pre_vote and is_named(host, asked.replica)
        assert told, f"L1: a vote deposes {host.id}, which leads, in epoch {asked.epoch}"
        return
    assert not asked.pre_vote, f"L1: a pre-vote moves {host.id} to epoch {asked.epoch}"
    known = is_named(host, asked.replica) or has_granted(host)
    assert known, f"L1: {asked.replica}, which no voters name, moves {host.id}"


def stays_out(host: Lone, effect: fx.Effect) -> None:
    """Assert that a replica which was a voter makes itself none again (KAFKA-19850)."""
    if isinstance(effect, fx.Send) and isinstance(effect.request, msg.AddRaftVoterRequest):
        host.world.looked["adds itself"] += 1
        key = ReplicaKey(host.id, host.directory_id)
        was = host.was_voter or host.disk.history().ever_named(key)
        assert not was, f"KAFKA-19850, D17: {host.id} was removed, and adds itself"


def remember_voting(host: Lone) -> None:
    """Note whether a committed set names this replica: its log may tell no more of it later."""
    if host.replica is not None and not host.was_voter:
        key, known = ReplicaKey(host.id, host.directory_id), host.replica.uncuttable_offset
        host.was_voter = host.disk.history().named_below(key, known)


def may_count(host: Lone, key: ReplicaKey) -> bool:
    """Return whether a set of voters that may be the committed one names that replica."""
    assert host.replica is not None
    sets = host.disk.history().voter_sets
    for offset, record in sets[::-1]:
        if record.voters.is_voter(key):
            return True
        if offset < host.replica.uncuttable_offset:
            return False
    return not sets


def is_named(host: Lone, key: ReplicaKey) -> bool:
    sets, setting = host.disk.history().voter_sets, host.world.setting
    if not sets:  # those of the configuration count, if it names any
        return setting.dynamic or key.id in setting.voters
    return any(record.voters.is_voter(key) for _, record in sets)


def has_granted(host: Lone) -> bool:
    answers = [each.body for each in host.world.out if isinstance(each.body, msg.VoteResponse)]
    return any(each.vote_granted for each in answers)


def keeps_the_target(host: Lone, before: KRaftVoters, after: KRaftVoters) -> None:
    """Assert that a move on the way to a target names it still, until it is reached (KIP-642)."""
    asks = isinstance(host.world.asked, msg.AlterPartitionReassignmentsRequest)
    if before.target is None or asks or sorted(before.target) == sorted(after.voters.ids):
        return
    host.world.looked["moves to a target"] += 1
    assert after.target == before.target, f"D17: {host.id} forgets the target {before.target}"


def ends_its_doubt(host: Lone, event: tuple[Any, ...], arrived: Arrived | None) -> None:
    """Assert that a log which reaches as far again as it may have gone is in doubt no more (D10).

    That is noticed as a process starts, and with the leader's next answer after the flush.
    """
    replica, lost, disk = host.replica, host.phantom, host.disk
    if replica is None or lost is None or host.world.setting.in_memory:
        return
    end = disk.flushed
    last = (disk.records[end - 1].epoch if end else 0), end
    if last < (lost.epoch, lost.offset) or replica.role != "follower" and event[0] != "start":
        return
    if event[0] != "start" and not is_taken(host, arrived):
        return
    host.world.looked["doubt is over"] += 1
    assert not replica.in_doubt, f"D10: {host.id} has {last}, and is in doubt about {lost}"


def is_taken(host: Lone, arrived: Arrived | None) -> bool:
    """Return whether an answer of the leader was for the stream, or the Fetch, under way."""
    if arrived is None or arrived[0] not in ("push", "answer") or arrived[1] == LATE:
        return False
    body, replica = arrived[2].body, host.replica
    if not isinstance(body, msg.FetchResponse) or replica is None or body.error:
        return False
    if body.partition_error or body.diverging is not None or body.snapshot_id is not None:
        return False
    follower = timeless.state_of(replica).follower
    streams = follower is not None and follower.stream == body.stream
    return streams and body.leader_epoch == replica.epoch
