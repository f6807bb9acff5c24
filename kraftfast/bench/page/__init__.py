"""A page on results: what they say, in sentences, tables and pictures.

``parts`` is what a page consists of, each ``of_`` module answers one question from the results,
``drawing`` draws with matplotlib, ``html`` writes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from kraftfast import __version__
from kraftfast.bench.page import (
    drawing,
    html,
    of_load,
    of_peers,
    of_percentiles,
    of_ratios,
    of_results,
    of_scaling,
    of_seconds,
    of_stages,
)
from kraftfast.bench.page.html import Drawn
from kraftfast.bench.page.parts import PageEntry, Picture, Section, entries
from kraftfast.bench.page.result_lines import Histograms
from kraftfast.bench.results.result import Result

PICTURES_MAX = 120
"""More would make the page unreadable; it says what it leaves out."""
TOLD_MAX = 50
TITLE = "kraftfast bench report"


class Page:
    """What is said of some results, by (place, result); nothing is drawn yet.

    Raises InvalidOption with ``draw`` if matplotlib is not installed.
    """

    # sections: in the order of the page. told: a line on each thing that is left out.

    def __init__(self, results: list[tuple[str, Result]]) -> None:
        self.told: list[str] = []
        self.results = results
        found = entries(results)
        self.sections = self._sections(found)
        if len(self.told) > TOLD_MAX:
            more = len(self.told) - TOLD_MAX
            self.told[TOLD_MAX:] = [f"and {more} things more"]
        if not drawing.is_installed() and self.pictures:
            self.told.append(drawing.MISSING)

    def _sections(self, found: list[PageEntry]) -> list[Section]:
        histograms = Histograms(self.told)
        made = [
            *of_results.summary(found),
            *of_results.rates(found),
            *of_ratios.changes(found),
            *of_ratios.floor(found),
            *of_peers.peers(found),
            *of_percentiles.curves(found, histograms),
            *of_load.load(found, histograms),
            *of_stages.stages(found),
            *of_seconds.seconds(found),
            *of_scaling.scaling(found),
            *of_results.machine(found),
        ]
        left = PICTURES_MAX
        for each in made:
            if len(each.pictures) > left:
                self.told.append(f"left out: {len(each.pictures) - left} pictures of {each.title}")
                del each.pictures[left:]
            left -= len(each.pictures)
        return made

    @property
    def pictures(self) -> list[Picture]:
        """Return all pictures, in the order of the page."""
        return [picture for each in self.sections for picture in each.pictures]

    def html(self, progress: Callable[[Picture], None] | None = None) -> str:
        """Return the whole page; ``progress`` is called before each picture is drawn."""
        names = ", ".join(dict.fromkeys(result.name for _, result in self.results))
        places = [place for place, _ in self.results]
        command = shlex.join(["kraftfast", "bench", "report", *places])
        footer = f"Made by kraftfast {__version__}: {command}"
        drawn = self._drawn(progress)
        return html.page(f"{TITLE}: {names}", self.sections, self.told, drawn, footer)

    def fragment(self) -> str:
        """Return the page without its frame, as a notebook shows it."""
        return html.fragment(self.sections, self.told, self._drawn(None))

    def save_pictures(
        self, folder: Path, progress: Callable[[Picture], None] | None = None
    ) -> list[Path]:
        """Write every picture as SVG and PNG. Raises InvalidOption without matplotlib,
        StorageError."""
        paths = []
        for each in self.pictures:
            if progress is not None:
                progress(each)
            paths += drawing.save(each, folder)
        return paths

    def _drawn(self, progress: Callable[[Picture], None] | None) -> Drawn:
        there = drawing.is_installed()

        def drawn(picture: Picture) -> str:
            if progress is not None:
                progress(picture)
            return drawing.inline(picture) if there else ""

        return drawn
