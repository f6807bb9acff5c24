"""Plans: what some seeds are about, one of these in turn, so that each comes often.

A plan is a fault of ``planned``, ``deposed_leaders`` or ``lost_majority``, the settings that it
needs and the faults beside it; all else is the seed's own.
"""

from __future__ import annotations

from itertools import count
from typing import Any

EVERY, AT, SLOTS = 5, (3, 4), 12
"""Seeds that leave one of these rests have a slot each in turn, and its plan if there is one: the
first plans those that leave 3. Another plan changes no seed but its own."""
DYNAMIC: dict[str, Any] = {
    "kraft_version": 1,
    "durability": "majority",
    "changes": ("transfer",),
    "change_every_ms": 1e9,
}
"""The log has the voters, and only the plan changes them."""
OFTEN: dict[str, Any] = {"fault_every_ms": 100.0, "chaos_ms": 2_000}
ALONE: dict[str, Any] = {
    "idempotent": 0,
    "named": 0,
    "real_producers": 0,
    "real_named": 0,
    "real_readers": 0,
    "real_admins": 0,
    "local_producers": 0,
    "local_named": 0,
    "local_admins": 0,
    "local_askers": 0,
    "real_consumers": 0,
    "local_consumers": 0,
    "local_watchers": 0,
}
"""Only those append or ask that the plan names."""
UNJUDGED: dict[str, Any] = {
    "async_producers": "",
    "strangers": 0,
    "user": "",
    "local_strangers": 0,
}
"""Nor do clients run that compare what they are told with what the oracle knows."""
QUIET: dict[str, Any] = ALONE | {"producers": 1, "append_every_ms": 30.0}

READS: dict[str, Any] = {
    "durability": "majority",
    "producers": 2,
    "append_every_ms": 4.0,
    "fetch_timeout_ms": 200,
    "fault_every_ms": 900.0,
    "chaos_ms": 4_000,
    "faults": (),
}
"""Much is committed, and a leader that is cut off has time to be asked."""

PLANS: dict[str, dict[str, Any]] = {
    "upgrade_again": DYNAMIC
    | {"kraft_version": 0, "voters": 3, "fetch_timeout_ms": 150, "faults": ("reset",)},
    "remove_needed": DYNAMIC
    | {"voters": 3, "fetch_timeout_ms": 200, "chaos_ms": 3_000, "faults": ("reset", "resign")},
    "add_unaware": DYNAMIC | {"voters": 2, "observers": 1, "faults": ("reset",)},
    "doubt_again": {"durability": "majority", "voters": 3, "faults": ("unflushed", "power")},
    "stop_and_shorten": {"durability": "majority", "voters": 3, "faults": ("isolate", "cut")},
    "rot_below_snapshot": QUIET
    | {
        "durability": "majority",
        "voters": 3,
        "snapshots": "machine",
        "snapshot_bytes": 500,
        "state_bytes": 0,
        "retention_bytes": -1,
        "faults": ("kill",),
    },
    "full_at_trim": {
        "durability": "majority",
        "voters": 3,
        "snapshots": "machine",
        "snapshot_bytes": 3_000,
        "retention_bytes": 0,
        "segment_bytes": 8 * 1024,
        "append_every_ms": 4.0,
        "value_bytes_max": 600,
        "faults": ("resign", "kill"),
    },
    "cut_at_page": ALONE
    | {
        "durability": "majority",
        "voters": 3,
        "transport": "socket",
        "producers": 0,
        "filling": 1,
        "snapshots": "",
        "retention_bytes": -1,
        "segment_bytes": 32 * 1024,
        "append_every_ms": 8.0,
        "fetch_timeout_ms": 400,
        "fault_every_ms": 700.0,
        "chaos_ms": 4_000,
        "faults": (),
    },
    "replace_added": DYNAMIC
    | QUIET
    | {
        "voters": 3,
        "observers": 1,
        "latecomer": False,
        "auto_join": False,
        "transport": "socket",
        "chaos_ms": 4_000,
        "faults": ("reset",),
    },
    "replace_majority": QUIET
    | UNJUDGED
    | {
        "kraft_version": 0,
        "durability": "majority",
        "voters": 3,
        "observers": 0,
        "changes": ("transfer",),
        "change_every_ms": 1e9,
        "consumers": 0,
        "readers": 0,
        "barrier_every_ms": 0.0,
        "snapshots": "",  # one behind a survivor's end would pass for its own log's
        "retention_bytes": -1,
        "election_timeout_ms": 100,
        "fetch_timeout_ms": 200,
        "fault_every_ms": 400.0,
        "chaos_ms": 8_000,
        "faults": ("kill", "reset", "resign", "isolate"),
    },
    "old_batches": QUIET
    | {
        "durability": "majority",
        "voters": 3,
        "transport": "socket",
        "snapshots": "trim",
        "snapshot_bytes": 30_000,
        "retention_bytes": 0,
        "producers": 0,
        "filling": 1,
        "append_every_ms": 2.0,
        "inline_flush_bytes_max": 0,
        "segment_bytes": 128 * 1024,
        "segment_ms": 300,
        "stride_bytes": 64 * 1024,
        "fetch_timeout_ms": 600,
        "chaos_ms": 4_000,
        "faults": (),
    },
    "begin_in_doubt": QUIET
    | {
        "kraft_version": 0,
        "durability": "memory",
        "voters": 5,
        "observers": 0,
        "changes": (),
        "leave_broken": False,
        "election_timeout_ms": 300,
        "fault_every_ms": 60.0,
        "chaos_ms": 3_000,
        "faults": ("reset",),
    },
    "read_beside": READS | {"voters": 3, "observers": 1, "latecomer": False, "auto_join": False},
    "read_of_removed": DYNAMIC | READS | {"voters": 4, "observers": 0},
}
"""By the name of the fault; ``faults``: what may strike beside it."""


def plan_of(seed: int) -> dict[str, Any]:
    """Return the settings of a seed's plan; nothing for most seeds."""
    slot = seed // EVERY % SLOTS
    if seed % EVERY in AT:
        slot += AT.index(seed % EVERY) * SLOTS
    if seed % EVERY not in AT or slot >= len(PLANS):
        return {}
    name, plan = list(PLANS.items())[slot]
    return OFTEN | plan | {"faults": (*plan["faults"], *(name,) * (1 + len(plan["faults"])))}


def seeds_of(name: str) -> count[int]:
    """Return the seeds that have this plan, in order."""
    turn, slot = divmod(list(PLANS).index(name), SLOTS)
    return count(AT[turn] + EVERY * slot, EVERY * SLOTS)
