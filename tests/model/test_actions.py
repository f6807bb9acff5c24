"""The search really does what its settings name, and something comes of each of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from kraftfast import limits
from tests.model import search
from tests.model.__main__ import arguments, quorum_of
from tests.model.fingerprints import Fingerprints
from tests.model.marks import Tally
from tests.model.settings import SETTINGS

BATCH = 5
WALKS_MAX = 150
ACTIONS = {
    "rings": (
        "deliver", "flushed", "append", "start", "resign", "transfer", "cut", "link", "dies",
        "crash", "crash, unflushed records lost", "crash, unflushed records kept",
        "timer unflushed", "timer flushing", "timer election_deadline_ms",
        "timer fetch_deadline_ms", "timer check_quorum_deadline_ms",
        "timer begin_quorum_epoch_at_ms", "timer stream_deadline_ms", "timer silent",
    ),
    "sockets": ("lose", "double", "overtake", "late", "timer parked_deadline_ms"),
    "five voters": ("append",),
    "voters change": ("add", "remove", "probed", "assign"),
    "replaced disks": ("disk replaced, empty", "disk replaced, alone"),
    "upgrades": ("upgrade",),
    "lies": ("lie",),
    "snapshots": ("snapshot", "retain", "crash, unflushed records lost in part"),
    "reads": ("barrier", "timer barriers"),
    "damage": ("crash, flushed records damaged",),
}  # fmt: skip
"""By setting, what must be taken, and change more than what may still happen."""
MARKS = {
    "rings": ("records pushed", "handover told", "leadership told", "vote granted",
              "vote refused", "quorum-state written"),
    "sockets": ("parked Fetch", "records answered"),
    "short answers": ("partial answer",),
    "voters change": ("voters being changed", "reassignment"),
    "moved voters": ("voter updates its entry",),
    "cut upgrades": ("log cut",),
    "snapshots": ("log begins later",),
    "installs": ("snapshot fetched", "snapshot installed"),
    "installs, observer": ("snapshot installed",),
    "installs, sockets": ("snapshot installed",),
    "reads": ("read barrier passed", "read barrier given up", "read barrier asked of the leader",
              "consumer answered"),
    "damage": ("doubt", "phantom mark"),
}  # fmt: skip
"""By setting, what must come about."""


@pytest.fixture(autouse=True)
def voters_max() -> Iterator[None]:
    """Put back what a setting changes."""
    before = limits.VOTERS_MAX
    yield
    limits.VOTERS_MAX = before


@pytest.mark.parametrize("name", sorted({*ACTIONS, *MARKS}))
def test_it_happens_and_has_an_effect(name: str) -> None:
    options = arguments().parse_args(shlex.split(SETTINGS[name]))
    quorum, start = quorum_of(options)
    actions, marks = {*ACTIONS.get(name, ())}, {*MARKS.get(name, ())}
    prints, tally = Fingerprints(), Tally()
    while prints.walks < WALKS_MAX and (actions or marks):
        outcome = search.pct(quorum, start, 1, 300, prints, options.length, BATCH)
        assert not outcome.violation
        tally.add(outcome.tally)
        actions -= {*+tally.changed}
        marks -= {*+tally.marks}
    assert not actions and not marks, f"not in {prints.walks} walks"
