"""What seeds from :data:`OPERATED_FROM` on do more: strangers, users, admins, closed quorums."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kraftfast.core.messages import UpdateFeaturesRequest
from kraftfast.errors import Closed, ErrorCode, KraftfastError
from kraftfast.node.replica_status import status
from kraftfast.sim.chance import Chance
from kraftfast.sim.machines.quorum_disk import MadeDisk
from kraftfast.sim.machines.sim_host import MEMORY_BYTES
from kraftfast.sim.operators import operating
from kraftfast.sim.operators.making_more import MakingMore
from kraftfast.sim.operators.operating import OperatorByAdmin
from kraftfast.sim.operators.supervising_more import SupervisingMore
from kraftfast.sim.settings import OPERATED_FROM, Delays, WorldSettings
from kraftfast.sim.swarm import THINNED, THINNED_FROM
from kraftfast.sim.world import run_seed
from tests.sim.kit import Quorum
from tests.sim.steps import add, begun, dynamic, ids


@pytest.mark.parametrize("user", ["remote", "local"])
@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_strangers_and_users_do_no_harm(user: str, transport: str) -> None:
    """Whatever they ask for; and a leader is killed, cut off and stopped meanwhile."""
    quorum = Quorum(
        OPERATED_FROM + 3, transport=transport, strangers=1, local_strangers=1, user=user,
        async_producers=user, snapshots="machine", snapshot_bytes=3_000,
    )  # fmt: skip
    begun(quorum)
    world = quorum.world
    for _ in range(4):
        world.run(500)
        leader = quorum.process(quorum.leader())
        before = quorum.elections()
        world.end(leader.machine, power=True)
        quorum.wait(lambda: quorum.elections() > before)  # noqa: B023
    quorum.finish()
    told = " ".join(world.counts)
    for what in (
        "asked by bold strangers: produce_odd", "asked by bold strangers: vote", "nobody: ",
        "clients of another quorum refused", "local strangers: knock", "looked at a quorum",
        "async producers",
    ):  # fmt: skip
        assert what in told, (what, world.counts)
    world.close()


def test_an_admin_has_a_voter_added_and_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating, "BY_ADMIN", 1.0)
    quorum = dynamic(OPERATED_FROM + 1, voters=3, observers=1)
    leader = begun(quorum)
    operator = quorum.world.operator
    assert isinstance(operator, OperatorByAdmin)
    for _ in range(20):
        order = operator.ask(leader, add(quorum, 4), [])
        quorum.wait(lambda: not order.is_open)  # noqa: B023
        if order.answer is ErrorCode.NONE:
            break
    assert ids(quorum) == (1, 2, 3, 4) and order.answer is ErrorCode.NONE
    quorum.finish()


def test_an_operator_that_dies_in_a_call_knows_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What he asked for may still be done: his order stays open for as long as that may be."""
    monkeypatch.setattr(operating, "BY_ADMIN", 1.0)
    quorum = Quorum(OPERATED_FROM + 1)
    leader = begun(quorum)
    operator = quorum.world.operator
    assert isinstance(operator, OperatorByAdmin)
    order = operator.ask(leader, UpdateFeaturesRequest(1), [])
    quorum.world.run(0.1)
    assert order.is_open and operator.program is not None
    operator.program.restart()
    assert order.is_open and order.answer is None
    quorum.wait(lambda: not order.is_open)


def test_a_replica_tells_nothing_of_the_simulators_process() -> None:
    """What that takes no seed decides, and its length is that of an answer."""
    quorum = Quorum(OPERATED_FROM + 4)
    assert status(begun(quorum))["rss_bytes"] == MEMORY_BYTES


def made_supervised(seed: int) -> Quorum:
    made = Quorum(seed, transport="ring", supervised=True, kraft_version=1, observers=1)
    assert isinstance(made.world.supervising, SupervisingMore)
    made.world.supervising.running = False
    begun(made)
    return made


@pytest.fixture
def supervised() -> Iterator[Quorum]:
    made = made_supervised(OPERATED_FROM + 2)
    yield made
    made.world.close()


def program(quorum: Quorum) -> Any:
    """The program of the supervisor."""
    return quorum.world.supervising


def does(quorum: Quorum, what: str) -> BaseException | None:
    """Have it do something with its quorum, and return what that raised."""
    found = program(quorum)
    ended: list[BaseException | None] = []

    def do() -> None:
        try:
            getattr(found, what)(found.quorum)
        except KraftfastError as error:
            ended.append(error)
        else:
            ended.append(None)

    quorum.wait(lambda: found.supervisor is not None and found.supervisor._started)
    found.running = True
    found.run(do)
    quorum.wait(lambda: bool(ended), 60_000)
    found.running = False
    return ended[0]


