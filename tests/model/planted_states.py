"""What is planted for the rules of one replica: what it writes, counts, recovers and remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.model.beginning import goes_on, key_of
from tests.model.planting import (
    begun,
    bug,
    history,
    in_place_of,
    nothing,
    waits_for_no_fetch,
)

if TYPE_CHECKING:
    from tests.model.quorum import Action

ELECTED: tuple[Action, ...] = (("crash", 1, 0, 0), ("calm",))
"""The second voter leads, by the third one's vote."""

REPLACED: tuple[Action, ...] = (
    ("append", 1), ("timer", 1, "unflushed"), ("flushed", 1), ("crash", 1, 0, 0), ("calm",),
    ("start", 1), ("calm",),
)  # fmt: skip
"""The first voter ends with a record that nobody else has; it is cut when another one leads."""


@bug("I9")
def written_epoch_falls() -> None:
    from kraftfast.core import transitions
    from kraftfast.core.effects import PersistQuorumState

    def writes(epoch: int, *words: Any) -> PersistQuorumState:
        return PersistQuorumState(epoch - 2, *words)

    quorum, settled = begun()
    with in_place_of(transitions, "PersistQuorumState", writes):
        goes_on(quorum, settled, *ELECTED)


@bug("I9")
def written_vote_is_taken_back() -> None:
    from kraftfast.core import transitions
    from kraftfast.core.effects import PersistQuorumState

    def writes(epoch: int, leader_id: int, voted: Any, *words: Any) -> PersistQuorumState:
        return PersistQuorumState(epoch, leader_id, None if leader_id >= 0 else voted, *words)

    quorum, settled = begun()
    with in_place_of(transitions, "PersistQuorumState", writes):
        goes_on(quorum, settled, *ELECTED)


@bug("I10")
def vote_is_written_for_nobody() -> None:
    from kraftfast.core import transitions
    from kraftfast.core.effects import PersistQuorumState

    def writes(epoch: int, leader_id: int, voted: Any, *words: Any) -> PersistQuorumState:
        return PersistQuorumState(epoch, leader_id, None, *words)

    quorum, settled = begun()
    with in_place_of(transitions, "PersistQuorumState", writes):
        goes_on(quorum, settled, *ELECTED)


@bug("I10")
def vote_leaves_before_it_is_written() -> None:
    from kraftfast.core.replica import Replica

    before = Replica.step

    def late(self: Any, *words: Any) -> list[Any]:
        return sorted(before(self, *words), key=lambda each: "Persist" in type(each).__name__)

    quorum, settled = begun()
    with in_place_of(Replica, "step", late):
        goes_on(quorum, settled, *ELECTED)


@bug("I12")
def leader_counts_what_it_appended() -> None:
    from kraftfast.core.replication import on_append

    def counts(state: Any, leader: Any, *words: Any) -> None:
        leader.acknowledged.put(leader.slot, state.log.end_offset)

    with in_place_of(on_append, "request_drain", counts):
        history(("append", 1))


@bug("I14")
def power_takes_what_was_flushed() -> None:
    from tests.core.disk import Disk

    def loses(self: Disk, keep: int | None = None) -> None:
        del self.records[1:]
        self.flushed = len(self.records)

    with in_place_of(Disk, "lose_power", loses):
        history(("append", 1), ("calm",), ("crash", 1, 0, 0))


@bug("I14")
def power_leaves_what_follows_a_hole() -> None:
    from tests.core.disk import Disk

    def loses(self: Disk, keep: int | None = None) -> None:
        del self.records[: self.flushed]
        self.flushed = 0

    with in_place_of(Disk, "lose_power", loses):
        history(("cut", 1, 2), ("cut", 1, 3), ("append", 1), ("crash", 1, 0, 0))


@bug("I14")
def power_leaves_a_part_of_a_batch() -> None:
    from tests.core import disk
    from tests.core.disk import Record

    with in_place_of(disk, "splits_batch", lambda *words: False):
        quorum, settled = begun()
        host = quorum.turns.host_of(settled.replicas[0])
        host.disk.records += [Record(1, "one", None, 9), Record(1, "two", None, 9)]
        number = quorum.turns._put(host)
        settled = settled._replace(replicas=(number, *settled.replicas[1:]))
        goes_on(quorum, settled, ("crash", 1, 1, 0))


