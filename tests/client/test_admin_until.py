"""What an operator's call says when its time is over."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.client.admin.admin import TRY_AGAIN, Admin
from kraftfast.client.client_host import HOST
from kraftfast.errors import NoQuorum, RequestRefused, TimedOut


class Way:
    """A leader that refuses once, and cannot be asked from then on."""

    topic = "topic"
    host = HOST

    def __init__(self) -> None:
        self.asked = 0

    def to_leader(self, _deadline: float) -> Any:
        self.asked += 1
        if self.asked > 1:
            raise NoQuorum("no time left for asking")
        return SimpleNamespace(close=lambda: None)


def test_the_last_refusal_is_told() -> None:
    """On a busy machine a new voter that did not answer was reported as a missing leader."""
    way: Any = Way()

    def ask(_leader: Any, _until: float) -> None:
        raise RequestRefused("replica 2 did not answer", min(TRY_AGAIN))

    admin = Admin(way)
    with pytest.raises(TimedOut, match="did not answer"):
        admin._until(time.monotonic() + 0.3, ask)
    assert way.asked > 1
    with pytest.raises(NoQuorum):
        admin._until(time.monotonic() + 0.3, ask)


def test_that_nobody_could_be_asked_since_is_told_too() -> None:
    """A quorum that is stopped meanwhile: the refusal alone sounds as if trying again helped."""

    class Stopped(Way):
        def to_leader(self, deadline: float) -> Any:
            try:
                return super().to_leader(deadline)
            except NoQuorum:
                raise NoQuorum("no replica runs") from None

    way: Any = Stopped()

    def ask(_leader: Any, _until: float) -> None:
        raise RequestRefused("leadership was lost", min(TRY_AGAIN))

    with pytest.raises(TimedOut, match="leadership was lost; since then: no replica runs"):
        Admin(way)._until(time.monotonic() + 0.3, ask)
