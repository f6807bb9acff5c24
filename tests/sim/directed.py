"""Histories that seeds come by rarely, told step by step: each is run by itself, and by mutants.

A function drives one quorum; whatever must hold is checked after every event as in any other run.
``test_directed`` runs all of them, ``kill`` one against a mutant.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim import directed_elections, directed_logs, directed_voters

SCENARIOS: dict[str, Callable[[int], None]] = {
    each.__name__: each
    for room in (directed_elections, directed_voters, directed_logs)
    for each in room.SCENARIOS
}


def tell(name: str, seed: int) -> None:
    """Run one of them."""
    SCENARIOS[name](seed)
