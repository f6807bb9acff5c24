"""The screen of ``kraftfast top``, on textual: looks once a second, and shows what happened."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from rich.traceback import Traceback
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Resize
from textual.widgets import DataTable, Footer, Sparkline, Static

from kraftfast.cli.show import microseconds
from kraftfast.cli.top_cells import (
    NARROW,
    REPLICAS,
    STAGES,
    TEXTS,
    head,
    number,
    problems,
    replica_cells,
    stage_cells,
)
from kraftfast.link.stats import STAGES as STAGE_NAMES
from kraftfast.live.pages import Sample
from kraftfast.live.view import View, view

LOOK_S = 1.0
WINDOWS_S = (1, 5, 15, 60)
COLUMNS_MIN, LINES_MIN = 78, 20
COLUMNS_WIDE = 134
"""From here on all columns of the replicas have room."""
PLOTTED = 60
"""Looks that the curves reach back."""


class Top(App[None]):
    """Shows what ``look`` returns. ``place``: what is looked at. ``window_s``: one of WINDOWS_S."""

    CSS = """
    #head, #rate-text, #stage-text, #problems { height: auto; padding: 0 1; }
    #head { text-style: bold; }
    #problems { color: $text-warning; text-style: bold; }
    Sparkline { height: 2; margin: 0 1; }
    DataTable { height: auto; margin: 1 0 0 0; }
    #small { display: none; }
    .small #body { display: none; }
    .small #small { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("w", "window", "Window"),
        ("s", "stage", "Stage"),
        ("c", "columns", "Columns"),
        ("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False

    # looks: samples of the last minute, oldest first. rates, slow: what the curves show; slow by
    # stage. stage: whose times are drawn. half: which columns of the replicas are shown in a
    # terminal that is not wide. signo: of the signal that ended it, 0 for none. failure: what ended
    # it, where that was an error.

    def __init__(self, look: Callable[[], list[Sample]], place: str, window_s: int) -> None:
        super().__init__()
        self.look, self.place, self.window_s = look, place, window_s
        self.looks: deque[list[Sample]] = deque(maxlen=WINDOWS_S[-1] + 1)
        self.rates: deque[float] = deque(maxlen=PLOTTED)
        self.slow = {name: deque[float](maxlen=PLOTTED) for name in STAGE_NAMES}
        self.stage = STAGE_NAMES[-1]
        self.half = self.signo = 0
        self.failure: Exception | None = None
        self.is_wide = False

    def compose(self) -> ComposeResult:
        yield Static(id="small", markup=False)
        with Vertical(id="body"):
            yield Static(id="head", markup=False)
            yield Static(id="problems", markup=False)
            yield Static(id="rate-text", markup=False)
            yield Sparkline(id="rate")
            yield DataTable(id="replicas", cursor_type="none", zebra_stripes=True)
            yield DataTable(id="stages", cursor_type="none", zebra_stripes=True)
            yield Static(id="stage-text", markup=False)
            yield Sparkline(id="stage")
        yield Footer()

    def on_mount(self) -> None:
        for signo in (signal.SIGTERM, signal.SIGHUP):  # an exception would leave the screen torn
            asyncio.get_running_loop().add_signal_handler(signo, self._ended_by, signo)
        for table in self.query(DataTable):
            table.can_focus = False
        self.refresh_figures()
        self.set_interval(LOOK_S, self.refresh_figures)

    def on_resize(self, event: Resize) -> None:
        """Say so where there is no room for the tables."""
        width, height = event.size
        self.is_wide = width >= COLUMNS_WIDE
        small = width < COLUMNS_MIN or height < LINES_MIN
        self.screen.set_class(small, "small")
        self.query_one("#small", Static).update(
            f"{width} x {height} is too small: {COLUMNS_MIN} x {LINES_MIN} is needed. q quits."
        )
        if self.looks:
            self.show()

    def _ended_by(self, signo: int) -> None:
        self.signo = signo
        self.exit()

    def panic(self, *renderables: RenderableType) -> None:
        """End by what a thread of textual raised: of a byte that is no UTF-8, say."""
        stacks = [each.trace.stacks for each in renderables if isinstance(each, Traceback)]
        said = [f"{each.exc_type}: {each.exc_value}" for each in sum(stacks, [])]
        self._handle_exception(RuntimeError(f"the screen failed: {'; '.join(said)}"))

    def _handle_exception(self, error: Exception) -> None:
        if self.is_headless:  # a test's: its pilot raises it
            super()._handle_exception(error)
        else:
            self.failure = error
            self.exit(return_code=1)

    # --- keys -------------------------------------------------------------------------------------

    def action_window(self) -> None:
        """Go on to the next window."""
        self.window_s = WINDOWS_S[(WINDOWS_S.index(self.window_s) + 1) % len(WINDOWS_S)]
        self.show()

    def action_stage(self) -> None:
        """Draw the times of the next stage."""
        self.stage = STAGE_NAMES[(STAGE_NAMES.index(self.stage) + 1) % len(STAGE_NAMES)]
        self.show()

    def action_columns(self) -> None:
        """Show the other columns of the replicas, where there is no room for all."""
        self.half = 1 - self.half
        self.show()

    # --- what is shown ----------------------------------------------------------------------------

    def refresh_figures(self) -> None:
        """Look once more; keep a point of each curve."""
        self.looks.append(self.look())
        if len(self.looks) > 1:
            last = view(self.looks[-2], self.looks[-1])
            self.rates.append(last.records_per_s or 0.0)
            for name, stage in last.stages.items():
                self.slow[name].append(stage.p99_us or 0.0)
        self.show()

    def current(self) -> View:
        """Return what happened within the window, or since the first look."""
        first = max(0, len(self.looks) - 1 - self.window_s)
        return view(self.looks[first], self.looks[-1])

    def show(self) -> None:
        """Put the figures on the screen."""
        it = self.current()
        self.query_one("#head", Static).update(f"{self.place}: {head(it)}")
        text = f"records/s in the last minute, now {number(self.rates[-1] if self.rates else None)}"
        self.query_one("#rate-text", Static).update(
            f"{text}; other figures: of {it.seconds:.0f} s (window {self.window_s} s)"
        )
        self.query_one("#rate", Sparkline).data = curve(self.rates)
        shown = range(len(REPLICAS)) if self.is_wide else NARROW[self.half]
        rows = [replica_cells(each) for each in it.replicas]
        self._fill(
            "#replicas", [[row[at] for at in shown] for row in (list(REPLICAS), *rows)], TEXTS
        )
        rows = [stage_cells(name, each) for name, each in it.stages.items()]
        self._fill("#stages", [list(STAGES), *rows] if rows else [], 1)
        slow = self.slow[self.stage]
        ended = not any(each.up for each in it.replicas)
        text = "" if ended else "stages: only by --dir, on the host of the replicas"
        if it.stages:
            now = microseconds(slow[-1] if slow and slow[-1] else None)
            text = f"{self.stage.replace('_', ' ')}, p99 by second, now {now}"
        self.query_one("#stage-text", Static).update(text)
        self.query_one("#stage", Sparkline).data = curve(slow)
        lines = (["no replica runs"] if ended else []) + problems(it)
        said = self.query_one("#problems", Static)
        said.display = bool(lines)
        said.update("\n".join(lines))

    def _fill(self, name: str, rows: list[list[str]], texts: int) -> None:
        """Fill a table: the headings, then its rows; numbers begin after so many ``texts``."""
        table = self.query_one(name, DataTable)
        table.display = bool(rows)
        table.clear(columns=True)
        cells = [
            [Text(cell, justify="left" if at < texts else "right") for at, cell in enumerate(row)]
            for row in rows
        ]
        if cells:
            table.add_columns(*cells[0])
            table.add_rows(cells[1:])


def curve(points: deque[float]) -> list[float]:
    """Return what a curve of the last minute shows, from 0 on."""
    return [0.0] * (PLOTTED - len(points)) + list(points)
