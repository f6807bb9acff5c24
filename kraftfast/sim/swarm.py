"""What short runs of later seeds do less of, so that each is shorter and more of them are run.

Swarm testing: few kinds of clients at a time, and all of them over the seeds. What none of them is
for goes on less long: a question whose answer was lost, and a quorum that is stuck by design.
"""

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
SWARM_FROM = 60_000
"""The first seed whose short run has few kinds of clients, and ends where nothing can come."""
CLIENTS = (
    "real_producers",
    "real_named",
    "real_readers",
    "real_admins",
    "local_producers",
    "local_named",
    "local_admins",
    "local_askers",
    "real_consumers",
    "local_consumers",
    "local_watchers",
    "strangers",
    "local_strangers",
    "async_producers",
    "user",
)
"""Fields of the settings: clients that run as they are, and strangers. Each costs a fifth of a run
without them."""
AT_A_TIME = (1, 2, 2, 3)
PRODUCERS, APPEND_EVERY_MS = (1, 2, 2, 3), (8.0, 16.0, 30.0)
"""Appends are a third of all events; what befalls the quorum befalls it in less of a crowd, too."""
SUPERVISED_CHAOS_MS, ANSWER_MS, STUCK_MS = 1_400, 600, 1_000


def staying_away(seed: int, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return what is not in a short run after all, as it is without: more seeds are run instead."""
    if not THINNED_FROM <= seed < SWARM_FROM:
        return {}
    random = Random(seed * 2 + 1 + (1 << 63))
    share = random.choice((0.5, 0.75, 1.0))
    gone = [each for each in THINNED if random.random() > share]
    without = {each: type(drawn[each])() for each in gone if each in drawn}
    return without | dict.fromkeys(("answer_ms", "silence_ms"), SHORT_ANSWER_MS)


def thinned(seed: int, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return what is otherwise in the short run of a seed that chose these settings."""
    if seed < SWARM_FROM:
        return {}
    random = Random(seed * 2 + 1 + (1 << 63))
    drawn = [kind for kind in CLIENTS if chosen[kind] and _is_there(kind, chosen)]
    kept = random.sample(drawn, min(len(drawn), random.choice(AT_A_TIME)))
    left = {kind: type(chosen[kind])() for kind in CLIENTS if kind not in kept}
    fewer: dict[str, Any] = {
        "producers": random.choice(PRODUCERS),
        "append_every_ms": max(chosen["append_every_ms"], random.choice(APPEND_EVERY_MS)),
        "answer_ms": ANSWER_MS,
        "stuck_ms": STUCK_MS,
    }
    if chosen["supervised"]:
        fewer["chaos_ms"] = SUPERVISED_CHAOS_MS
    return left | fewer


def _is_there(kind: str, chosen: dict[str, Any]) -> bool:
    return kind != "local_askers" or chosen["snapshots"] == "machine"