@bug("I14")
def what_power_took_comes_back() -> None:
    from tests.model.alone import Lone

    start, crash = Lone.start, Lone.crash

    def remembers(self: Any, keep: int | None = 0) -> None:
        self.had = list(self.disk.records)
        crash(self, keep)

    def finds_again(self: Any, **words: Any) -> None:
        self.disk.records = getattr(self, "had", self.disk.records)
        self.disk.flushed = len(self.disk.records)
        start(self, **words)

    with in_place_of(Lone, "crash", remembers), in_place_of(Lone, "start", finds_again):
        history(("cut", 1, 2), ("cut", 1, 3), ("append", 1), ("crash", 1, 0, 0), ("start", 1))


@bug("I14")
def epochs_of_a_log_fall() -> None:
    from tests.model.alone import Alone

    def value(self: Any, id: int) -> str:
        records = self.host.disk.records
        records[0] = records[0]._replace(epoch=records[0].epoch + 1)
        return "of an earlier epoch"

    with in_place_of(Alone, "new_value", value):
        history(("append", 1))


@bug("I16")
def voters_that_were_appended_do_not_count() -> None:
    from kraftfast.core.replication import on_append

    with in_place_of(on_append, "on_controls", nothing):
        changes(("remove", 1, key_of(3)))


@bug("D17")
def second_change_of_the_voters_is_taken() -> None:
    from kraftfast.core.membership import changes as membership

    def forgets_the_first(state: Any) -> Any:
        state.leader.change = None
        return membership.ACCEPTED

    with in_place_of(membership, "check_set_committed", lambda state: membership.ACCEPTED):
        with in_place_of(membership, "check_nothing_pending", forgets_the_first):
            changes(("remove", 1, key_of(3)), ("remove", 1, key_of(2)))


def changes(*actions: Action, **words: Any) -> None:
    """Let an operator change the voters, or disks."""
    history(*actions, dynamic=True, **words)


@bug("D17")
def voters_are_changed_before_anything_is_committed() -> None:
    from kraftfast.core.membership import changes as membership

    quorum, state = begun(dynamic=True)
    with (
        in_place_of(membership, "check_nothing_pending", lambda state: membership.ACCEPTED),
        in_place_of(membership, "check_set_committed", lambda state: membership.ACCEPTED),
        in_place_of(membership, "goes_on_without", lambda *words: True),
    ):
        state = quorum.apply(state, ("crash", 1, 0, 0)) or state
        seen = {state}
        while quorum.see(state, 2).role != "leader":
            every = [quorum.apply(state, action) for action in quorum.default_order(state)]
            state = next(each for each in every if each is not None and each not in seen)
            seen.add(state)
        goes_on(quorum, state, ("remove", 2, key_of(1)))


@bug("D19")
def another_disk_acknowledges_for_a_voter() -> None:
    from kraftfast.types import VoterSet

    with in_place_of(VoterSet, "is_voter", lambda self, key: key.id in self):
        changes(("crash", 3, 0, 0), ("wipe", 3, "empty"), ("start", 3), ("calm",),
                ("append", 1), ("calm",), wipes=("empty",))  # fmt: skip


NEW_DISK: tuple[Action, ...] = (
    ("crash", 2, 0, 0), ("wipe", 2, "empty"), ("start", 2), ("calm",),
)  # fmt: skip
"""Of the second replica, which then fetches with it."""


def no_new_disk_is_heard(*actions: Action, **words: Any) -> None:
    """Let these happen, over sockets, where a leader does not ask who was heard since."""
    from kraftfast.core.replication.leader import Leader

    with in_place_of(Leader, "successor_of", lambda *words: None):
        changes(*actions, wipes=("empty",), streaming=False, **words)


@bug("D19")
def gone_disk_is_added_over_sockets() -> None:
    from kraftfast.core.membership import on_add_voter
    from kraftfast.errors import ErrorCode

    adds: tuple[Action, ...] = (("add", 1, key_of(2)), ("probed", 1, ErrorCode.NONE), ("calm",))
    with in_place_of(on_add_voter, "VoterChange", waits_for_no_fetch):
        no_new_disk_is_heard(*NEW_DISK, *adds, ids=(1, 2), voters=(1,))


