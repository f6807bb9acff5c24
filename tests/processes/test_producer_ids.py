"""Idempotent append and InitProducerId, asked for by hand from replicas that run."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftfast import limits
from kraftfast.client.local_connector import LocalConnector
from kraftfast.client.producer.identity import Identity
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import ErrorCode, TimedOut
from kraftfast.log.small_files.id_ranges import EPOCH_SHIFT
from kraftfast.quorum import LocalQuorum, free_port
from tests.processes.kit import (
    a_quorum,
    followers_of,
    leader_of,
    pid_of,
    wait_back,
    wait_until,
)
from tests.processes.producers import NONE, Answer, Raw, a_batch, is_silent

pytestmark = pytest.mark.processes
DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def free_ports_behind() -> int:
    """A port with three free ones behind it, for the replicas."""
    while True:
        port = free_port("127.0.0.1")
        try:
            for number in (1, 2, 3):
                socket.create_server(("127.0.0.1", port + number)).close()
        except OSError:
            continue
        return port


@pytest.fixture(scope="module", params=["socket", "ring"])
def quorum(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalQuorum]:
    """Three voters that can be asked over sockets, whatever they use among themselves."""
    settings: dict[str, Any] = {"transport": request.param}
    if request.param == "ring":
        settings["port"] = free_ports_behind()
    path = tmp_path_factory.mktemp("producers")
    with a_quorum(path / "q", fetch_timeout_ms=2000, producers_max=40, **settings) as found:
        yield found


def new_id(raw: Raw) -> int:
    granted = raw.init()
    assert (granted.error_code, granted.producer_epoch) == (NONE, 0)
    return int(granted.producer_id)


# --- what a leader answers to a batch -----------------------------------------------------------


def test_a_duplicate_is_answered_with_the_first_offset(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw:
        id = new_id(raw)
        first = raw.produce(id, 0, 0, 3)
        assert first.error is NONE
        second = raw.produce(id, 0, 3)
        assert second == Answer(NONE, first.base_offset + 3)
        assert raw.produce(id, 0, 0, 3) == first
        assert raw.produce(id, 0, 3) == second
        assert raw.produce(id, 0, 4) == Answer(NONE, first.base_offset + 4)


def test_what_is_refused_is_not_appended(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw:
        id = new_id(raw)
        assert raw.produce(id, 0, 7).error is ErrorCode.UNKNOWN_PRODUCER_ID
        begin = raw.produce(id, 1, 0).base_offset
        assert raw.produce(id, 1, 2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert raw.produce(id, 1, 0, 2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert raw.produce(id, 0, 1).error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert raw.produce(id, 2, 1).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert raw.produce(id, 1, -1).error is ErrorCode.INVALID_RECORD
        assert raw.produce(id, 1, 1) == Answer(NONE, begin + 1), "nothing came in between"


def test_a_client_that_replays_everything_does_not_duplicate(quorum: LocalQuorum) -> None:
    """More than five batches, more than are remembered: each is answered, none is appended."""
    count = 2 * limits.PRODUCER_BATCHES
    with Raw(quorum) as raw:
        id, other = new_id(raw), new_id(raw)
        offsets = []
        for sequence in range(count):
            offsets.append(raw.produce(id, 0, sequence).base_offset)
            raw.produce(other, 0, sequence)
        for sequence in range(count):
            raw.send(a_batch(id, 0, sequence))
        answers = [raw.answer() for _ in range(count)]
        known = limits.PRODUCER_BATCHES
        assert answers[:-known] == [Answer(DUPLICATE, -1)] * (count - known)
        assert answers[-known:] == [Answer(NONE, offset) for offset in offsets[-known:]]
        assert raw.produce(id, 0, count).base_offset == offsets[-1] + 2


@contextmanager
def without_followers(quorum: LocalQuorum) -> Iterator[None]:
    """Nothing is committed as long as it lasts."""
    followers = followers_of(quorum)
    for follower in followers:
        quorum.kill(follower, signal.SIGSTOP)
    try:
        yield
    finally:
        for follower in followers:
            quorum.kill(follower, signal.SIGCONT)


def test_a_duplicate_waits_for_the_commit_of_the_original(quorum: LocalQuorum) -> None:
    """Also where nobody waits for the original any more."""
    with Raw(quorum) as one, Raw(quorum) as other:
        id = new_id(one)
        assert one.produce(id, 0, 0).error is NONE
        with without_followers(quorum):
            one.send(a_batch(id, 0, 1), timeout_ms=100)
            assert one.answer().error is ErrorCode.REQUEST_TIMED_OUT
            other.send(a_batch(id, 0, 1))
            assert is_silent(other, 0.5), "it may be lost yet"
        answer = other.answer()
        assert answer.error is NONE and one.produce(id, 0, 1) == answer


def test_a_duplicate_over_a_ring_waits_too(quorum: LocalQuorum) -> None:
    connector = LocalConnector(quorum.directories, 4096, 8)
    with Raw(quorum) as raw:
        id = new_id(raw)

    def send(outcomes: Outcomes) -> Any:
        sender = connector.connect(outcomes, 0, time.monotonic() + 5)
        sender.identity = Identity()
        sender.identity.begin(id, 0, 0, 0)
        sender.append(b"the same")
        sender.seal()
        time.sleep(0.3)
        sender.poll()
        return sender

    first, second = Outcomes(), Outcomes()
    with without_followers(quorum):
        send(first).close()
        waiting = send(second)
        assert second.resolved == 0 and waiting.broken is None
    offsets = set()
    for _ in range(2):
        leader_of(quorum)
        later = Outcomes()
        sender = send(later)
        wait_until(lambda each=sender, to=later: each.poll() or to.resolved or each.broken)
        offsets |= {later.offset_of(0)} if later.resolved else set()
        sender.close()
    waiting.poll()
    assert waiting.broken is not None or second.resolved == 1, "unless that leader has resigned"
    assert len(offsets | ({second.offset_of(0)} if second.resolved else set())) == 1
    assert first.resolved == 0
    waiting.close()


# --- ids and names --------------------------------------------------------------------------------


def test_every_version_is_served(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw:
        ids = {raw.init(version=version).producer_id for version in range(6)}
        named = [raw.init("versions", version) for version in range(6)]
    assert len(ids) == 6
    assert [each.producer_epoch for each in named] == list(range(0, 12, 2))
    assert len({each.producer_id for each in named}) == 1


def test_what_cannot_be_named(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw, Raw(quorum, followers_of(quorum)[0]) as follower:
        assert raw.init("").error_code == ErrorCode.INVALID_REQUEST
        assert raw.init("n" * 256).error_code == ErrorCode.INVALID_REQUEST
        assert raw.init("x", transaction_timeout_ms=0).error_code == (
            ErrorCode.INVALID_TRANSACTION_TIMEOUT
        )
        assert follower.init("x").error_code == ErrorCode.NOT_COORDINATOR
        assert follower.init().error_code == NONE, "Kafka's clients ask anybody"


def test_a_name_fences_who_had_it(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw:
        old = raw.init("fences")
        assert raw.produce(old.producer_id, 0, 0, 2).error is NONE
        new = raw.init("fences")
        assert (new.producer_id, new.producer_epoch) == (old.producer_id, 2)
        assert (new.last_sequence, new.last_offset) == (-1, -1), "Kafka's begin with 0"
        assert raw.produce(old.producer_id, 0, 2).error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert raw.produce(new.producer_id, 2, 2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert raw.produce(new.producer_id, 2, 0).error is NONE


def test_a_name_that_resumes_tells_how_far_it_got(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw:
        old = raw.init("resumes", resumes=True)
        assert old.last_sequence == -1
        offset = raw.produce(old.producer_id, 0, 0, 5).base_offset
        new = raw.init("resumes", resumes=True)
        assert (new.last_sequence, new.last_offset) == (4, offset + 4)
        assert raw.produce(new.producer_id, 2, 0, 5) == Answer(NONE, offset)
        assert raw.produce(new.producer_id, 2, 5).error is NONE


def test_only_who_has_the_name_gets_its_next_epoch(quorum: LocalQuorum) -> None:
    fenced = ErrorCode.PRODUCER_FENCED
    with Raw(quorum) as raw:
        had = raw.init("expected")
        mine = {"producer_id": had.producer_id, "producer_epoch": 0}
        assert raw.init("expected", **mine).producer_epoch == 1
        assert raw.init("expected").producer_epoch == 3, "another one has begun"
        assert raw.init("expected", **mine).error_code == fenced
        assert raw.init("expected", 3, **mine).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        unknown = raw.init("never seen", **mine)
        assert unknown.error_code == ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_name_whose_answer_was_lost_is_granted_once(quorum: LocalQuorum) -> None:
    """A producer that asks again, because no answer came in time, is not fenced by itself."""
    with Raw(quorum) as raw:
        had = raw.init("asks again", resumes=True)
        mine = {"producer_id": had.producer_id, "producer_epoch": 0, "resumes": True}
        assert raw.produce(had.producer_id, 0, 0, 3).error is NONE
        with Raw(quorum) as impatient, without_followers(quorum):
            with pytest.raises(TimedOut):
                impatient.init("asks again", patience_s=0.3, **mine)
        leader_of(quorum)
        for _ in range(2):
            with Raw(quorum) as again:
                granted = again.init("asks again", **mine)
                assert (granted.error_code, granted.producer_epoch) == (NONE, 1)
                assert granted.last_sequence == 2
        with Raw(quorum) as again:
            assert again.produce(had.producer_id, 1, 3).error is NONE
            assert again.init("asks again").producer_epoch == 3
            fenced = again.init("asks again", **mine)
            assert fenced.error_code == ErrorCode.PRODUCER_FENCED


def test_the_producer_that_was_silent_longest_is_forgotten(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw:
        named, id = raw.init("stays", resumes=True), new_id(raw)
        raw.produce(named.producer_id, 0, 0)
        raw.produce(id, 0, 0)
        for _ in range(40):
            assert raw.produce(new_id(raw), 0, 0).error is NONE
        assert raw.produce(id, 0, 1).error is ErrorCode.UNKNOWN_PRODUCER_ID
        assert raw.init("stays", resumes=True).last_sequence == 0


# --- other leaders --------------------------------------------------------------------------------


def kill_leader(quorum: LocalQuorum) -> None:
    leader = leader_of(quorum)
    pid = pid_of(quorum, leader)
    quorum.kill(leader)
    wait_back(quorum, leader, pid)
    leader_of(quorum)


def test_the_next_leader_knows_them(quorum: LocalQuorum) -> None:
    with Raw(quorum) as raw:
        id = new_id(raw)
        named = raw.init("survives", resumes=True)
        first = raw.produce(id, 0, 0, 2)
        raw.produce(named.producer_id, 0, 0, 7)
    for _ in range(2):
        kill_leader(quorum)
        with Raw(quorum) as raw:
            assert raw.produce(id, 0, 0, 2) == first
            assert raw.produce(id, 0, 3).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with Raw(quorum) as raw:
        again = raw.init("survives", resumes=True)
        assert (again.producer_id, again.producer_epoch) == (named.producer_id, 2)
        assert again.last_sequence == 6


def test_no_id_comes_twice(quorum: LocalQuorum) -> None:
    """From leaders of several epochs, from replicas that do not lead, after restarts.

    No clock makes them: one that is wrong gave the same id to many producers, whose records were
    taken for repeats.
    """
    ids = []
    for _ in range(3):
        for id in quorum.directories:
            with Raw(quorum, id) as raw:
                ids += [new_id(raw) for _ in range(20)]
        epoch = quorum.statuses()[leader_of(quorum)]["epoch"]
        assert {id >> EPOCH_SHIFT for id in ids[-60:]} == {epoch}
        kill_leader(quorum)
    assert len(ids) == len(set(ids))


def test_ids_are_asked_for_again_while_there_is_no_leader(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", transport="socket", fetch_timeout_ms=60_000) as quorum:
        leader = leader_of(quorum)
        with Raw(quorum, followers_of(quorum)[0]) as follower:
            quorum.kill(leader, signal.SIGSTOP)
            try:
                assert follower.init().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            finally:
                quorum.kill(leader, signal.SIGCONT)


def test_all_are_killed_and_know_them_again(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", transport="socket") as quorum:
        with Raw(quorum) as raw:
            named = raw.init("again", resumes=True)
            first = raw.produce(named.producer_id, 0, 0, 2)
        pids = {id: pid_of(quorum, id) for id in quorum.directories}
        for id in pids:
            quorum.kill(id)
        for id, pid in pids.items():
            wait_back(quorum, id, pid)
        with Raw(quorum) as raw:
            assert raw.produce(named.producer_id, 0, 0, 2) == first
            assert raw.init("again", resumes=True).last_sequence == 1


def test_without_a_majority_a_name_is_not_given(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", transport="socket", fetch_timeout_ms=30_000) as quorum:
        followers = followers_of(quorum)
        with Raw(quorum) as raw:
            for follower in followers:
                quorum.kill(follower, signal.SIGSTOP)
            try:
                with pytest.raises(TimedOut):
                    raw.init("n", patience_s=0.7)
            finally:
                for follower in followers:
                    quorum.kill(follower, signal.SIGCONT)
        with Raw(quorum) as raw:
            assert raw.init("n").producer_epoch in (0, 2), "the first may have been committed"
