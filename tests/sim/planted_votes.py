"""What is planted for the rules of promises, votes, commits and voters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftfast.core import effects as fx
from kraftfast.core import on_tick
from kraftfast.core.messages import (
    AddRaftVoterRequest,
    FetchRequest,
    QuorumEpochResponse,
    RemoveRaftVoterRequest,
    UpdateFeaturesRequest,
    VoteRequest,
    VoteResponse,
)
from kraftfast.errors import ErrorCode
from kraftfast.sim.operators.operator import Order
from kraftfast.sim.oracles.vote_oracle import log_end
from kraftfast.types import ElectionState, KRaftVersion, KRaftVoters, Voter
from tests.sim.planting import Scene, plant, with_voter_records
from tests.sim.steps import remove

# --- promises -------------------------------------------------------------------------------------


@plant("D5: {} of {} is not on its disk")
def quorum_state_is_not_synced(scene: Scene) -> None:
    scene.promises(None)
    scene.oracle.persisted(scene.other)


@plant("D5: {} appends in {}, and its disk says {}")
def leader_appends_before_its_leadership_is_written(scene: Scene) -> None:
    scene.promises(ElectionState(scene.epoch, -1, scene.leader.machine.key))
    scene.oracle.appends(scene.leader, scene.epoch)


@plant("I13: {} appends in epoch {}, which it does not lead")
def append_by_another(scene: Scene) -> None:
    scene.oracle.appends(scene.other, scene.epoch)


def fetch(scene: Scene, offset: int, **words: Any) -> None:
    key = scene.other.machine.key
    scene.oracle.request_leaves(scene.other, FetchRequest(scene.epoch, key, offset, 0, **words))


@plant("I11: {} acknowledges {} of {}")
def acknowledgement_beyond_the_log(scene: Scene) -> None:
    fetch(scene, scene.shadow.end + 1)


@plant("I11: {} acknowledges {}, on disk: {}")
def acknowledgement_of_memory(scene: Scene) -> None:
    """Also where the request says that memory is enough, though it is not here."""
    scene.shadow.durable -= 1
    scene.patch.setattr(scene.oracle, "observe", lambda process: None)
    fetch(scene, scene.shadow.end, in_memory=True)


@plant("I10: {} fetches in {} before that is on its disk")
def fetch_before_the_epoch_is_written(scene: Scene) -> None:
    scene.promises(None)
    fetch(scene, 0)


@plant("I10: {} answers in {} before that is on its disk")
def answer_before_the_epoch_is_written(scene: Scene) -> None:
    told = QuorumEpochResponse(leader_epoch=scene.epoch + 1)
    scene.oracle.response_leaves(scene.other, None, told)


@plant("I10: {} is a candidate in {} with {} on its disk")
def own_vote_is_not_written(scene: Scene) -> None:
    scene.oracle.counts_votes(scene.other, scene.epoch + 1)


# --- votes ----------------------------------------------------------------------------------------


def asks(scene: Scene, epoch: int, last_epoch: int, end: int) -> VoteRequest:
    return VoteRequest(epoch, scene.leader.machine.key, last_epoch, end)


def grants(scene: Scene, request: VoteRequest) -> None:
    """The other replica gives the leader of now its vote."""
    scene.oracle.response_leaves(scene.other, request, VoteResponse(vote_granted=True))


def promised(scene: Scene, epoch: int) -> None:
    scene.promises(ElectionState(epoch, -1, scene.leader.machine.key))


@plant("D21: {} asks with {}@{}, it has {}")
def candidate_asks_with_more(scene: Scene) -> None:
    last_epoch, end = log_end(scene.leader)
    scene.oracle.request_leaves(scene.leader, asks(scene, scene.epoch + 1, last_epoch, end + 1))


@plant("D21: {} asks with {}, on its disk: {}")
def candidate_asks_with_memory(scene: Scene) -> None:
    scene.unflushed()
    request = asks(scene, scene.epoch + 1, *log_end(scene.leader))
    scene.oracle.request_leaves(scene.leader, request)


@plant("I10: {} grants {} in {} with {} on its disk")
def vote_is_not_written(scene: Scene) -> None:
    grants(scene, asks(scene, scene.epoch + 1, *log_end(scene.other)))


@plant("D21: {} with {} grants {} in {}, which has {}@{}")
def vote_for_a_shorter_log(scene: Scene) -> None:
    last_epoch, end = log_end(scene.other)
    promised(scene, scene.epoch + 1)
    grants(scene, asks(scene, scene.epoch + 1, last_epoch, end - 1))


@plant("D10, I21: {}, which had {} on its disk, grants {} in {}, which has {}@{}")
def vote_for_less_than_was_lost(scene: Scene) -> None:
    last_epoch, end = log_end(scene.other)
    scene.shadow.lost = last_epoch, end + 1
    promised(scene, scene.epoch + 1)
    grants(scene, asks(scene, scene.epoch + 1, last_epoch, end))


@plant("D10, I21: {} leads {} by {} of {}, and lost {}")
def leader_that_lost_some_of_its_log(scene: Scene) -> None:
    last_epoch, end = log_end(scene.other)
    scene.shadow.lost = last_epoch, end + 1
    scene.oracle.elected(scene.other, scene.epoch + 1)


@plant("D21: {} leads epoch {} with {}; {}, which granted its vote, had {}")
def leader_with_less_than_its_voters_had(scene: Scene) -> None:
    last_epoch, end = log_end(scene.other)
    scene.oracle.votes.grants[scene.epoch + 1, scene.other.id] = {7: (last_epoch, end + 1)}
    scene.oracle.elected(scene.other, scene.epoch + 1)


@plant("I4: {} is committed in {}, the leader of {} never had it")
def commit_that_a_later_leader_lacks(scene: Scene) -> None:
    scene.oracle.votes.logs[scene.epoch + 1] = scene.last
    scene.append()
    scene.world.run(200)


@plant("I1, I13: epoch {} is led again, by {}")
def second_leader(scene: Scene) -> None:
    scene.oracle.elected(scene.other, scene.epoch)


@plant("I4: {} leads epoch {} without {}, which is committed")
def leader_without_a_commit(scene: Scene) -> None:
    end = scene.last.end_offset
    scene.oracle.committed.append(scene.last._replace(base_offset=end, end_offset=end))
    scene.oracle.elected(scene.other, scene.epoch + 1)


# --- commits --------------------------------------------------------------------------------------


@plant("I6: {} goes from {} to {} of {}")
def high_watermark_falls(scene: Scene) -> None:
    scene.oracle.advances(scene.other, scene.shadow.high_watermark)


@plant("I6: {} says {}, no leader more than {}")
def follower_commits(scene: Scene) -> None:
    scene.oracle.committed.pop()
    scene.shadow.high_watermark = -1
    scene.oracle.advances(scene.other, scene.shadow.end)


@plant("I8: {} commits {} at {}, others {}")
def another_batch_is_committed(scene: Scene) -> None:
    scene.oracle.committed[-1] = scene.last._replace(crc=0)
    scene.shadow.high_watermark = -1
    scene.oracle.advances(scene.other, scene.shadow.end)


def commits(scene: Scene) -> None:
    """The leader commits the last batch."""
    shadow = scene.oracle.shadow(scene.leader.id)
    shadow.high_watermark = -1
    scene.oracle.advances(scene.leader, shadow.end)


@plant("D6: {} commits {} in epoch {}")
def commit_of_an_earlier_epoch_alone(scene: Scene) -> None:
    scene.oracle.committed.pop()
    entries = scene.oracle.shadow(scene.leader.id).entries
    entries[-1] = entries[-1]._replace(batch=scene.last._replace(epoch=0))
    commits(scene)


@plant("I8: {} commits {} and has no {}")
def commit_on_top_of_another_log(scene: Scene) -> None:
    scene.oracle.committed.pop()
    scene.oracle.committed[-1] = scene.oracle.committed[-1]._replace(crc=0)
    commits(scene)


@plant("I5: {} commits up to {}, which of {} only {} have on {}")
def commit_in_memory(scene: Scene) -> None:
    scene.oracle.committed.pop()
    scene.patch.setattr(scene.oracle, "is_stable", lambda machine, entry: False)
    commits(scene)


@plant("durability=all: {} does not hold everything below {}")
def acknowledged_without_one(scene: Scene) -> None:
    scene.shadow.entries.pop()
    scene.oracle.acknowledged_by_all(scene.leader, scene.last.end_offset)


@plant("durability=all: {} tells {} by {}")
def told_before_all_have_it(scene: Scene) -> None:
    scene.patch.setattr(scene.leader, "durability", "all")
    told = scene.leader.on_all_disks = scene.last.end_offset
    scene.leader._commit(told)
    scene.leader._commit(told + 1)


@plant("I20: a consumer read [{}, {}), which is not committed")
def read_beyond_commits(scene: Scene) -> None:
    scene.oracle.was_read(scene.last.end_offset, scene.last.end_offset + 1, 0)


# --- who votes ------------------------------------------------------------------------------------


@plant("I16: {} believes {}, its log says {}")
def voters_of_nowhere(scene: Scene) -> None:
    voters = scene.world.voter_set().without(scene.other.id)
    scene.shadow.changes.append((0, KRaftVoters(voters)))
    scene.oracle.after_turn(scene.other)


@plant("I16: {} lets {} vote, its log says {}")
def another_set_votes(scene: Scene) -> None:
    voters = scene.world.voter_set().without(scene.other.id)
    scene.oracle.voters.check(scene.process_of(core=scene.core_of(scene.other, voters=voters)))


@plant("I16: {} tells of {}, and lets {} vote")
def another_set_is_told(scene: Scene) -> None:
    voters = scene.world.voter_set().without(scene.other.id)
    scene.oracle.voters.changed(scene.other, fx.VotersChanged(0, voters))


@plant("I17: {} leads on, and its removal at {} is committed", with_voter_records)
def removed_leader_stays(scene: Scene) -> None:
    scene.patch.setattr(on_tick, "removed_itself", lambda *words: False)
    scene.patch.setattr(
        "kraftfast.core.replication.on_append.removed_itself", lambda *w: False, raising=False
    )
    scene.patch.setattr(type(scene.leader), "_check", lambda self, effects: None)
    scene.world.operator.ask(scene.leader, remove(scene.quorum, scene.leader.id), [])
    scene.world.run(3_000)


def appends(scene: Scene, ids: tuple[int, ...], directory: bytes = b"") -> None:
    """The leader writes these voters down."""
    voters = scene.world.voter_set()
    for id in voters.ids:
        if id not in ids:
            voters = voters.without(id)
    for id in ids:
        if id not in voters:
            machine = scene.world.machine(id)
            voters = voters.with_voter(Voter(id, machine.key.directory_id, machine.endpoints, 0, 1))
        elif directory:
            voters = voters.without(id).with_voter(Voter(id, directory, (), 0, 1))
            directory = b""
    effect = fx.AppendControl(scene.epoch, (KRaftVoters(voters),))
    scene.oracle.voters.appends(scene.leader, effect)


@plant("D17: {} changes the voters before it committed {}", with_voter_records)
def change_before_an_own_commit(scene: Scene) -> None:
    scene.oracle.shadow(scene.leader.id).high_watermark = -1
    appends(scene, (1, 2, 3, 4))


@plant("D17, I16: {} changes the voters above those at {}", with_voter_records)
def change_above_another(scene: Scene) -> None:
    end = scene.last.end_offset
    changes = scene.oracle.shadow(scene.leader.id).changes
    changes.append((end, KRaftVoters(scene.world.voter_set())))
    appends(scene, (1, 2, 3, 4))


@plant("D17: {} goes from {} to {} in one step", with_voter_records)
def two_changes_at_once(scene: Scene) -> None:
    appends(scene, (1, 2, 4))


@plant("D19: {} gives {} other directories", with_voter_records)
def change_of_a_directory(scene: Scene) -> None:
    appends(scene, (1, 2, 3), directory=b"d" * 16)


def told(scene: Scene, request: Any, gone: bool = False) -> None:
    """The operator is told that a change is done."""
    order = Order(scene.world.operator, scene.leader, request, [])
    order.gone = gone
    order.reply(SimpleNamespace(error=ErrorCode.NONE))


@plant("an upgrade is done, and not committed")
def upgrade_is_done_before_its_commit(scene: Scene) -> None:
    assert not any(isinstance(each, KRaftVersion) for _, each in scene.oracle.voters.committed)
    told(scene, UpdateFeaturesRequest(1))


@plant("D19: {} was added, and its disk is gone", with_voter_records)
def gone_directory_is_added(scene: Scene) -> None:
    told(scene, AddRaftVoterRequest(scene.world.machine(4).key, (), 1_000), gone=True)


@plant("{} is said to be added, and {} counts", with_voter_records)
def addition_is_done_before_its_commit(scene: Scene) -> None:
    told(scene, AddRaftVoterRequest(scene.world.machine(4).key, (), 1_000))


@plant("{} is said to be removed, and {} counts", with_voter_records)
def removal_is_done_before_its_commit(scene: Scene) -> None:
    told(scene, RemoveRaftVoterRequest(scene.other.machine.key))


@plant("D10: {} are committed, which of {} only {} have on disk", with_voter_records)
def voters_are_committed_from_memory(scene: Scene) -> None:
    voters = scene.oracle.voters
    batch = next(each for each in scene.oracle.committed if voters.of(each))
    scene.patch.setattr(scene.oracle, "is_stable", lambda machine, entry: machine.id == 1)
    voters.committed_by(batch, voters.latest().voters)
