"""Read barriers: who is asked, and which callers share a question."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import kraftfast
from kraftfast.client import local_socket
from kraftfast.client.admin.admin import Admin, AsyncAdmin
from kraftfast.client.admin.admin_ways import LocalWay, RemoteWay
from kraftfast.client.admin.read_barriers import ReadBarriers
from kraftfast.client.client_host import HOST
from kraftfast.client.cluster import Cluster
from kraftfast.errors import ErrorCode, NoQuorum, PeerGone, TimedOut
from kraftfast.link.kernel import KernelLocal
from kraftfast.quorum import LocalQuorum
from kraftfast.wire.messages import DescribeQuorumResponse
from tests.client.kit import wait_until


class Replica:
    """Answers each question with the next of these, or raises it; ``leader_id``: who leads."""

    def __init__(self, *answers: int | ErrorCode | Exception, leader_id: int = -1) -> None:
        self.answers, self.closed, self.leader_id = list(answers), 0, leader_id

    def ask(self, *_question: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ErrorCode):
            return DescribeQuorumResponse(error_code=answer, error_message="")
        return DescribeQuorumResponse(barrier_offset=answer, barrier_leader_id=self.leader_id)

    def close(self) -> None:
        self.closed += 1


class Way:
    """``likely`` is known to have led, ``leader`` is found by a search."""

    topic = "log"

    host = HOST

    def __init__(self, likely: Replica | None, leader: Replica) -> None:
        self.known, self.leader, self.searches = likely, leader, 0
        self.told: list[int] = []

    def likely(self, _deadline: float) -> Replica | None:
        return self.known

    def learn_leader(self, leader_id: int) -> None:
        self.told.append(leader_id)

    def to_leader(self, _deadline: float) -> Replica:
        self.searches += 1
        return self.leader


def test_the_replica_that_led_last_is_asked_without_a_search() -> None:
    way = Way(Replica(7, 8), Replica())
    admin = Admin(way)
    assert [admin.read_barrier(), admin.read_barrier()] == [7, 8]
    assert (way.searches, way.known and way.known.closed) == (0, 2)


@pytest.mark.parametrize(
    "answer", [PeerGone("gone"), TimedOut("silent"), ErrorCode.REQUEST_TIMED_OUT, -1]
)
def test_where_it_gives_no_answer_the_leader_is_looked_for(answer: Any) -> None:
    way = Way(Replica(answer), Replica(9))
    assert Admin(way).read_barrier() == 9
    assert way.searches == 1


def test_who_answers_says_who_leads() -> None:
    way = Way(Replica(7, leader_id=3), Replica())
    Admin(way).read_barrier()
    found = Way(None, Replica(8, leader_id=2))
    Admin(found).read_barrier()
    assert (way.told, found.told) == ([3], [2])


def at_the_leader(quorum: LocalQuorum, way: Any, led: Callable[[], Any], ask: Any) -> None:
    """After a change of leader the former one is asked once more, and then the present one."""
    ask()
    former = quorum.leader()
    assert former is not None
    before = led()
    successor = next(id for id in (1, 2, 3) if id != former)
    quorum.transfer(to=successor)
    wait_until(lambda: quorum.leader() == successor)
    ask()
    assert led() != before
    asked: list[Any] = []
    likely = way.likely
    way.likely = lambda until: asked.append(led()) or likely(until)
    way.to_leader = None  # nobody is looked for
    assert ask() >= 0
    assert asked == [led()]


def test_after_a_change_of_leader_the_present_one_is_asked(ring_quorum: LocalQuorum) -> None:
    way = LocalWay(ring_quorum.directories, ring_quorum.description.topic)
    admin = Admin(way)
    at_the_leader(ring_quorum, way, lambda: way._led, admin.read_barrier)
    assert way._kept.directory == ring_quorum.directories[ring_quorum.leader() or 0]
    admin.lose_quorum()


def test_after_a_change_of_leader_the_present_one_is_asked_by_coroutines(
    ring_quorum: LocalQuorum,
) -> None:
    way = LocalWay(ring_quorum.directories, ring_quorum.description.topic)
    admin = AsyncAdmin(Admin(way))
    at_the_leader(ring_quorum, way, lambda: way._led, lambda: asyncio.run(admin.read_barrier()))
    admin.admin.lose_quorum()


def test_after_a_change_of_leader_the_present_one_is_asked_over_sockets(
    socket_quorum: LocalQuorum,
) -> None:
    with kraftfast.connect(socket_quorum.addresses.values()) as quorum:
        admin = quorum.admin()
        way: Any = admin.way
        at_the_leader(socket_quorum, way, lambda: way.cluster.led, admin.read_barrier)


def test_a_leader_that_is_not_known_here_is_looked_for() -> None:
    way = LocalWay({1: "one", 2: "two"})
    way._led = 1
    way.learn_leader(-1)
    assert way._led == 1
    way.learn_leader(7)
    assert way._led is None
    cluster = Cluster([("host", 1)], "log")
    cluster.led = ("host", 1)
    RemoteWay(cluster).learn_leader(-1)
    assert cluster.led == ("host", 1)
    RemoteWay(cluster).learn_leader(7)
    assert cluster.led is None


def test_a_leader_that_reaches_no_majority_says_so() -> None:
    way = Way(Replica(ErrorCode.REQUEST_TIMED_OUT), Replica())
    with pytest.raises(TimedOut, match="no read barrier in time: REQUEST_TIMED_OUT"):
        Admin(way).read_barrier(timeout=0.5)


def test_a_quorum_looks_for_its_leader_once(
    ring_quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring_quorum.read_barrier()
    monkeypatch.setattr(type(ring_quorum.admin().way), "to_leader", None)  # not called again
    with ring_quorum.producer() as producer:
        offset = producer.append_wait(b"one")
    assert ring_quorum.read_barrier() > offset


def test_questions_share_a_connection(
    ring_quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = ring_quorum.admin()
    admin.read_barrier()
    admin.read_barrier()  # who led is known by now
    monkeypatch.setattr(KernelLocal, "connect", None)  # not called again
    assert admin.read_barrier() >= 0


def test_a_connection_that_its_replica_gave_up_is_made_anew(ring_quorum: LocalQuorum) -> None:
    admin = ring_quorum.admin()
    admin.read_barrier()
    admin.read_barrier()
    kept = admin.way._kept
    kept._sock.shutdown(socket.SHUT_RDWR)
    assert admin.read_barrier() >= 0
    assert admin.way._kept is kept and kept._sock is not None


def test_what_comes_late_answers_no_other_question() -> None:
    """A question that ran out of time leaves nothing behind on its connection."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        kept = local_socket.KeptConnection("nowhere")
        kept._sock = mine
        with pytest.raises(TimedOut):
            kept.ask_raw({"kind": "request"}, 0.01)
        assert kept._sock is None and b"again" in theirs.recv(1000)
        with pytest.raises(BrokenPipeError):
            theirs.send(b"late")


