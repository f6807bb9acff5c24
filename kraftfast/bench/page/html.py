"""The page itself: the only place that writes markup, and that escapes what is not its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

from kraftfast.bench.page.drawing import DARK, LIGHT, Colours
from kraftfast.bench.page.parts import Picture, Section, Table
from kraftfast.bench.page.texts import plain

COMMANDS_SHOWN = 3
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Nothing is loaded and no script runs, whatever a result says."""
SHEET = """
.kf { {light} color: var(--kf-ink); line-height: 1.5; font-family: system-ui, sans-serif }
@media (prefers-color-scheme: dark) { .kf { {dark} } }
.kf h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; overflow-wrap: anywhere }
.kf p { margin: .5rem 0; max-width: 46rem; overflow-wrap: anywhere }
.kf ul { padding-left: 1.2rem; margin: .5rem 0; overflow-wrap: anywhere }
.kf.within { background: var(--kf-paper); padding: .5rem 1rem }
.kf .pictures { display: grid; gap: 1rem 2rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)) }
.kf figure { margin: 0; break-inside: avoid; min-width: 0 }
.kf figcaption { font-weight: 600; margin-bottom: .25rem; overflow-wrap: anywhere }
.kf svg { width: 100%; height: auto; display: block }
.kf .wide { overflow-x: auto; margin: 1rem 0 }
.kf table { border-collapse: collapse; font-size: .875rem }
.kf th, .kf td { padding: .25rem .75rem .25rem 0; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--kf-grid); font-variant-numeric: tabular-nums }
.kf th.word, .kf td.word { text-align: left; overflow-wrap: anywhere; min-width: 5rem }
.kf td.word:first-child { min-width: 9rem }
.kf small { display: block; color: var(--kf-muted) }
.kf td:not(.word) { white-space: nowrap }
.kf thead th { color: var(--kf-muted); font-weight: 600; vertical-align: bottom }
.kf .made, .kf footer { color: var(--kf-muted); font-size: .8125rem }
.kf code { font-family: ui-monospace, monospace; font-size: .8125rem; overflow-wrap: anywhere }
.kf .made code { display: block; margin: .15rem 0 }
"""
PAGE_SHEET = """
:root { color-scheme: light dark }
body { margin: 0; background: {light} }
@media (prefers-color-scheme: dark) { body { background: {dark} } }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem }
main h1 { font-size: 1.6rem; margin: 0 0 .5rem; overflow-wrap: anywhere }
nav a { color: var(--kf-0); margin-right: 1rem; overflow-wrap: anywhere }
@media print {
  :root { color-scheme: light }
  body { background: #fff } main { max-width: none; padding: 0 }
  .kf { {printed} font-size: 10pt } nav { display: none }
  .kf .pictures { display: block } .kf figure { max-width: 12.5cm; margin-bottom: .7cm }
  .kf h2 { break-after: avoid }
  .kf .wide { overflow: visible } tr { break-inside: avoid }
  .kf table { font-size: 7.5pt } .kf th, .kf td { padding-right: .4rem }
  .kf td:not(.word) { white-space: normal }
  details::details-content { content-visibility: visible; block-size: auto; height: auto }
}
"""
Drawn = Callable[[Picture], str]
"""Returns the SVG of a picture; empty where it cannot be drawn."""


def page(title: str, sections: list[Section], told: list[str], drawn: Drawn, footer: str) -> str:
    """Return a whole page. ``told``: lines on what is left out."""
    sheet = (
        PAGE_SHEET.replace("{light}", LIGHT.paper)
        .replace("{dark}", DARK.paper)
        .replace("{printed}", _variables(LIGHT))
    )
    links = "".join(
        f'<a href="#section-{at}">{_escaped(each.title)}</a> ' for at, each in enumerate(sections)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(title)}</title>\n<style>{_sheet()}{sheet}</style>\n</head>\n"
        f'<body>\n<main class="kf">\n<h1>{_escaped(title)}</h1>\n<nav>{links}</nav>\n'
        f"{_body(sections, told, drawn)}\n<footer><p>{_escaped(footer)}</p></footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def fragment(sections: list[Section], told: list[str], drawn: Drawn) -> str:
    """Return what a notebook shows: it has a page of its own."""
    return f'<div class="kf within"><style>{_sheet()}</style>{_body(sections, told, drawn)}</div>'


def _sheet() -> str:
    return SHEET.replace("{light}", _variables(LIGHT)).replace("{dark}", _variables(DARK))


def _variables(colours: Colours) -> str:
    named = {
        "ink": colours.ink,
        "muted": colours.muted,
        "grid": colours.grid,
        "paper": colours.paper,
        **{str(number): colour for number, colour in enumerate(colours.series)},
    }
    return " ".join(f"--kf-{name}: {colour};" for name, colour in named.items())


def _body(sections: list[Section], told: list[str], drawn: Drawn) -> str:
    parts = [part for at, each in enumerate(sections) for part in _section(at, each, drawn)]
    if told:
        parts += ["<h2>Left out</h2>", _list(told)]
    return "\n".join(parts)


def _section(at: int, each: Section, drawn: Drawn) -> Iterator[str]:
    yield f'<section id="section-{at}"><h2>{_escaped(each.title)}</h2>'
    yield from (f"<p>{_escaped(text)}</p>" for text in each.texts)
    figures = "".join(_figure(picture, drawn) for picture in each.pictures)
    if figures:
        yield f'<div class="pictures">{figures}</div>'
    yield from map(_table, each.tables)
    if each.notes:
        yield _list(each.notes)
    if each.commands:
        yield _made_by(each.commands)
    yield "</section>"


def _figure(picture: Picture, drawn: Drawn) -> str:
    svg = drawn(picture)
    caption = f"<figcaption>{_escaped(picture.title)}</figcaption>"
    return f"<figure>{caption}{svg}</figure>" if svg else ""


def _table(table: Table) -> str:
    rows = "".join(f"<tr>{_cells('td', row, table.left)}</tr>" for row in table.rows)
    head = f"<thead><tr>{_cells('th', table.head, table.left)}</tr></thead>"
    return f'<div class="wide" tabindex="0"><table>{head}<tbody>{rows}</tbody></table></div>'


def _cells(kind: str, texts: list[str], left: int) -> str:
    return "".join(
        f'<{kind} class="word">{_escaped(text)}</{kind}>'
        if at < left
        else f"<{kind}>{_with_range(text)}</{kind}>"
        for at, text in enumerate(texts)
    )


def _with_range(text: str) -> str:
    """Return a figure with what stands in brackets behind it below it."""
    first, bracket, rest = text.partition(" (")
    return _escaped(first) + (f"<small>{_escaped(bracket[1] + rest)}</small>" if bracket else "")


def _list(texts: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{_escaped(text)}</li>' for text in texts)}</ul>"


def _made_by(commands: list[str]) -> str:
    lines = "".join(f"<code>{_escaped(command)}</code>" for command in commands)
    if len(commands) <= COMMANDS_SHOWN:
        return f'<div class="made">Measured by {lines}</div>'
    summary = f"<summary>Measured by {len(commands)} commands</summary>"
    return f'<div class="made"><details>{summary}{lines}</details></div>'


def _escaped(text: str) -> str:
    return escape(plain(text), quote=True)
