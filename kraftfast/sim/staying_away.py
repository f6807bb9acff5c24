"""Short runs in which some clients stay away, so that more seeds are run (swarm)."""

from __future__ import annotations

from random import Random
from typing import Any

THINNED_FROM, SHORT_ANSWER_MS = 47_000, 200
"""The first seed whose short run has fewer clients, and how soon its producers ask again."""
THINNED = (
    "named", "idempotent", "consumers", "real_producers", "real_named", "real_readers",
    "real_admins", "local_producers", "local_named", "local_admins", "local_askers",
    "real_consumers", "local_consumers", "local_watchers", "strangers", "local_strangers", "user",
    "async_producers",
)  # fmt: skip


def staying_away(seed: int, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return what is not in a short run after all, as it is without: more seeds are run instead."""
    random = Random(seed * 2 + 1 + (1 << 63))
    share = random.choice((0.5, 0.75, 1.0))
    gone = [each for each in THINNED if random.random() > share]
    return {each: type(drawn[each])() for each in gone if each in drawn}