def test_a_quorum_is_closed_under_its_clients(supervised: Quorum) -> None:
    """The next one has everything."""
    assert isinstance(does(supervised, "_close_under"), Closed)
    supervised.world.run(3_000)
    supervised.finish()


def test_clients_of_a_quorum_that_is_closed_are_told() -> None:
    """In this seed several of its threads are at work with it."""
    made = made_supervised(OPERATED_FROM + 6)
    assert isinstance(does(made, "_close_under"), Closed)
    made.world.run(3_000)
    assert made.world.counts["threads whose quorum was closed"]
    made.world.close()


def test_an_observer_is_stopped_and_comes_back(supervised: Quorum) -> None:
    machine = supervised.world.machine(4)
    assert does(supervised, "_observer") is None
    assert machine.process is None and program(supervised).stopped == {4}
    supervised.wait(lambda: supervised.world.counts["observers added again"] == 1)
    assert machine.process is not None
    supervised.finish()


def test_a_page_that_cannot_be_read_keeps_a_replica_down(supervised: Quorum) -> None:
    """D9: by its exit code, for it could say nothing; an operator has it tried again."""
    assert does(supervised, "_unmapped") is None
    (id,) = [each.id for each in supervised.world.machines if each.process is None]
    supervised.wait(lambda: supervised.world.counts["workers tried again"] == 1)
    supervised.wait(lambda: supervised.world.machine(id).process is not None)
    supervised.finish()


def test_what_makes_no_quorum_is_refused() -> None:
    """D19, with crashes in between."""
    quorum = Quorum(OPERATED_FROM + 2, supervised=True)
    found = program(quorum)
    for number in range(12):
        host = found.host_type(found)
        making = MakingMore(host, Random(number))
        host.disk = MadeDisk(found, making.disk, found.random)
        done: list[bool] = []
        found.run(lambda: done.append(making.run() is None))  # noqa: B023
        quorum.wait(lambda: bool(done), 60_000)  # noqa: B023


def test_equal_seeds_are_equal_runs() -> None:
    seeds = range(OPERATED_FROM, OPERATED_FROM + 60)
    chosen = {each: WorldSettings.of_seed(each, short=True) for each in seeds}
    wanted = [each for each, one in chosen.items() if one.supervised and one.user][:1]
    wanted += [each for each, one in chosen.items() if one.async_producers and one.strangers][:1]
    for seed in wanted:
        one, other = (run_seed(seed, chosen[seed]) for _ in range(2))
        assert one["ok"], one["violation"]
        assert (one["digest"], one["events"]) == (other["digest"], other["events"])
    assert len(wanted) == 2


def test_short_runs_have_fewer_clients_from_a_seed_on() -> None:
    """Each kind of client is in some of them, and long runs and older seeds are what they were."""
    seeds = range(THINNED_FROM, THINNED_FROM + 300)
    short = [WorldSettings.of_seed(each, short=True) for each in seeds]
    long = [WorldSettings.of_seed(each) for each in seeds]
    for name in THINNED:
        here, there = (sum(bool(getattr(each, name)) for each in some) for some in (short, long))
        assert 0 < here < max(there, 300)
    assert {each.answer_ms for each in short} == {each.silence_ms for each in short} == {200}
    before = WorldSettings.of_seed(THINNED_FROM - 1, short=True)
    assert (before.answer_ms, before.silence_ms) == (3_000, 2_000)
    assert {each.answer_ms for each in long} == {3_000}


def test_draws_are_those_of_random() -> None:
    one, other = Chance(5), Random(5)
    for _ in range(2_000):
        first = one.randint(-5, 1_000)
        last = first + one.randint(0, 1 << 40)
        assert first == other.randint(-5, 1_000) and last == first + other.randint(0, 1 << 40)
        assert one.randint(first, last) == other.randint(first, last)
        assert one.random() == other.random() and one.choice("abc") == other.choice("abc")
        drawn, _ = Delays(spike_share=0.0).draw(one), other.random()  # which asks for a spike
        assert drawn == 1 + int(other.expovariate(1.0) * 300)
    with pytest.raises(ValueError):
        one.randint(2, 1)


@pytest.mark.parametrize("power", [False, True])
def test_a_replica_without_descriptors_outlives_its_peers(power: bool) -> None:
    """It watched the process behind a link that broke by another descriptor, and ended of that."""
    quorum = Quorum(3, transport="ring")
    leader = begun(quorum)
    others = [quorum.process(id) for id in quorum.ids if id != leader.id]
    for each in others:
        each.files.full = True
    quorum.world.end(leader.machine, power)
    before = quorum.elections()
    quorum.wait(lambda: quorum.elections() > before)
    for each in others:
        assert each.alive
        each.files.full = False
    quorum.finish()
