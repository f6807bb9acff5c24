"""Each rule of the oracle is planted broken, and reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.errors import ErrorCode
from kraftfast.types import KRaftVoters, OffsetAndEpoch, ReplicaKey, VoterSet
from tests.core.disk import GONE, Record, voter_of
from tests.model.alone import Setting, Violation
from tests.model.beginning import goes_on, key_of
from tests.model.oracle import Cut, Hurt, Known, Oracle, has_its_epoch, match
from tests.model.planting import begun
from tests.model.quorum import Action, Quorum, State
from tests.model.seen import Seen

A, B, C = (Record(1, f"{each}") for each in "abc")
OTHER = Record(1, "other")


def disks(*ids: int, end: int = 2) -> frozenset[Hurt]:
    """Disks that lost what had been flushed, when they held so much."""
    return frozenset(Hurt(key_of(id), end, 1, 1) for id in ids)


def seen(id: int, records: tuple[Record, ...], flushed: int | None = None) -> Seen:
    values: dict[str, Any] = dict.fromkeys(Seen._fields)
    values |= {
        "records": records,
        "start": 0,
        "flushed": len(records) if flushed is None else flushed,
        "sure": len(records) if flushed is None else flushed,
        "key": key_of(id),
        "epoch": 1,
        "counted": (),
        "told_committed": -1,
        "high_watermark": -1,
        "running": True,
    }
    return Seen(**values)


def judge(known: Known, disks: list[Seen], *facts: tuple[Any, ...], **words: Any) -> Known:
    """What the oracle makes of these facts, of replica 1, whose log was empty before."""
    setting = Setting((1, 2, 3), (1, 2, 3), **words)
    turns = SimpleNamespace(setting=setting, seen=[*disks, seen(1, ())])
    oracle = Oracle(turns)  # type: ignore[arg-type]
    return oracle.judge(known, tuple(range(len(disks))), 0, len(disks), facts)


COMMITTED = Known((A, B), (1, 1), ((1, 1, 1),))
WHOLE = [seen(id, (A, B)) for id in (1, 2, 3)]
STATIC = VoterSet.of(1, 2, 3)
NEW = ReplicaKey(3, b"c" * 16)
HURT = Known(hurt=disks(1, 2))


def test_what_is_sound_is_taken() -> None:
    fact = ("committed", 2, (A, B), STATIC, 1, "leader")
    known = judge(Known(), WHOLE, ("elected", 1, 1, ()), fact)
    assert known == COMMITTED
    judge(known, WHOLE, ("elected", 2, 1, (A, B)), ("read", 2, 2))
    judge(known, WHOLE, ("snapshot", OffsetAndEpoch(2, 1), ()))
    judge(known, [seen(1, (A, B)), seen(2, (GONE, B)), seen(3, ())])


BROKEN: list[tuple[str, Known, list[Seen], tuple[Any, ...]]] = [
    ("I1", Known(leaders=((1, 2, 1),)), WHOLE, ("elected", 1, 1, (A, B))),
    ("I13", Known(leaders=((1, 1, 1),)), WHOLE, ("elected", 1, 2, (A, B))),
    ("I4", COMMITTED, WHOLE, ("elected", 2, 1, (A,))),
    ("I4", COMMITTED, WHOLE, ("elected", 2, 1, (A, OTHER))),
    ("I8", COMMITTED, WHOLE, ("committed", 2, (A, OTHER), STATIC, 2, "leader")),
    ("I5", Known(), [WHOLE[0], seen(2, (A,)), seen(3, ())],
     ("committed", 2, (A, B), STATIC, 1, "leader")),
    ("I5", Known(), [seen(1, (A, B), 2), seen(2, (A, B), 1), seen(3, (A, B), 1)],
     ("committed", 2, (A, B), STATIC, 1, "leader")),
    ("a stale read", COMMITTED, WHOLE, ("read", 2, 1)),
    ("a stale read", COMMITTED, WHOLE, ("read", 2, 3)),
    ("I8", Known((A, B), (1, 1), (), ((OffsetAndEpoch(2, 1), ()),)), WHOLE,
     ("snapshot", OffsetAndEpoch(2, 1), (KRaftVoters(STATIC),))),
    ("I15", COMMITTED, WHOLE, ("snapshot", OffsetAndEpoch(3, 1), ())),
    ("I6", Known(), WHOLE, ("committed", 2, (A, B), STATIC, 1, "follower")),
    ("D6", Known(), WHOLE, ("committed", 2, (A, B), STATIC, 2, "leader")),
    ("I4", Known(), [*WHOLE[:2], seen(3, (A,))._replace(role="leader", epoch=2)],
     ("committed", 2, (A, B), STATIC, 1, "leader")),
    ("I1", HURT._replace(leaders=((1, 2, 1),)), WHOLE, ("elected", 1, 1, (A, B))),
    ("I13", HURT._replace(leaders=((1, 1, 1),)), WHOLE, ("elected", 1, 2, (A, B))),
    ("I5", Known(hurt=disks(3, end=1)), [WHOLE[0], seen(2, (A,)), seen(3, ())],
     ("committed", 2, (A, B), STATIC, 1, "leader")),
    ("I2, I3", HURT, [seen(1, (A, B)), seen(2, (OTHER, B)), seen(3, ())], ("done", 0)),
]  # fmt: skip
"""A rule, what was known, the disks, and a fact that breaks the rule."""


@pytest.mark.parametrize(("rule", "known", "disks", "fact"), BROKEN)
def test_a_broken_rule_is_reported(
    rule: str, known: Known, disks: list[Seen], fact: tuple[Any, ...]
) -> None:
    with pytest.raises(Violation, match=f"^{rule}"):
        judge(known, disks, fact)


def test_what_a_leader_counts_is_on_that_disk() -> None:
    leader = seen(1, (A, B))._replace(counted=((2, bytes(16), 2), (3, bytes(16), 1)))
    judge(COMMITTED, [leader, seen(2, (A, B)), seen(3, (A,))])
    for lacking in (seen(2, (A, B), 1), seen(2, (A, OTHER._replace(epoch=2)))):
        with pytest.raises(Violation, match="^D3"):
            judge(COMMITTED._replace(committed=(A,)), [leader, lacking, seen(3, (A, B))])
    later = seen(2, (A,))._replace(epoch=2)  # a later leader may have cut it
    judge(COMMITTED._replace(committed=(A,)), [leader, later, seen(3, (A, B))])


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_high_watermark_never_falls(role: str) -> None:
    before, after = [seen(1, (A, B))._replace(role=role, high_watermark=hw) for hw in (2, 1)]
    cut(COMMITTED, after, before, WHOLE[1:])
    cut(COMMITTED, before, after._replace(epoch=2), WHOLE[1:])  # it asks a majority again
    with pytest.raises(Violation, match="^I6"):
        cut(COMMITTED, before, after, WHOLE[1:])


def test_a_log_of_its_own_owes_the_quorum_nothing() -> None:
    """Found by the search: a new disk with an old configuration leads its own log (D23)."""
    rival = Seen(**seen(3, (OTHER,))._asdict() | {"role": "leader", "epoch": 2, "key": NEW})
    known = COMMITTED._replace(hurt=disks(3))
    late = ("committed", 3, (A, B, C), STATIC, 1, "leader")
    quorum = [seen(1, (A, B, C)), seen(2, (A, B, C)), rival]
    judge(known, quorum, late, wipes=("empty",))
    with pytest.raises(Violation, match="^I4"):
        judge(known, quorum, late, dynamic=True)


def test_a_high_watermark_that_nobody_committed_is_seen() -> None:
    """I6, I20: a leader that is cut off must not even know it, a consumer would read it."""
    for high_watermark in (2, 3):
        mine = WHOLE[0]._replace(high_watermark=high_watermark)
        if high_watermark == 2:
            judge(COMMITTED, [mine, *WHOLE[1:]])
            continue
        with pytest.raises(Violation, match="^I6"):
            judge(COMMITTED, [mine, *WHOLE[1:]])


def test_a_change_is_done_once_it_is_committed() -> None:
    judge(COMMITTED, WHOLE, ("done", 1))
    with pytest.raises(Violation, match="^D17"):
        judge(COMMITTED, WHOLE, ("done", 2))
    with pytest.raises(Violation, match="^D17"):
        judge(COMMITTED, [WHOLE[0]._replace(told_committed=2), *WHOLE[1:]])


def test_more_hurt_disks_than_a_quorum_bears_are_not_judged() -> None:
    hurt = COMMITTED._replace(hurt=disks(2, 3))
    judge(hurt, [WHOLE[0], seen(2, ()), seen(3, ())], ("elected", 2, 1, ()))


def test_what_was_committed_stays_on_a_majority_of_disks() -> None:
    lost = [seen(1, (A, B)), seen(2, (A,)), seen(3, (A, B), 1)]
    with pytest.raises(Violation, match="^I5"):
        judge(COMMITTED, lost)
    judge(COMMITTED._replace(hurt=disks(2)), lost)  # a disk that lost it stands for it
    with pytest.raises(Violation, match="^I5"):
        judge(COMMITTED._replace(hurt=disks(1)), lost)


def test_the_voters_that_count_are_those_that_were_committed() -> None:
    record = voters_record(1, 2, 4)
    known = Known((A, record), (1, 1))
    disks = [seen(1, (A, record)), seen(2, (A,)), seen(3, (A, record)), seen(4, (A,))]
    with pytest.raises(Violation, match="^I5"):
        judge(known, disks, dynamic=True)
    judge(known, disks[:3] + [seen(4, (A, record))], dynamic=True)


def voters_record(*ids: int) -> Record:
    keys = [ReplicaKey(id, bytes([64 + id]) * 16) for id in ids]
    return Record(1, "voters", KRaftVoters(VoterSet(voter_of(each) for each in keys)))


def test_a_set_that_is_not_committed_commits_what_is_before_it() -> None:
    """Two of three have it; of the four before, three cannot elect without one of these."""
    before, after = voters_record(1, 2, 3, 4), voters_record(1, 3, 4)
    known = Known((before, A), (1, 1))
    short, long = (before,), (before, A, after)
    disks = [seen(1, long, 1), seen(2, short), seen(3, long), seen(4, long)]
    judge(known, disks, dynamic=True)
    with pytest.raises(Violation, match="^I5"):
        judge(known, [*disks[:3], seen(4, short)], dynamic=True)


def test_logs_that_agree_above_agree_below() -> None:
    assert match((A, B), (A, B, C)) and match((A, OTHER._replace(epoch=2)), (A, B))
    assert not match((A, B), (OTHER, B))
    assert not match((A, B), (A, OTHER))
    with pytest.raises(Violation, match="^I2, I3"):
        judge(Known(), [seen(1, (A, B)), seen(2, (OTHER, B)), seen(3, ())])


def test_a_snapshot_says_who_votes() -> None:
    voters, others = voters_record(1, 2, 3), voters_record(1, 2, 4)
    known, snapshot_id = Known((voters, A), (1, 1)), OffsetAndEpoch(2, 1)
    disks = [seen(id, (voters, A)) for id in (1, 2, 3)]
    judge(known, disks, ("snapshot", snapshot_id, (voters.control,)), dynamic=True)
    for content in ((), (others.control,)):
        with pytest.raises(Violation, match="^I8"):
            judge(known, disks, ("snapshot", snapshot_id, content), dynamic=True)


def test_no_process_cuts_what_is_committed() -> None:
    """Though two others have it: what power takes is another matter."""
    longer = seen(1, (A, B, C))._replace(running=True)
    rest = [seen(id, (A, B)) for id in (2, 3)]
    for records, fine in (((A, B), True), ((A, B, OTHER), True), ((A,), False), ((), False)):
        after = seen(1, records)._replace(running=True)
        if fine:
            cut(COMMITTED, longer, after, rest)
            continue
        with pytest.raises(Violation, match="^I7"):
            cut(COMMITTED, longer, after, rest)
        unflushed = longer._replace(flushed=0)
        cut(COMMITTED, unflushed, after._replace(running=False), rest)


def cut(known: Known, before: Seen, after: Seen, rest: list[Seen]) -> None:
    turns = SimpleNamespace(setting=Setting((1, 2, 3), (1, 2, 3)), seen=[after, *rest, before])
    Oracle(turns).judge(known, (0, 1, 2), 0, 3, ())  # type: ignore[arg-type]


REST = WHOLE[1:]


def test_what_a_power_cut_leaves_is_what_was_on_the_disk() -> None:
    """A whole number of batches, as many as were flushed at least, but for a disk that was hurt."""
    batch = Record(1, "d", None, 7), Record(1, "e", None, 7)
    before = seen(1, (A, B, *batch), 2)
    whole = [(A, B), (A, B, *batch)]
    for records in (*whole, (A,), (), (A, B, batch[0]), (A, OTHER), (B,)):
        after = seen(1, records)._replace(running=False)
        if records in whole:
            cut(Known(), before, after, REST)
            continue
        with pytest.raises(Violation, match="^I14"):
            cut(Known(), before, after, REST)
    hurt = Known(hurt=disks(1, end=4))
    cut(hurt, before, seen(1, (A,))._replace(running=False), REST)
    with pytest.raises(Violation, match="^I14"):
        cut(hurt, before, seen(1, (B,))._replace(running=False), REST)


def test_a_log_that_is_started_is_the_one_that_was_left() -> None:
    left = seen(1, (A, B))._replace(running=False)
    led = Record(2, "leader 1")
    for records, fine in (
        ((A, B), True), ((A, B, led), True), ((A,), False), ((A, B, C), False), ((A, C), False),
    ):  # fmt: skip
        if fine:
            cut(Known(), left, seen(1, records), REST)
            continue
        with pytest.raises(Violation, match="^I14"):
            cut(Known(), left, seen(1, records), REST)


@pytest.mark.parametrize("committed", [False, True])
def test_the_disk_of_a_voter_is_hurt_until_its_removal_is_committed(committed: bool) -> None:
    """Found by the search: no log named it any more, and what it held still counted (I5)."""
    quorum, state = begun(dynamic=True, wipes=("empty",))
    told: tuple[Action, ...] = (("deliver", 1, 2), ("deliver", 1, 3), ("flushed", 3))
    state = goes_on(quorum, state, ("remove", 1, key_of(3)), *told)
    if committed:
        state = quorum.calm(state)
    state = goes_on(quorum, state, ("crash", 3, 0, 0), ("wipe", 3, "empty"))
    assert {each.key for each in state.known.hurt} == (set() if committed else {key_of(3)})


CALM: Action = ("calm",)
WIPED_AND_REMOVED: tuple[Action, ...] = (
    ("crash", 3, 0, 0), ("wipe", 3, "empty"), ("remove", 1, key_of(3)), CALM,
)  # fmt: skip
NEW_DISK_ADDED: tuple[Action, ...] = (
    ("start", 3), CALM, ("add", 1, NEW), CALM, ("probed", 1, ErrorCode.NONE), CALM,
    ("append", 1), CALM,
)  # fmt: skip


@pytest.mark.parametrize("added", [False, True])
def test_a_hurt_disk_stands_for_no_other(added: bool) -> None:
    """Found by a reviewer: what 3 once lost excused a commit on the disk of 1 alone, though 3 was
    no voter any more, or one with a new disk that had lost nothing (I5)."""
    quorum, state = begun(dynamic=True, wipes=("empty",))
    state = goes_on(quorum, state, *WIPED_AND_REMOVED, *(NEW_DISK_ADDED if added else ()))
    assert {each.key for each in state.known.hurt} == {key_of(3)}
    seen = [quorum.see(state, id) for id in (1, 2, 3)]
    assert seen[0].voters.is_voter(NEW) == added
    records = (*seen[0].records, Record(1, "alone"))
    seen[0] = seen[0]._replace(records=records, flushed=len(records), sure=len(records))
    told = len(records), records, seen[0].voters, 1, "leader"
    with pytest.raises(Violation, match="^I5"):
        quorum.oracle._committed(state.known, seen, seen[0], *told)


def test_who_lost_its_tail_may_lack_what_it_had() -> None:
    """Found by the search: an observer was added that had once had all, and crashed (D17)."""
    setting = Setting((1, 2, 3), (1, 2, 3), dynamic=True)
    oracle = Oracle(SimpleNamespace(setting=setting, seen=[]))  # type: ignore[arg-type]
    began = Record(2, "leader 2")
    had, left, leader = (
        each._replace(epoch=2)
        for each in (seen(1, (A, began), 1), seen(1, (A,)), seen(2, (A, began)))
    )
    known = oracle._cuts(Known(), had, left._replace(running=False))
    assert known.cut == {Cut(key_of(1), 2)}
    has_its_epoch(left, key_of(1), leader, known)
    with pytest.raises(Violation, match="^D17"):  # found by a reviewer: any cut excused it
        has_its_epoch(left, key_of(1), leader._replace(epoch=3), known)
    known = oracle._cuts(known, left, had)
    assert not known.cut, "it has records of its epoch again"
    with pytest.raises(Violation, match="^D17"):
        has_its_epoch(left, key_of(1), leader, known)


def test_a_removed_disk_is_not_hurt_though_another_log_is_empty() -> None:
    """Found by a reviewer: one without a log was taken to name the first voters for ever."""
    quorum, state = begun(ids=(1, 2, 3, 4), voters=(1, 2, 3), dynamic=True, wipes=("empty",))
    removed: tuple[Action, ...] = (("remove", 1, key_of(3)), CALM)
    emptied: tuple[Action, ...] = tuple(
        action for id in (4, 3) for action in (("crash", id, 0, 0), ("wipe", id, "empty"))
    )
    state = goes_on(quorum, state, *emptied[:2], *removed, *emptied[2:])
    assert not state.known.hurt


def test_a_disk_that_was_hurt_stands_for_what_it_held() -> None:
    """Found by a reviewer: it stood for all that was committed afterwards, for ever."""
    lost = judge(Known(hurt=disks(3)), [WHOLE[0], seen(2, (A,)), seen(3, ())],
                 ("committed", 2, (A, B), STATIC, 1, "leader"))  # fmt: skip
    assert lost.hurts(seen(3, (A,))).hurt == disks(3), "it held more before"
    later = lost.hurts(seen(3, (A, B, Record(2, "c"))))
    assert later.hurt == {Hurt(key_of(3), 3, 2, 1)}


@pytest.mark.parametrize("rule", ["I14", "I7"])
def test_a_disk_that_is_whole_again_has_no_excuse(rule: str) -> None:
    """Found by a reviewer: what it once lost excused what it lost or cut without being hurt."""
    quorum, state = begun()
    state = goes_on(quorum, state, ("append", 1), CALM, ("crash", 3, 0, 1), ("start", 3), CALM)
    whole = quorum.see(state, 3)
    assert whole.flushed == 2 and state.known.hurt_ids == {3}
    after = whole._replace(records=whole.records[:1], flushed=1)
    if rule == "I14":
        after = after._replace(running=False, role="down")
    with pytest.raises(Violation, match=f"^{rule}"):
        cut(state.known, whole, after, [quorum.see(state, id) for id in (1, 2)])


@pytest.mark.parametrize("transfer", [False, True])
def test_a_replaced_disk_may_have_cut_what_an_old_leader_counts(transfer: bool) -> None:
    """Found by a reviewer: 5 acknowledged to 1, cut that as 2 led, and has a new disk (D3, L1)."""
    ids = (1, 2, 3, 4, 5)
    quorum, state = begun(ids=ids, voters=ids, wipes=("empty",))
    state = goes_on(quorum, state, *(("cut", 1, id) for id in (2, 3, 4)), *(("append", 1),) * 3)
    state = drained(quorum, state, [(1, 5), (5, 1)], [5])
    state = goes_on(quorum, state, ("cut", 1, 5))
    state = drained(quorum, state, [p for id in ids[1:] for p in ((1, id), (id, 1))], [])
    state = goes_on(quorum, state, *(("timer", id, "fetch_deadline_ms") for id in (3, 4, 5, 2)))
    rest = [(one, other) for one in ids[1:] for other in ids[1:] if one != other]
    state = drained(quorum, state, rest, [2, 3, 4])
    state = goes_on(quorum, state, ("crash", 5, 0, 0), ("wipe", 5, "empty"))
    assert quorum.see(state, 1).role == quorum.see(state, 2).role == "leader"
    if transfer:
        goes_on(quorum, state, ("transfer", 1, 5))
    else:
        state = goes_on(quorum, state, ("append", 2))
        drained(quorum, state, [pair for pair in rest if 5 not in pair], [2, 3, 4])


def drained(
    quorum: Quorum, state: State, pairs: list[tuple[int, int]], flushes: list[int]
) -> State:
    """Let these pairs hear each other, and these disks flush, until nothing new comes of it."""
    actions: list[Action] = [("deliver", *pair) for pair in pairs]
    actions += [each for id in flushes for each in (("flushed", id), ("timer", id, "unflushed"))]
    for _ in range(200):
        for action in actions:
            after = quorum.apply(state, action)
            if after is not None and after != state:
                state = after
                break
        else:
            return state
    raise AssertionError("it goes on for ever")


def test_a_set_that_became_smaller_bears_less() -> None:
    """Found by a reviewer: the only voter left was hurt, as a minority of those at first (I4)."""
    quorum, state = begun(dynamic=True)
    removed: tuple[Action, ...] = (("remove", 1, key_of(3)), CALM, ("remove", 1, key_of(2)), CALM)
    hurts: Action = ("crash", 1, 0, 1)
    assert quorum.apply(state, hurts) is not None
    assert quorum.apply(goes_on(quorum, state, *removed), hurts) is None


def test_an_upgraded_quorum_adds_who_lost_its_tail() -> None:
    """Found by a reviewer's search: 2 had its leader's log, and lost the last of it (D17)."""
    quorum, state = begun(ids=(1, 2), voters=(1,), upgrades=True)
    before: tuple[Action, ...] = (("crash", 1, 0, 0), ("start", 1))
    tells: tuple[Action, ...] = (*(("deliver", 2, 1), ("deliver", 1, 2)) * 4, ("deliver", 2, 1))
    loses: tuple[Action, ...] = (
        ("flushed", 1), ("crash", 2, 0, 0), ("deliver", 2, 1), ("start", 2), ("deliver", 2, 1),
    )  # fmt: skip
    adds: tuple[Action, ...] = (
        ("upgrade", 1), ("flushed", 1), ("add", 1, key_of(2)), ("probed", 1, ErrorCode.NONE),
        ("deliver", 1, 2), ("deliver", 2, 1),
    )  # fmt: skip
    state = goes_on(quorum, state, *before, *tells, *loses, *adds)
    assert quorum.see(state, 1).voters.ids == (1, 2) and len(quorum.see(state, 2).records) == 1


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_leader_hands_over_to_a_disk_that_is_gone(dynamic: bool) -> None:
    """Found by the search: the leader counts what the disk before it held, and cannot know (L1)."""
    quorum, state = begun(dynamic=dynamic, wipes=("empty",))
    state = goes_on(quorum, state, ("crash", 3, 0, 0), ("wipe", 3, "empty"))
    goes_on(quorum, state, ("transfer", 1, 3))
