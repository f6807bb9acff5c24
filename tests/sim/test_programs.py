"""Clients as they are, in the simulator: what they do there, and what is seen of their defects."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.sim.clients.program import SimLock, SimProgram
from kraftfast.sim.clients.remote_clients import RemoteNamed, RemoteReader
from kraftfast.sim.machines.event_loop import SimEventLoop
from kraftfast.sim.machines.tcp import TcpStream
from kraftfast.sim.swarm import SHORTER_FROM
from tests.sim.kit import Quorum
from tests.sim.steps import begun

CLIENTS = {"producers": 0, "real_producers": 2, "real_named": 1, "real_readers": 1}


HERE = {"producers": 0, "local_producers": 2, "local_named": 1, "local_admins": 1}
"""On the host of the replicas."""


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    """A quorum over sockets whose clients are all as they are."""
    made = Quorum(3, transport="socket", real_admins=1, **CLIENTS)
    yield made
    made.world.close()


@pytest.fixture(params=["remote", "here"])
def either(request: pytest.FixtureRequest) -> Iterator[Quorum]:
    """The same, and one whose clients reach it over rings and local sockets."""
    if request.param == "remote":
        yield request.getfixturevalue("quorum")
        return
    made = Quorum(3, transport="ring", **HERE)
    yield made
    made.world.close()


def programs(quorum: Quorum, kind: Any) -> list[Any]:
    return [each for each in quorum.world.programs if isinstance(each, kind)]


def test_clients_go_on_through_failovers(either: Quorum) -> None:
    """Leaders are killed, cut off and stopped; every record is where its producer was told."""
    quorum, world = either, either.world
    begun(quorum)
    for round in range(6):
        before = quorum.elections()
        world.run(400)
        leader = quorum.process(quorum.leader())
        if round % 3 == 0:
            world.end(leader.machine, power=True)
        elif round % 3 == 1:
            quorum.isolate(leader.id)
        else:
            leader.paused = True
        quorum.wait(lambda: quorum.elections() > before)  # noqa: B023
        quorum.heal()
        if leader.paused:
            leader.resume()
    quorum.finish()
    counts = world.counts
    assert counts["appends acknowledged"] > 50 and counts["records of real names"] > 10
    assert counts["real read barriers"] > 10
    for reader in programs(quorum, RemoteReader):
        assert reader.position > 50


def test_programs_that_are_killed_lose_nothing(either: Quorum) -> None:
    begun(either)
    for _ in range(30):
        either.world.run(60)
        either.world.nemesis._client_kill()
    either.finish()
    assert either.world.counts["real names taken"] > 3


def test_a_ring_that_is_full_is_waited_for() -> None:
    """And a replica that stands still takes nothing from it."""
    made = Quorum(3, transport="ring", value_bytes_max=3_000, append_every_ms=0.2, **HERE)
    begun(made)
    leader = made.process(made.leader())
    leader.paused = True
    made.world.run(2_000)
    filled = [each.link for each in leader.loop.door.producers.values()]
    assert filled and any(link.inbox.waiting() for link in filled)
    leader.resume()
    made.finish()
    made.world.close()


def test_a_name_goes_on_where_its_last_program_ended(either: Quorum) -> None:
    quorum = either
    begun(quorum)
    (named,) = programs(quorum, RemoteNamed)
    for _ in range(3):
        before = named.acknowledged
        named.restart()
        quorum.wait(lambda: named.acknowledged > before + 2)  # noqa: B023
    quorum.finish()


@pytest.mark.parametrize("clients", [CLIENTS, HERE])
def test_equal_seeds_are_equal_runs_with_them(clients: dict[str, int]) -> None:
    digests = set()
    for _ in range(2):
        made = Quorum(5, transport="socket", **clients)
        made.start()
        made.world.run(1_500)
        digests.add((made.world.digest, made.world.events))
        made.world.close()
    assert len(digests) == 1


def test_a_lock_is_held_by_one_thread_and_waited_for(quorum: Quorum) -> None:
    program = SimProgram(quorum.world, 99)
    lock, found = SimLock(program), []

    def hold(name: str, timeout: float) -> None:
        if lock.acquire(True, timeout):
            found.append(name)
            program.host.sleep(0.5)
            lock.release()
        else:
            found.append(f"{name} waits no more")

    for name, timeout in (("one", 1.0), ("two", 0.1), ("three", 2.0)):
        program.run(lambda name=name, timeout=timeout: hold(name, timeout))  # type: ignore[misc]
    quorum.world.run(3_000)
    assert found == ["one", "two waits no more", "three"]
    assert not lock.locked()


def test_a_process_that_has_ended_tells_of_no_task(
    quorum: Quorum, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the simulator: tasks of a killed program were told on stderr, in the midst of a sweep."""
    program = SimProgram(quorum.world, 97)
    loop = SimEventLoop(program)
    loop.call_exception_handler({"message": "nobody took it"})
    assert [each.message for each in caplog.records] == ["nobody took it"]
    program.end()
    loop.call_exception_handler({"message": "nobody is there"})
    program.begin_anew()
    loop.call_exception_handler({"message": "another process is there"})
    assert len(caplog.records) == 1
    loop.close()


