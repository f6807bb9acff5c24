"""Shorten the short runs of later seeds, so that more seeds are run in the same time.

Swarm testing: each run has few kinds of clients, and all kinds come in some runs. Runs also wait
less where nothing is tested by waiting: for an answer that was lost, and for a quorum that is stuck
by design. Earlier seeds must stay the runs that they were, so each change begins at a seed.
"""

from __future__ import annotations

from random import Random
from typing import Any

THINNED_FROM, SHORT_ANSWER_MS = 47_000, 200
"""The first seed whose short run has fewer clients, and how soon its clients ask again."""
THINNED = (
    "named", "idempotent", "consumers", "real_producers", "real_named", "real_readers",
    "real_admins", "local_producers", "local_named", "local_admins", "local_askers",
    "real_consumers", "local_consumers", "local_watchers", "strangers", "local_strangers", "user",
    "async_producers",
)  # fmt: skip
SWARM_FROM = 60_000
"""The first seed whose short run has few kinds of clients, and ends when it is stuck by design."""
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
"""Fields of the settings: the clients of production code, and strangers. Each adds about a fifth to
the time of a run without them."""
AT_A_TIME, FEWER_AT_A_TIME = (1, 2, 2, 3), (1, 1, 1, 2)
PRODUCERS, APPEND_EVERY_MS = (1, 2, 2, 3), (8.0, 16.0, 30.0)
"""Fewer producers, and the least time between appends: appends are a third of all events."""
SUPERVISED_CHAOS_MS, ANSWER_MS, STUCK_MS = 1_400, 600, 1_000
SHORTER_FROM = 120_000
"""The first seed whose short run may have faults for a third of the time, and then more often."""
CHAOS_MS, SUPERVISED_MS = (300, 300, 300, 800), (600, 600, 600, 1_400)
"""How long faults strike: most mutants are found as soon by more and shorter runs, some only by
long ones. Where workers are started, that takes some of it."""
FAULTS_MIN = 4
"""How many faults there are at least, on average."""
SUPERVISED_KEPT = 0.5
"""How many of the runs with a supervisor keep it."""
IDLE_MS = (100, 100, 100, 500)
"""How long a quorum at rest is watched."""
SMALLER = 0.6
"""How many of the runs have three voters and one observer at most."""
PRODUCER_BACKOFF_MS = 160
"""How long producers wait at most before they try again."""


def thinned(seed: int, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that leave some of the drawn clients out of a short run."""
    if not THINNED_FROM <= seed < SWARM_FROM:
        return {}
    random = Random(seed * 2 + 1 + (1 << 63))
    share = random.choice((0.5, 0.75, 1.0))
    gone = [each for each in THINNED if random.random() > share]
    without = {each: type(drawn[each])() for each in gone if each in drawn}
    return without | dict.fromkeys(("answer_ms", "silence_ms"), SHORT_ANSWER_MS)


def swarmed(seed: int, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that keep few of the chosen clients in a short run."""
    if seed < SWARM_FROM:
        return {}
    random = Random(seed * 2 + 1 + (1 << 63))
    drawn = [kind for kind in CLIENTS if chosen[kind] and _is_there(kind, chosen)]
    at_a_time = random.choice(AT_A_TIME if seed < SHORTER_FROM else FEWER_AT_A_TIME)
    kept = random.sample(drawn, min(len(drawn), at_a_time))
    left = {kind: type(chosen[kind])() for kind in CLIENTS if kind not in kept}
    fewer: dict[str, Any] = {
        "producers": random.choice(PRODUCERS),
        "append_every_ms": max(chosen["append_every_ms"], random.choice(APPEND_EVERY_MS)),
        "answer_ms": ANSWER_MS,
        "stuck_ms": STUCK_MS,
    }
    supervised = chosen["supervised"]
    if supervised:
        fewer["chaos_ms"] = SUPERVISED_CHAOS_MS
    if seed >= SHORTER_FROM:
        supervised = supervised and random.random() < SUPERVISED_KEPT
        chaos_ms = random.choice(SUPERVISED_MS if supervised else CHAOS_MS)
        fewer["supervised"] = supervised
        fewer["chaos_ms"] = chaos_ms
        fewer["fault_every_ms"] = min(chosen["fault_every_ms"], chaos_ms / FAULTS_MIN)
        fewer["idle_ms"] = random.choice(IDLE_MS)
        fewer["producer_backoff_ms"] = PRODUCER_BACKOFF_MS
        if random.random() < SMALLER:
            fewer["voters"] = min(chosen["voters"], 3)
            fewer["observers"] = min(chosen["observers"], 1)
    return left | fewer


def _is_there(kind: str, chosen: dict[str, Any]) -> bool:
    return kind != "local_askers" or chosen["snapshots"] == "machine"
