"""``kraftfast bench report``: a page on results, and its pictures as files."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftfast.cli import options
from kraftfast.cli.bench.bench_results import named_result, place_of_result, results_folder
from kraftfast.errors import InputError, InvalidOption

if TYPE_CHECKING:
    from kraftfast.bench.page import Page
    from kraftfast.bench.page.parts import Picture

PAGE = "report.html"
HEAD_BYTES = 4096
"""Within so many the title of a page stands."""
QUIET_S = 2.0
"""What takes longer tells how far it is."""


@click.command("report")
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option(
    "-o",
    "--output",
    type=options.PlacePath(dir_okay=False, path_type=Path),
    default=PAGE,
    show_default=True,
    help="Write the page there; - is stdout.",
)
@click.option(
    "--pictures",
    type=options.PlacePath(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write each picture there too, as SVG and PNG.",
)
@results_folder
def write_report(
    results: tuple[str, ...], output: Path, pictures: Path | None, folder: Path | None
) -> None:
    """Write a page on results, with sentences, tables and pictures.

    A RESULT is a path, or the name of a file in the folder of results. Of several, each is compared
    with the first. The page is one file that loads nothing. Its pictures need matplotlib.
    """
    from kraftfast.bench.page import Page, drawing
    from kraftfast.bench.page.texts import plain

    is_stdout = str(output) == "-"
    if is_stdout and sys.stdout.isatty():
        raise InvalidOption("stdout is a terminal, which shows no page: name a file, or use a pipe")
    if not is_stdout:
        check_output(output, [place_of_result(each, folder) for each in results])
    if pictures is not None and pictures.exists() and not pictures.is_dir():
        raise InputError(f"cannot write into {pictures}: it is no directory")
    page = Page([(each, named_result(each, folder)) for each in results])
    if pictures is not None and not drawing.is_installed():
        raise InvalidOption(drawing.MISSING)
    progress = ProgressLine(page)
    text = page.html(progress.picture)
    if is_stdout:
        click.echo(text.encode(), nl=False)
    else:
        write(output, text)
        click.echo(str(output))
    if pictures is not None:
        progress.begin()
        for path in page.save_pictures(pictures, progress.picture):
            click.echo(str(path), err=is_stdout)
    for told in page.told:
        click.echo(f"kraftfast bench report: {plain(told)}", err=True)


class ProgressLine:
    """Tells on stderr which picture is drawn, and about how long the rest takes, now and then."""

    # pictures: how many there are. _began, _told: time.monotonic() of the first and of the last
    # line. _done: how many are drawn.

    def __init__(self, page: Page) -> None:
        self.pictures = len(page.pictures)
        self.begin()

    def begin(self) -> None:
        """Count from the first picture again."""
        self._began = self._told = time.monotonic()
        self._done = 0

    def picture(self, _picture: Picture) -> None:
        """Count a picture that is drawn now."""
        now = time.monotonic()
        if self._done and now - self._told >= QUIET_S:
            self._told = now
            left_s = (now - self._began) / self._done * (self.pictures - self._done)
            told = f"picture {self._done + 1} of {self.pictures}, about {left_s:.0f} s left"
            click.echo(told, err=True)
        self._done += 1


def check_output(path: Path, results: list[Path]) -> None:
    """Raise InputError if no page can be written there, before anything is drawn.

    What is there already must be an earlier page or an empty file: anything else would be lost, a
    result above all.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {path}: {_reason(error)}") from None
    if not stat.S_ISREG(mode):
        raise InputError(f"cannot write {path}: it is no file")
    if not os.path.isdir(path.parent):
        raise InputError(f"cannot write {path}: there is no directory {path.parent}")
    for each in results:
        if os.path.exists(each) and os.path.exists(path) and os.path.samefile(each, path):
            raise InputError(f"cannot write {path}: it is a result, which the page would replace")
    if os.path.exists(path) and not _may_be_replaced(path):
        raise InputError(f"cannot write {path}: it is no page of kraftfast bench report")


def _may_be_replaced(path: Path) -> bool:
    """Return whether a file is empty or an earlier page. Raises InputError."""
    from kraftfast.bench.page import TITLE

    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(f"cannot write {path}: {_reason(error)}") from None
    return not head or f"<title>{TITLE}".encode() in head


def write(path: Path, text: str) -> None:
    """Write a page in place of what is there. Raises InputError."""
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, place)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