class Question:
    """Puts questions that a test answers; ``begun`` counts them."""

    def __init__(self) -> None:
        self.begun = 0
        self.answers: list[int | Exception] = []
        self.answered = threading.Semaphore(0)

    def __call__(self, _deadline: float) -> int:
        self.begun += 1
        assert self.answered.acquire(timeout=10)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(self, answer: int | Exception) -> None:
        self.answers.append(answer)
        self.answered.release()


def calls(barriers: ReadBarriers, count: int, found: list[Any]) -> list[threading.Thread]:
    """So many callers, each in a thread, that note what comes back."""

    def read() -> None:
        try:
            found.append(barriers.read(time.monotonic() + 10))
        except Exception as error:  # noqa: BLE001 - it is looked at
            found.append(error)

    threads = [threading.Thread(target=read) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def waiting(barriers: ReadBarriers) -> int:
    """How many callers wait for others."""
    found = [frame.f_locals for frame in sys._current_frames().values()]
    return sum(each.get("self") is barriers and "left" in each for each in found)


def test_all_who_come_while_a_question_is_under_way_share_the_next() -> None:
    question = Question()
    barriers = ReadBarriers(question, HOST)
    first: list[Any] = []
    later: list[Any] = []
    threads = calls(barriers, 1, first)
    wait_until(lambda: question.begun == 1)
    threads += calls(barriers, 20, later)
    wait_until(lambda: waiting(barriers) == 20)
    question.answer(5)
    wait_until(lambda: question.begun == 2)
    assert not later, "what is under way may have been answered before they came"
    question.answer(6)
    for thread in threads:
        thread.join(10)
    assert (first, later, question.begun) == ([5], [6] * 20, 2)


def test_a_question_that_fails_fails_for_one_caller() -> None:
    question = Question()
    barriers = ReadBarriers(question, HOST)
    found: list[Any] = []
    threads = calls(barriers, 1, found)
    wait_until(lambda: question.begun == 1)
    threads += calls(barriers, 2, found)
    wait_until(lambda: waiting(barriers) == 2)
    question.answer(NoQuorum("none"))
    question.answer(7)
    for thread in threads:
        thread.join(10)
    assert isinstance(found[0], NoQuorum) and found[1:] == [7, 7]


def test_who_waits_for_others_waits_no_longer_than_wanted() -> None:
    question = Question()
    barriers = ReadBarriers(question, HOST)
    threads = calls(barriers, 1, [])
    wait_until(lambda: question.begun == 1)
    with pytest.raises(TimedOut):
        barriers.read(time.monotonic() + 0.01)
    question.answer(1)
    threads[0].join(10)


def test_each_call_of_an_admin_can_be_awaited() -> None:
    """Two could not, though ``async_admin`` says so."""
    calls = {name for name in vars(Admin) if not name.startswith("_")}
    assert calls - set(vars(AsyncAdmin)) == {"lose_quorum"}
