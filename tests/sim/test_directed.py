"""The directed histories hold: over rings, over sockets, and where both are mixed."""

from __future__ import annotations

import pytest

from tests.sim import directed

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", directed.SCENARIOS)
def test_it_holds(name: str, seed: int) -> None:
    directed.SCENARIOS[name](seed)
