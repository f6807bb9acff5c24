"""One quorum over sockets for the whole room: no test here may change anything about it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kraftfast.quorum import LocalQuorum
from tests.node.kit import TIMEOUT_S, standing

SMALL = {"segment_bytes": 8 << 20, "stride_bytes": 2 << 20, "prepare_bytes": 1 << 20}


@pytest.fixture(scope="session")
def shared_quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """Three voters. The timeouts are long: only what a stranger does could cost a leader."""
    path = tmp_path_factory.mktemp("sockets")
    with LocalQuorum(path, 3, transport="socket", fetch_timeout_ms=60_000, **SMALL) as quorum:
        deadline = time.monotonic() + TIMEOUT_S
        while len({epoch for _, epoch, _, _ in standing(quorum).values()}) > 1:
            assert time.monotonic() < deadline, "the followers did not find their leader"
            time.sleep(0.01)
        yield quorum


@pytest.fixture
def unmoved(shared_quorum: LocalQuorum) -> Iterator[LocalQuorum]:
    """That quorum: the same processes, epoch and leader after the test, and it commits."""
    before = standing(shared_quorum)
    assert len(before) == 3
    yield shared_quorum
    with shared_quorum.producer(timeout=60.0) as producer:
        producer.append_wait(b"it goes on", timeout=60.0)
    assert standing(shared_quorum) == before
