"""One allocation that fails, at every point of letting go of a leader: nothing is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.client.producer.identity import Identity
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import UnknownOutcome
from tests.client.kit import ScriptedReplica

LOST = UnknownOutcome("lost")
POINTS_MAX = 2000
testcapi: Any = pytest.importorskip("_testcapi")


def without_memory(point: int, call: Any, *arguments: Any) -> Any:
    """Make the call; its ``point``-th allocation fails."""
    testcapi.set_nomemory(point, point + 1)
    try:
        return call(*arguments)
    finally:
        testcapi.remove_mem_hooks()


@pytest.mark.parametrize("idempotent", [True, False])
def test_every_ticket_is_given_back_or_resolved(idempotent: bool) -> None:
    """Of batches that were taken, that were not, and of the open one."""
    failed = 0
    for point in range(1, POINTS_MAX):
        outcomes = Outcomes()
        replica = ScriptedReplica(outcomes, batch_bytes=300)
        sender = replica.sender
        if idempotent:
            sender.identity = Identity()
            sender.identity.begin(7, 0, 0, 0)
        for number in range(8):
            assert sender.append(b"v" * 100) == number
        assert sender.has_open and sender.under_way == 4
        replica.look(2)
        replica.leave()
        sender.poll()
        try:
            given_up = without_memory(point, sender.give_up, LOST)
            done = True
        except MemoryError:
            failed, done = failed + 1, False
            sender.seal()  # as another thread may do
            given_up = sender.give_up(LOST)
        tickets = list(range(outcomes.resolved))
        for _, first, count, _ in given_up:
            tickets += range(first, first + count)
        assert tickets == list(range(8)), f"allocation {point}"
        assert all(batch is not None for batch, *_ in given_up)
        replica.close()
        if done and failed:
            break
    assert failed > 10 and point < POINTS_MAX - 1