@bug("D19")
def disk_is_added_that_did_not_fetch_since() -> None:
    from kraftfast.core.replication import on_fetch
    from kraftfast.errors import ErrorCode

    def anybodys(state: Any, change: Any, progress: Any) -> None:
        change.fetched = state.poll_due = True

    with in_place_of(on_fetch, "note_fetch", anybodys):
        history(("crash", 4, 0, 0), ("add", 1, key_of(4)), ("probed", 1, ErrorCode.NONE),
                ("timer", 1, "parked_deadline_ms"), ("calm",),
                ids=(1, 2, 3, 4), dynamic=True, streaming=False)  # fmt: skip


@bug("D19")
def addition_waits_for_a_gone_disk() -> None:
    from kraftfast.errors import ErrorCode

    asks: tuple[Action, ...] = (("add", 1, key_of(2)), ("probed", 1, ErrorCode.NONE))
    no_new_disk_is_heard(*asks, *NEW_DISK, ids=(1, 2), voters=(1,))


@bug("D19")
def gone_disk_is_counted_on() -> None:
    no_new_disk_is_heard(*NEW_DISK, ("remove", 1, key_of(3)))


@bug("D23")
def snapshot_below_the_floor_is_installed() -> None:
    """A leader names one of which its follower has all, and what is committed behind it."""
    from kraftfast.core.effects import InstallSnapshot
    from kraftfast.core.snapshots import on_slice_written

    def older(snapshot_id: Any, number: int) -> InstallSnapshot:
        return InstallSnapshot(snapshot_id._replace(offset=1), number)

    append: tuple[Action, ...] = (("append", 1), ("calm",))
    quorum, state = begun(floors=(3,))
    with in_place_of(on_slice_written, "InstallSnapshot", older):
        goes_on(quorum, state, *append, ("crash", 3, 0, 0), *append, ("snapshot", 1, 3),
                ("retain", 1), ("start", 3), ("calm",))  # fmt: skip


@bug("D23")
def cut_is_asked_below_the_floor() -> None:
    from kraftfast.core.effects import Truncate
    from kraftfast.core.replication import on_fetch_response

    quorum, state = begun(floors=(1,))
    with in_place_of(on_fetch_response, "Truncate", lambda end, number: Truncate(0, number)):
        goes_on(quorum, state, *REPLACED)


@bug("I17")
def removed_leader_stays() -> None:
    from kraftfast.core import on_tick

    with in_place_of(on_tick, "removed_itself", lambda *words: False):
        changes(("remove", 1, key_of(1)), ("calm",), ("append", 1), ("calm",))


@bug("I18")
def leader_is_forgotten_while_it_leads() -> None:
    from kraftfast.core.replication import on_append

    def forgets(state: Any, *words: Any) -> None:
        state.leader = None

    with in_place_of(on_append, "request_drain", forgets):
        history(("append", 1))


@bug("I18")
def old_leader_is_kept() -> None:
    from kraftfast.core import transitions

    before = transitions._settle_in

    def settles(state: Any, *words: Any) -> None:
        leader = state.leader
        before(state, *words)
        state.leader = state.leader or leader

    with in_place_of(transitions, "_settle_in", settles):
        history(("resign", 1))


@bug("I25")
def answered_fetches_stay() -> None:
    from kraftfast.core.replication import fetch_answers, high_watermark, on_append

    before = fetch_answers.answer_parked

    def keeps(state: Any, leader: Any, *words: Any) -> None:
        waited = list(leader.parked)
        before(state, leader, *words)
        leader.parked = waited

    appends: tuple[Action, ...] = (("append", 1), ("calm",))
    with in_place_of(on_append, "answer_parked", keeps):
        with in_place_of(high_watermark, "answer_parked", keeps):
            history(*appends * 20, streaming=False)


@bug("I25")
def passed_barriers_stay() -> None:
    from kraftfast.core import read_barrier

    with in_place_of(read_barrier, "settle_round", nothing):
        history(*(("barrier", 1),) * 40)
