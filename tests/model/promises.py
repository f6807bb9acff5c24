"""What one replica must keep to in each of its states, whatever the others do.

The core asserts its own invariants and the host those of effects; these are what both leave out:
what a process must do about its disk (D13, D14), what it may believe of it (I11), what it derives
from its log (D22), which logs it may vote for (D10, D21, I21), with which vote written (I10), and
when it may change the voters, and on which disks it may count then (D17, D19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core.messages import FetchRequest
from kraftfast.types import LeaderChange
from tests.model import timeless
from tests.model.bounds import stay_small

if TYPE_CHECKING:
    from kraftfast.core.messages import Request, VoteRequest, VoteResponse
    from kraftfast.types import ReplicaKey, VoterSet
    from tests.model.alone import Lone

WAITS_FOR_NOTHING = ("prospective", "candidate", "resigned")
"""Roles in which there is nothing that a flush could wait for (D14)."""


def keep_promises(host: Lone, event: tuple[Any, ...], role: str) -> None:
    """Assert what must hold after an event; ``role``: the one before it."""
    replica, looked = host.replica, host.world.looked
    if replica is None:
        return
    disk = host.disk
    assert replica.flushed_end_offset <= disk.flushed, (
        f"I11, D2: {replica.flushed_end_offset} counts as flushed, {disk.flushed} is"
    )
    derive(host)
    stay_small(host)
    waits_for_no_gone_disk(host)
    idle = host.flushing is None and disk.flushed < len(disk.records)
    if replica.role in WAITS_FOR_NOTHING and not host.world.setting.in_memory:
        looked["unflushed tail"] += disk.flushed < len(disk.records)
        assert not idle, f"D14: a {replica.role} replica leaves its tail unflushed"
    if event[0] == "timer" and event[1] == "unflushed":
        looked["old tail"] += 1
        assert not idle, "D14: what is old stays unflushed"
    if event[0] == "timer" and event[1] == "flushing" and role == "leader":
        looked["stuck flush"] += 1
        leader = timeless.state_of(replica).leader
        stays = leader is not None and leader.needed_of_others > 0
        assert not stays, "D13: a leader whose flush does not return goes on leading"


def derive(host: Lone) -> None:
    """Assert that where epochs begin is what a scan of the log gives (D22): they ascend (I14)."""
    assert host.replica is not None
    start = host.disk.start
    epochs = [each.epoch for each in host.disk.records[start:]]
    assert epochs == sorted(epochs), f"I14: the epochs of {host.id} fall: {epochs}"
    said = timeless.state_of(host.replica).log.trail.entries
    held = host.disk.trail().entries
    if said and 0 < start >= said[0][1]:  # it began before the log, or is the snapshot's
        said = ((said[0][0], start), *said[1:]) if held else said[1:]
    assert list(said) == list(held), f"D22: it has epochs {said}, its log {held}"


def grants(host: Lone, request: VoteRequest) -> None:
    """Assert that a vote, or a pre-vote, goes to a log that is long enough."""
    host.world.looked["granted"] += 1
    records, replica = host.disk.records, host.replica
    assert replica is not None
    theirs = request.last_epoch, request.last_offset
    mine = (records[-1].epoch if records else 0), len(records)
    if not host.disk.start == len(records) > 0:  # else the last epoch is the snapshot's
        assert theirs >= mine, f"D21: {host.id} with {mine} grants one that has {theirs}"
    if host.id in host.world.setting.in_memory:
        grants_from_memory(host, request)
    lost = host.phantom
    if lost is not None and replica.in_doubt and not request.unanimous:
        host.world.looked["granted in doubt"] += 1
        assert theirs >= (lost.epoch, lost.offset), (
            f"D10, I21: {host.id}, which may have had {lost}, grants one that has {theirs}"
        )


def grants_from_memory(host: Lone, request: VoteRequest) -> None:
    """Assert that no lost memory votes for what may be shorter, and none that is whole for one
    that may have lost more (D10)."""
    assert host.replica is not None
    lost = host.memory_lost and host.replica.in_doubt
    host.world.looked["granted from memory"] += 1
    if request.unanimous:
        whole = not lost and bool(host.disk.records)
        assert not whole, (
            f"D10: {host.id} has all that it ever had, and agrees to {request.replica}"
        )
    else:
        assert not lost, f"D10, I21: {host.id}, which lost its memory, votes as if it had not"


def refuses(host: Lone, request: VoteRequest, response: VoteResponse) -> None:
    """Assert that a witness, which never asks itself, lets others once its leader is dead (L1).

    Else whoever asks waits until the witness's own timer is over, too.
    """
    replica = host.replica
    assert replica is not None
    state, records = timeless.state_of(replica), host.disk.records
    if host.id not in host.world.setting.witnesses or not request.pre_vote or request.unanimous:
        return
    if replica.role != "follower" or not state.peers.is_ended(state.leader_id):
        return
    theirs = request.last_epoch, request.last_offset
    mine = (records[-1].epoch if records else 0), len(records)
    if response.partition_error or replica.in_doubt or theirs < mine or not records:
        return
    raise AssertionError(f"L1: {host.id}, whose leader is dead, refuses {request.replica}")


def has_written(host: Lone, request: VoteRequest, reply: fx.Reply) -> None:
    """Assert that a vote, which unlike a pre-vote promises something, is on the disk (I10).

    The answer must say so itself: a node may carry effects out side by side.
    """
    standing = host.disk.quorum_state
    if request.pre_vote:
        return
    waits = isinstance(reply.after, fx.Persisted) and reply.after.epoch == request.epoch
    assert waits, f"I10: an answer that grants a vote waits for {reply.after}"
    assert standing is not None
    voted = standing.voted if standing.epoch == request.epoch else None
    assert voted is not None and voted.id == request.replica.id, f"I10: it wrote {standing}"


def changes_voters(host: Lone, effect: fx.AppendControl) -> None:
    """Assert that a leader changes voters one change at a time, in an epoch that committed (D17).

    The records that an epoch begins with change nothing.
    """
    replica = host.replica
    assert replica is not None
    if any(isinstance(each, LeaderChange) for each in effect.records):
        return
    host.world.looked["voters changed"] += 1
    known, last = replica.high_watermark, host.disk.history().last_offset
    assert known >= 0, f"D17: {host.id} changes voters in an epoch that committed nothing"
    assert last < known, f"D17: {host.id} changes voters over those at {last}, {known} are sure"


def hears(host: Lone, asked: Request | None) -> None:
    """Remember whether the disk that is being added fetches, and, where disks are replaced, by
    which directory an id does.

    That is what a leader knows over sockets, whose links name no directory.
    """
    replica = host.replica
    if replica is None or not isinstance(asked, FetchRequest) or asked.replica.id < 0:
        return
    leader = timeless.state_of(replica).leader
    if leader is None or asked.epoch != replica.epoch:
        return
    if host.world.setting.wipes:
        host.heard[asked.replica.id] = asked.replica.directory_id
    host.fetched |= probed_disk(host) == asked.replica


def probed_disk(host: Lone) -> ReplicaKey | None:
    """Return the disk that a leader is about to add, and that must fetch before it does."""
    leader = timeless.state_of(host.replica).leader
    change = leader.change if leader is not None else None
    if change is None or not change.probed or change.voter is None:
        return None
    key: ReplicaKey = change.voter.key
    return key


def names_no_gone_disk(host: Lone, before: VoterSet, after: VoterSet) -> None:
    """Assert that a leader neither adds a disk nor counts on one, without which a removal is never
    committed, whose id fetched with another since; and adds none that did not fetch since its id
    was probed, unless it asked for itself (D19)."""
    for key in set(after.keys) - set(before.keys):
        host.world.looked["added as heard"] += 1
        heard = host.heard.get(key.id, key.directory_id)
        assert heard == key.directory_id, f"D19: {key} is added, of which another disk was heard"
        change = timeless.state_of(host.replica).leader.change
        assert host.fetched or change.at_append, f"D19: {key} is added, and did not fetch since"
        host.fetched = False
    if len(after) < len(before) and host.world.setting.wipes:
        host.world.looked["removed as heard"] += 1
        there = [id for id, directory in after.keys if host.heard.get(id) == directory]
        enough = len(there) + (host.id in after) >= after.majority
        assert enough, f"D19: a removal leaves {after.ids}, of which only the disks of {there} run"


def waits_for_no_gone_disk(host: Lone) -> None:
    """Assert that no addition waits for a disk once its id fetched with another one (D19)."""
    key = probed_disk(host)
    if key is None:
        return
    host.world.looked["added disk is waited for"] += 1
    heard = host.heard.get(key.id, key.directory_id)
    assert heard == key.directory_id, f"D19: {key} is waited for, though another disk was heard"
