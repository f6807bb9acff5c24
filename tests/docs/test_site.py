"""The site that mkdocs makes of docs/: it builds without a warning and needs no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import ROOT

TIMEOUT_S = 240
LOADED = re.compile(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]*)"')
IMPORTED = re.compile(r"""(?:@import\s*["']?|url\(["']?)((?:https?:)?//[^"')]*)""")
MADE = ("cli", "configuration", "errors", "error-codes")
QUIET = {"NO_MKDOCS_2_WARNING": "1"}
"""The theme's makers announce their next program at each build, unless they are asked not to."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors: dead links and anchors, pages without a place."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", place]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | QUIET, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return place


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert LOADED.findall(page.read_text()) == [], page
    for sheet in site.rglob("*.css"):
        assert IMPORTED.findall(sheet.read_text()) == [], sheet


def test_links_hold_in_a_clone() -> None:
    """But for those to the four pages of reference that the site alone has."""
    made = {Path(ROOT, "docs", "reference", f"{each}.md") for each in MADE}
    gone = {
        f"{page.relative_to(ROOT)}: {link}"
        for page in Path(ROOT, "docs").rglob("*.md")
        for link in re.findall(r"\]\(([^)#:\s]+)[#)]", page.read_text())
        if not (page.parent / link).exists() and (page.parent / link).resolve() not in made
    }
    assert gone == set()


def test_every_link_within_it_leads_to_a_file(site: Path) -> None:
    """Pages that are stored elsewhere (README, ARCHITECTURE) are links of the site here, too."""
    gone = [
        f"{page.relative_to(site)}: {link}"
        for page in site.rglob("*.html")
        for link in re.findall(r'href="([^"#?:]+)[#?"]', page.read_text())
        if not link.startswith("/") and not (page.parent / link).exists()
    ]
    assert not gone


def test_no_page_shows_what_markdown_did_not_understand(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert 'class="language-mermaid"' not in text and 'class="mermaid"' not in text, page
        assert not re.search(r":(?:meth|class|func):", text), page


@pytest.mark.parametrize(
    "word, place",
    [
        ("LocalQuorum", "reference/api.html"),
        ("--durability", "reference/cli.html"),
        ("max.connections.per.ip", "reference/configuration.html"),
        ("UnknownOutcome", "reference/errors.html"),
        ("UNKNOWN_PRODUCER_ID", "reference/error-codes.html"),
        ("D21", "explanation/architecture.html"),
    ],
)
def test_the_search_finds(site: Path, word: str, place: str) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert place in {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if word in entry["text"] or word in entry["title"]
    }


def test_the_search_needs_no_server(site: Path) -> None:
    shim = "assets/javascripts/iframe-worker.js"
    assert (site / shim).is_file()
    for page in ("index.html", "reference/api.html"):
        sources = re.findall(r'<script src="([^"]*iframe-worker[^"]*)"', (site / page).read_text())
        assert [(site / page).parent.joinpath(each).resolve() for each in sources] == [
            (site / shim).resolve()
        ]
