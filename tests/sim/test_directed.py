"""The directed histories hold: over rings, over sockets, and where both are mixed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import directed

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", directed.SCENARIOS, ids=lambda each: each.__name__)
def test_it_holds(scenario: Callable[[int], None], seed: int) -> None:
    scenario(seed)
