"""The directed histories hold: over rings, over sockets, and where both are mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.ahead import in_processes
from tests.sim import directed

SEEDS = 0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest) -> Iterator[Callable[[str, int], None]]:
    """Wait until a history was told to its end; raises what was violated."""
    with in_processes(request, ("name", "seed"), directed.tell) as wait:
        yield wait


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", directed.SCENARIOS)
def test_it_holds(name: str, seed: int, told: Callable[[str, int], None]) -> None:
    told(name, seed)
