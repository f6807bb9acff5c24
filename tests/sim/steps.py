"""What directed histories are told in: a quorum is begun, asked, and waited for."""

from __future__ import annotations

from typing import Any

from kraftfast.core import messages as msg
from kraftfast.errors import ErrorCode
from kraftfast.sim.machines.process import Process
from kraftfast.sim.operators.operator import Order
from tests.sim.kit import Quorum

NEVER_ENDS = 10_000_000
"""How much slower than usual a disk is that a test waits for in vain."""
BESIDE: dict[str, Any] = {"inline_flush_bytes_max": 0, "follower_inline_flush_bytes_max": 0}
"""Every flush takes its time, beside the loop."""


def dynamic(seed: int, voters: int = 3, observers: int = 1, **settings: Any) -> Quorum:
    """A quorum whose log says who votes."""
    chosen = {"voters": voters, "observers": observers, "kraft_version": 1} | BESIDE
    return Quorum(seed, **(chosen | settings))


def begun(quorum: Quorum) -> Process:
    """Start it, and wait until something is committed; the leader."""
    quorum.start()
    quorum.reach(10)
    return quorum.process(quorum.leader())


def answered(quorum: Quorum, order: Order) -> ErrorCode:
    """Wait for an answer."""
    quorum.wait(lambda: order.answer is not None)
    assert order.answer is not None
    return order.answer


def accepted(quorum: Quorum, make: Any) -> None:
    """Ask whoever leads until it is done; ``make()`` is the request."""
    for _ in range(100):
        leader = quorum.process(quorum.leader())
        order = quorum.world.operator.ask(leader, make(), [])
        quorum.wait(lambda: not order.is_open)  # noqa: B023
        if order.answer is ErrorCode.NONE:
            return
        quorum.world.run(100)
    raise AssertionError(f"refused for ever: {order.answer} {quorum.world.state()}")


def add(quorum: Quorum, id: int) -> msg.AddRaftVoterRequest:
    machine = quorum.world.machine(id)
    return msg.AddRaftVoterRequest(machine.key, machine.endpoints, 1_000)


def remove(quorum: Quorum, id: int) -> msg.RemoveRaftVoterRequest:
    voters = quorum.world.voter_set()
    return msg.RemoveRaftVoterRequest(voters.key(id))


def ids(quorum: Quorum) -> tuple[int, ...]:
    """Who votes, by what is committed."""
    return quorum.world.voter_set().ids


def followers(quorum: Quorum, leader: Process) -> list[int]:
    return [id for id in quorum.voters if id != leader.id]


def with_snapshots(seed: int, kind: str = "machine", **settings: Any) -> Quorum:
    """A quorum whose logs are short: what is older is in snapshots of many slices."""
    chosen: dict[str, Any] = {
        "snapshots": kind,
        "snapshot_bytes": 4_000,
        "state_bytes": 6_000,
        "retention_bytes": 8_000,
        "segment_bytes": 8 * 1024,
        "fetch_snapshot_max_bytes": 1_500,
        "append_every_ms": 10.0,
    }
    return dynamic(seed, **(chosen | settings))


def shortened(quorum: Quorum) -> Process:
    """Wait until logs begin at snapshots; the leader."""
    leader = begun(quorum)
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > 20)
    return leader
