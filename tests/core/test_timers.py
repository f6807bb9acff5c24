"""What a role does by itself stands in one table, beside when it is due."""

from __future__ import annotations

import ast
from pathlib import Path

from kraftfast.core import on_tick
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.replication.follower import Follower
from kraftfast.core.replication.leader import Leader

CORE = Path(__file__).parents[2] / "kraftfast/core"
TABLES = (on_tick.WRITING, *on_tick.TIMERS.values())


def test_every_role_has_its_timers() -> None:
    assert set(on_tick.TIMERS) == {
        Unattached, Follower, Prospective, Candidate, Leader, Resigned
    }  # fmt: skip


def test_no_time_is_told_beside_the_table() -> None:
    told = {timer.due_ms.__name__ for timers in TABLES for timer in timers.rows}
    found = {
        node.name
        for path in CORE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_due_ms")
    }
    assert found and found <= told


def test_what_is_due_is_what_is_done() -> None:
    for timers in TABLES:
        assert timers.due == tuple(
            each.due_ms for each in timers.rows if each.due_ms is not on_tick.never_ms
        )
        assert timers.rows[0] is on_tick.BARRIERS and timers.rows[-1] is on_tick.SHUTDOWN
        for each in timers.rows:
            assert each.every_poll or each.due_ms is not on_tick.never_ms, each.run.__name__
