"""The screen of ``kraftfast top``, driven by textual's pilot: keys, sizes, a quorum that ends."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("textual")

from textual.widgets import DataTable, Static

from kraftfast.cli.top_screen import COLUMNS_MIN, COLUMNS_WIDE, LINES_MIN, WINDOWS_S, Top
from kraftfast.link.stats import STAGES
from kraftfast.live.pages import Sample
from tests.live.kit import sample

NS = 1_000_000_000


class Looks:
    """Three replicas; each look is a second after the last one, 1000 records later."""

    def __init__(self) -> None:
        self.count, self.up = 0, True

    def __call__(self) -> list[Sample]:
        self.count += 1
        now_ns = self.count * NS
        moved = {"at_ns": now_ns, "noted_ns": now_ns, "high_watermark": self.count * 1000}
        samples = [
            sample(id, (1000,) * self.count, role="leader" if id == 1 else "follower", **moved)
            for id in (1, 2, 3)
        ]
        if not self.up:
            return [dataclasses.replace(each, up=False, error="it was killed") for each in samples]
        return samples


def drive(
    size: tuple[int, int], steps: Callable[[Top, Any, Looks], Awaitable[None]], window_s: int = 5
) -> None:
    """Run the screen in this size, and the steps with it."""

    async def run() -> None:
        looks = Looks()
        app = Top(looks, "the-quorum", window_s)
        async with app.run_test(size=size) as pilot:
            await steps(app, pilot, looks)

    asyncio.run(run())


def text(app: Top, name: str) -> str:
    return str(app.query_one(name, Static).content)


def table(app: Top, name: str) -> list[list[str]]:
    """The headings and the cells of a table."""
    found = app.query_one(name, DataTable)
    headings = [str(column.label) for column in found.columns.values()]
    return [
        headings,
        *([str(cell) for cell in found.get_row_at(at)] for at in range(found.row_count)),
    ]


def test_the_figures_are_those_of_the_window() -> None:
    async def steps(app: Top, pilot: Any, looks: Looks) -> None:
        for _ in range(20):
            app.refresh_figures()
        assert "the-quorum: replica 1 leads epoch 0, 1,000 records/s" in text(app, "#head")
        commit = table(app, "#stages")[-1]
        assert commit[0] == "commit" and commit[-1] == str(3 * 5), "of three replicas, in 5 s"
        for window_s in (15, 60, 1, 5):
            await pilot.press("w")
            assert app.window_s == window_s
            wanted = 3 * min(window_s, looks.count - 1)
            assert table(app, "#stages")[-1][-1] == str(wanted)
            assert f"(window {window_s} s)" in text(app, "#rate-text")

    drive((140, 40), steps)
    assert 5 in WINDOWS_S


def test_all_columns_where_there_is_room_and_halves_elsewhere() -> None:
    async def wide(app: Top, pilot: Any, looks: Looks) -> None:
        assert len(table(app, "#replicas")[0]) == 14
        await pilot.resize_terminal(COLUMNS_WIDE - 1, 40)
        first = table(app, "#replicas")[0]
        await pilot.press("c")
        second = table(app, "#replicas")[0]
        assert len({*first, *second}) == 14 and set(first) & set(second) == {"replica", "role"}

    drive((COLUMNS_WIDE, 40), wide)


def test_each_stage_is_drawn_in_turn() -> None:
    async def steps(app: Top, pilot: Any, looks: Looks) -> None:
        app.refresh_figures()
        seen = []
        for _ in STAGES:
            seen.append(text(app, "#stage-text").partition(",")[0])
            await pilot.press("s")
        assert sorted(seen) == sorted(name.replace("_", " ") for name in STAGES)

    drive((100, 30), steps)


@pytest.mark.parametrize("size", [(COLUMNS_MIN - 1, 40), (100, LINES_MIN - 1), (1, 1)])
def test_a_terminal_that_is_too_small_is_told_and_one_that_grows_is_used(
    size: tuple[int, int],
) -> None:
    async def steps(app: Top, pilot: Any, looks: Looks) -> None:
        assert f"{size[0]} x {size[1]} is too small" in text(app, "#small")
        assert app.query_one("#small").display and not app.query_one("#body").display
        await pilot.resize_terminal(COLUMNS_MIN, LINES_MIN)
        assert not app.query_one("#small").display and app.query_one("#body").display

    drive(size, steps)


def test_a_quorum_that_ends_is_told_in_place_and_so_is_its_return() -> None:
    async def steps(app: Top, pilot: Any, looks: Looks) -> None:
        assert not app.query_one("#problems").display
        looks.up = False
        app.refresh_figures()
        lines = text(app, "#problems").splitlines()
        assert lines[0] == "no replica runs"
        assert lines[1] == "replica 1: it does not run: it was killed"
        assert "no leader, - records/s" in text(app, "#head")
        assert [row[1] for row in table(app, "#replicas")[1:]] == ["down"] * 3
        looks.up = True
        app.refresh_figures()
        assert not app.query_one("#problems").display

    drive((100, 30), steps)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_ends(key: str) -> None:
    async def steps(app: Top, pilot: Any, looks: Looks) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running or app._exit

    drive((100, 30), steps)


def test_brackets_in_a_path_are_shown() -> None:
    async def run() -> None:
        app = Top(Looks(), "[red]x[/]", 5)
        async with app.run_test(size=(100, 30)):
            assert "[red]x[/]: replica 1 leads" in text(app, "#head")

    asyncio.run(run())
