"""Runs seeds until one is violated: exit status 3 then, 0 if all hold.

``python -m tests.sim.kill KIND FIRST LAST [SEAM]``: for the kill matrix, in a process of its own.
``KIND`` names the worlds (``KINDS``) or one directed history (``tests.sim.directed``), ``SEAM`` a
function of ``tests.sim.seams`` that breaks something before the seeds are run. The seeds choose
among few kinds of quorum, and everything that can go wrong there does, often. What the core asserts
of itself is not asked: a mutant has to show in what the replicas do.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from kraftfast.sim import WorldSettings, run_seed
from kraftfast.sim.oracles.watching import WatchedProcess
from kraftfast.sim.settings import AIMED
from tests.sim import directed, seams
from tests.sim.steps import BESIDE

KILLED = 3
FAULTS = ("kill", "power", "blackout", "crash_in_call", "isolate", "cut", "failing_sync", "rot")


def settings_of(seed: int, **others: Any) -> WorldSettings:
    """A small quorum with a hard life."""
    chosen: dict[str, Any] = dict(
        voters=(1, 3, 3, 3)[seed % 4],
        observers=0,
        kraft_version=0,
        changes=(),
        auto_join=False,
        snapshots="",
        retention_bytes=-1,
        latecomer=False,
        idempotent=0,
        barrier_every_ms=0.0,
        durability="majority",
        election_timeout_ms=50,
        fetch_timeout_ms=100,
        request_timeout_ms=100,
        fetch_max_wait_ms=30,
        append_every_ms=6.0,
        value_bytes_max=600,
        faults=FAULTS,
        fault_every_ms=40.0,
        chaos_ms=1_200,
        idle_ms=200,
        settle_ms=20_000,
    )
    return WorldSettings.of_seed(seed, reach=False, **chosen | others)


def with_snapshots(seed: int) -> WorldSettings:
    """The same, whose replicas also make snapshots."""
    return settings_of(seed, snapshots="machine", snapshot_bytes=4_000, retention_bytes=20_000)


def with_elections(seed: int) -> WorldSettings:
    """Nominees with unflushed tails, which lose power: between asking for votes and leading."""
    return settings_of(seed, voters=3, faults=("kill", *AIMED * 3), append_every_ms=3.0, **BESIDE)


def told_by_all(seed: int) -> WorldSettings:
    """Producers are told once every voter has it on its disk."""
    return settings_of(seed, voters=3, durability="all")


def over_rings(seed: int) -> WorldSettings:
    """Producers of this host, as they are, which die as well as replicas do."""
    faults = (*FAULTS, "client_kill")
    return settings_of(
        seed,
        voters=3,
        producers=0,
        local_producers=2,
        local_named=1,
        append_every_ms=1.0,
        value_bytes_max=3_000,
        faults=faults,
    )


def told_by_all_of_changing_sets(seed: int) -> WorldSettings:
    """The same, while voters come and go."""
    return settings_of(
        seed,
        voters=3,
        observers=1,
        kraft_version=1,
        changes=("add_voter", "remove_voter"),
        change_every_ms=60.0,
        durability="all",
    )


KINDS = {
    "log": settings_of,
    "rings": over_rings,
    "snapshots": with_snapshots,
    "elections": with_elections,
    "all": told_by_all,
    "changing": told_by_all_of_changing_sets,
}


def main(words: list[str]) -> int:
    kind, first, last, *seam = words
    WatchedProcess.checks_itself = False
    for name in seam:
        getattr(seams, name)()
    for seed in range(int(first), int(last)):
        violation = outcome(kind, seed)
        if violation:
            print(f"seed {seed}: {violation}")
            return KILLED
    return 0


def outcome(kind: str, seed: int) -> str:
    """What was violated, if anything."""
    if kind in KINDS:
        return str(run_seed(seed, KINDS[kind](seed))["violation"])
    try:
        directed.SCENARIOS[kind](seed)
    except AssertionError as error:
        return str(error) or traceback.format_exc()
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