# --- streams --------------------------------------------------------------------------------------


def connected(quorum: Quorum) -> tuple[TcpStream, TcpStream]:
    """Two ends of a connection, the asking one first, between two hosts that run nothing."""
    tcp = quorum.world.tcp
    asker, asked = (SimProgram(quorum.world, id).files for id in (98, 99))
    listener = TcpStream(asked, tcp)
    listener.bind(("host-99", 7))
    listener.listen(4)
    stream = TcpStream(asker, tcp)
    stream.connect_ex(("host-99", 7))
    quorum.wait(lambda: stream.state == "open")
    return stream, listener.accept()[0]


def read(stream: TcpStream) -> bytes:
    room = bytearray(1 << 16)
    try:
        return bytes(room[: stream.recv_into(room)])
    except BlockingIOError:
        return b""


def test_bytes_arrive_in_order_and_no_more_than_there_is_room_for(quorum: Quorum) -> None:
    asker, asked = connected(quorum)
    sent, got = 0, b""
    data = bytes(range(256)) * 20_000
    while len(got) < len(data):
        try:
            sent += asker.sendmsg([data[sent : sent + 300_000]])
        except BlockingIOError:
            assert asker.unread >= asker.room
        quorum.world.run(50)
        got += read(asked)
        assert sent - len(got) <= asker.room
    assert got == data


def test_a_full_socket_is_writable_once_a_third_of_its_buffer_is_free(quorum: Quorum) -> None:
    """As on Linux, in the latest seeds: a writer is not woken for each byte that is read."""
    quorum.world.seed = SHORTER_FROM
    asker, asked = connected(quorum)
    with pytest.raises(BlockingIOError):
        while True:
            asker.sendmsg([bytes(asker.room)])
    free, told = 0, []
    while free < asker.room // 2:
        quorum.world.run(2_000)
        free += asked.recv_into(bytearray(asker.room // 50))
        quorum.world.run(2_000)
        told.append((free, bool(asker.readiness() & select.EPOLLOUT)))
    assert {writable for free, writable in told if free < asker.room // 3} == {False}
    assert {writable for free, writable in told if free >= asker.room // 3} == {True}


def test_what_is_cut_off_waits(quorum: Quorum) -> None:
    asker, asked = connected(quorum)
    quorum.world.network.cut.add((98, 99))
    asker.sendmsg([b"late"])
    quorum.world.run(3_000)
    assert read(asked) == b""
    asked.sendmsg([b"the other way"])
    quorum.world.run(100)
    assert read(asker) == b"the other way"
    quorum.heal()
    quorum.world.run(1_000)
    assert read(asked) == b"late"


@pytest.mark.parametrize("power", [False, True])
def test_who_ends_hangs_up_and_who_loses_power_says_nothing(quorum: Quorum, power: bool) -> None:
    asker, asked = connected(quorum)
    asked.vanish(power)
    quorum.world.run(3_000)
    assert asker.at_end != power
    assert (asker.state == "ended") is False
    asker.sendmsg([b"is anybody there"])
    quorum.world.run(3_000)
    with pytest.raises(ConnectionResetError):
        asker.sendmsg([b"x"])


# --- on the host of the replicas ------------------------------------------------------------------

ASKERS = {"producers": 0, "local_producers": 1, "local_admins": 1, "local_askers": 1}


def asked() -> Quorum:
    made = Quorum(
        3, transport="ring", snapshots="machine", snapshot_bytes=4_000, retention_bytes=20_000,
        **ASKERS,
    )  # fmt: skip
    begun(made)
    return made


def test_state_machines_are_asked_through_the_doors() -> None:
    made = asked()
    made.world.run(2_000)
    made.finish()
    made.world.close()
    counts = made.world.counts
    assert counts["local questions answered"] > 20
    assert counts["local admins: status"] > 5 and counts["local admins: cluster id"] > 5


# --- in an event loop -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["remote", "local"])
def test_producers_of_asyncio_go_on_through_failovers(where: str) -> None:
    made = Quorum(4, producers=0, async_producers=where, append_every_ms=5.0)
    begun(made)
    for _ in range(4):
        made.world.run(400)
        made.world.nemesis._client_kill()
        made.world.run(400)
        made.world.end(made.process(made.leader()).machine, power=True)
    made.finish()
    made.world.close()
    counts = made.world.counts
    assert counts["async producers"] > 4 and counts["appends acknowledged"] > 50


def test_equal_seeds_are_equal_runs_with_an_event_loop() -> None:
    digests = set()
    for _ in range(2):
        made = Quorum(5, async_producers="local")
        made.start()
        made.world.run(1_500)
        digests.add((made.world.digest, made.world.events))
        made.world.close()
    assert len(digests) == 1
