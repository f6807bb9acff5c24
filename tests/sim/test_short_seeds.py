"""Short seeds of the latest kind: nothing is violated, and all kinds of faults and clients occur.

python -m kraftfast.sim --seeds 120000:120500 --short --workers 2
"""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.sim.settings import (
    AIMED,
    CHANGES,
    FAULTS,
    HANGING,
    OF_CLIENTS,
    REACHING,
    SCARCE,
    TRIMMING,
)
from kraftfast.sim.swarm import SHORTER_FROM
from tests.sim.sweeps import check_none_failed, check_not_idle, sweep

SEEDS = range(SHORTER_FROM, SHORTER_FROM + 500)
AT_LEAST = {
    "appends acknowledged": 6_000,
    "appends unknown": 1_200,
    "elections": 350,
    "committed records": 25_000,
    "segments": 500,
    "bytes copied by reference": 25_000_000,
    "kill": 40,
    "power": 30,
    "blackout": 25,
    "nominees without power": 5,
    "power cut before a flush": 24,
    "power cut after a stop": 25,
    "changes accepted": 30,
    "names taken": 230,
    "fresh leaders asked by consumers": 30,
    "log starts moved": 500,
    "read barriers": 7_000,
    "batches found on disks": 25_000,
    "truncations": 14,
    "torn tails": 14,
    "rejected copies": 35,
    "crashes in a call": 28,
    "crashes in a trim": 20,
    "logs trimmed": 50,
    "ended by FlushFailed": 13,
    "ended by DiskFull": 6,
    "snapshots made": 500,
    "snapshots installed": 45,
    "states restored": 55,
    "batches sent once and for all": 9_000,
    "duplicates": 110,
    "voter sets committed": 120,
    "disks replaced": 30,
    "real names taken": 55,
    "records handed out": 2_500,
    "high watermarks seen by watches": 150,
    "questions answered": 9_000,
    "damage found": 15,
    "replicas recovered": 45,
    "supervisors killed": 10,
}
"""What has to happen in them, or they show nothing: at most half of what did, for every change of
the core makes other runs of the same seeds."""
STRIKES = (*FAULTS, *AIMED, *REACHING, *HANGING, *CHANGES, *OF_CLIENTS, *TRIMMING, *SCARCE)


pytestmark = pytest.mark.timeout(1_200)  # 100 s alone on two processors


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    return sweep(SEEDS, short=True)


def test_nothing_is_violated(results: list[dict[str, Any]]) -> None:
    assert [each["seed"] for each in results] == [*SEEDS]
    check_none_failed(results, " --short")


def test_they_are_not_idle(results: list[dict[str, Any]]) -> None:
    check_not_idle(results, AT_LEAST, STRIKES)
