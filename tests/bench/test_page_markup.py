"""The page as a document: nothing of a result becomes markup, and nothing is loaded."""

from __future__ import annotations

import errno
import re
import xml.etree.ElementTree as xml
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kraftfast.bench.page import Page
from kraftfast.bench.page.drawing import LIGHT, MARKERS, inline, save
from kraftfast.bench.page.parts import Picture
from kraftfast.bench.page.texts import plain
from kraftfast.errors import DiskFull
from tests.bench.results import full, repeated, result

pytest.importorskip("matplotlib")
pytest.importorskip("hdrh")

HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "]]></svg><b>", "&lt;b&gt;",
    "$\\frac$", "_hidden", "a\x00\x1b[31m\u202eb\ud800", "x" * 5000, "</style><script>", "'", "ü🦀",
)  # fmt: skip
EMPTY = {"meta", "br", "img", "link"}


class Read(HTMLParser):
    """What a browser would find: elements, their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    """A page with a section of each kind."""
    return Page([("a.json", full()), ("b.json", full(2.0))]).html()


def test_every_element_is_closed(page: str) -> None:
    read = Read(page)
    assert read.open == [] and read.tags["svg"] >= 10 and read.tags["table"] >= 5


def test_nothing_is_loaded_and_nothing_runs(page: str) -> None:
    read = Read(page)
    assert not {"script", "link", "img", "iframe", "object", "use-external"} & read.tags.keys()
    for name, value in read.attributes:
        assert not name.startswith("on") and name != "src", name
        if name in ("href", "xlink:href"):
            assert value.startswith("#"), value
    assert re.findall(r"url\((?!#)", page) == [] and "@import" not in page
    addresses = set(re.findall(r"https?://[\w./]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "default-src 'none'" in page


def test_names_within_pictures_are_their_own(page: str) -> None:
    ids = [value for name, value in Read(page).attributes if name == "id"]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    used = set(re.findall(r'(?:href="|url\()#([\w-]+)', page))
    assert used <= set(ids)


def test_pictures_have_the_colours_of_the_page(page: str) -> None:
    assert "currentColor" in page and "var(--kf-0)" in page and "#0a0" not in page
    assert "prefers-color-scheme: dark" in page and "@media print" in page
    assert "font-family: 'DejaVu" not in page and "sans'" not in page


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_a_name_stays_a_name(name: str) -> None:
    found = result(
        {name: repeated("throughput", 5.0)}, name=name, began_at=name, machine={name: name},
        plan={"measure": [{"name": name, "command": "throughput", "values": name}]},
    )  # fmt: skip
    page = Page([(name, found), (name, found)])
    ours = Page([("a", result({"a": repeated("throughput", 5.0)}, machine={"a": "a"}))] * 2)
    page.html().encode()
    read, plain_read = Read(page.html()), Read(ours.html())
    for tag in ("script", "img", "b", "style", "svg", "a"):
        assert read.tags[tag] == plain_read.tags[tag], tag
    assert plain(name)[:20] in read.text
    fragment = Read(page.fragment())
    assert fragment.open == [] and fragment.tags["script"] == 0


def test_text_in_a_picture_is_text() -> None:
    found = result({"<script>alert(1)</script> $x$": repeated("throughput", 5.0)})
    (picture,) = Page([("a", found)]).pictures
    svg = inline(picture)
    told = [each.text for each in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "<script>alert(1)</script> $x$" in told and "records/s" in told
    assert "<script" not in svg


def test_the_same_results_make_the_same_page(page: str) -> None:
    assert Page([("a.json", full()), ("b.json", full(2.0))]).html() == page


def test_pictures_as_files(tmp_path: Path) -> None:
    (picture,) = Page([("a", result({"a & b": repeated("throughput", 5.0)}))]).pictures
    svg, png = save(picture, tmp_path / "new")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    text = svg.read_text()
    assert xml.fromstring(text.encode()).tag.endswith("svg") and "a &amp; b" in text
    assert LIGHT.series[0] in text and MARKERS.series[0] not in text


def test_a_picture_that_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (picture,) = Page([("a", result({"a": repeated("throughput", 5.0)}))]).pictures
    before = [path.read_bytes() for path in save(picture, tmp_path)]

    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(DiskFull):
        save(picture, tmp_path)
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir(), reverse=True)] == before


def test_the_users_own_settings_of_matplotlib_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    (picture,) = Page([("a", result({"a": repeated("throughput", 5.0)}))]).pictures
    before = inline(picture)
    with matplotlib.rc_context({"axes.linewidth": 5, "svg.fonttype": "path"}):
        assert inline(picture) == before


def test_a_key_shows_names_with_an_underscore() -> None:
    from kraftfast.bench.page.axes import axes_of, key

    def draw(drawn: object, colours: object) -> None:
        axes = axes_of(drawn, colours)
        key(drawn, [*axes.plot([1, 2]), *axes.plot([2, 1])], ["_one", "two"], colours)

    assert "_one" in inline(Picture("a", "a", 3.0, draw))
