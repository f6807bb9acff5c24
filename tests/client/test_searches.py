"""How long a producer that looks for a leader waits between two attempts."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.client.client_host import KernelClientHost
from kraftfast.client.producer.own_threads import PAUSE_S
from kraftfast.client.producer.producer import Producer
from kraftfast.client.search import ELSEWHERE_S, FULL_PAUSE_S, Elsewhere, Full, Search
from kraftfast.errors import KraftfastError, NotLeader
from tests.client.scripted_quorum import ScriptedQuorum


class Host(KernelClientHost):
    """Notes pauses instead of making them."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


class Failing(ScriptedQuorum):
    """There is a leader once all ``problems`` were met."""

    def __init__(self, problems: list[KraftfastError]) -> None:
        super().__init__()
        self.problems, self.host = problems, Host()

    def connect(self, *arguments: Any) -> Any:
        if self.problems:
            raise self.problems.pop(0)
        return super().connect(*arguments)


@pytest.mark.parametrize(
    ("said", "pauses"),
    [
        ("fff", [PAUSE_S, 3 * PAUSE_S, 9 * PAUSE_S]),
        ("fnf", [PAUSE_S, PAUSE_S, PAUSE_S]),
        ("fffff", [0.005, 0.015, 0.045, FULL_PAUSE_S, FULL_PAUSE_S]),
    ],
)
def test_a_leader_that_ended_is_not_taken_for_one_without_room(
    said: str, pauses: list[float]
) -> None:
    """Both hang up. Only one that goes on saying so is left alone for FULL_PAUSE_S."""
    quorum = Failing([Full("hung up") if each == "f" else NotLeader("none") for each in said])
    producer = Producer(quorum)
    assert quorum.host.pauses == pytest.approx(pauses)
    producer.close()
    quorum.stop()


def test_a_leader_that_is_elsewhere_is_not_looked_for_until_the_deadline() -> None:
    """For a moment another one may still be elected here."""
    now = [10.0]
    search = Search(deadline=100.0, now=lambda: now[0])
    for error, wait_s, is_over in [
        (Elsewhere("4 leads", 4), ELSEWHERE_S / 2, False),
        (NotLeader("none leads"), ELSEWHERE_S, False),
        (Elsewhere("5 leads", 5), ELSEWHERE_S, False),
        (Elsewhere("5 leads", 5), 0.0, True),
    ]:
        assert search.is_over(error) is is_over
        now[0] += wait_s
