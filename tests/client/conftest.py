"""Quorums of real worker processes, one for each transport: shared, for a start takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.quorum import LocalQuorum
from tests.client.kit import wait_until

SMALL: dict[str, Any] = {
    "voters": 3,
    "segment_bytes": 32 << 20,
    "stride_bytes": 8 << 20,
    "prepare_bytes": 1 << 20,
}
"""Little to prepare. The timeout is long: nothing else than what a test does may cost a leader."""


@pytest.fixture(scope="session")
def ring_quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """Three voters that exchange records over rings."""
    with LocalQuorum(tmp_path_factory.mktemp("rings"), **SMALL, fetch_timeout_ms=20_000) as quorum:
        yield quorum


@pytest.fixture(scope="session")
def socket_quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """Three voters that exchange records over loopback."""
    path = tmp_path_factory.mktemp("sockets")
    with LocalQuorum(path, **SMALL, fetch_timeout_ms=20_000, transport="socket") as quorum:
        yield quorum


@pytest.fixture(params=["ring", "socket"])
def quorum(request: pytest.FixtureRequest) -> LocalQuorum:
    """Each of the two in turn."""
    found: LocalQuorum = request.getfixturevalue(f"{request.param}_quorum")
    return found


@pytest.fixture(scope="session", params=["ring", "socket"])
def _mortal_quorum(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalQuorum]:
    path = tmp_path_factory.mktemp("mortal")
    with LocalQuorum(path, **SMALL, fetch_timeout_ms=1000, transport=request.param) as quorum:
        yield quorum


@pytest.fixture
def mortal_quorum(_mortal_quorum: LocalQuorum) -> LocalQuorum:
    """One whose replicas may be killed, with all of them at work again."""
    quorum = _mortal_quorum

    def whole() -> bool:
        statuses = quorum.statuses().values()
        leaders = {(status["epoch"], status["leader_id"]) for status in statuses}
        return len(statuses) == 3 and len(leaders) == 1 and quorum.leader() is not None

    wait_until(whole, 20)
    return quorum
