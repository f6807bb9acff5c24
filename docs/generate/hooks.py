"""MkDocs hooks: pages that are made from the sources, and links that hold within the site.

``PAGES`` lists the generated pages. They are not stored: the build makes them, so that they cannot
differ from the code. Sources: MkDocs' events ``on_files``, ``on_page_markdown``,
``on_page_content``.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).parent))

import commands  # noqa: E402
import configuration  # noqa: E402
import errors  # noqa: E402
import included  # noqa: E402

PAGES: dict[str, Callable[[], str]] = {
    "index.md": included.home,
    "explanation/architecture.md": included.architecture,
    "benchmarks/profiles.md": included.profiles,
    "reference/cli.md": commands.page,
    "reference/configuration.md": configuration.page,
    "reference/errors.md": errors.exceptions_page,
    "reference/error-codes.md": errors.codes_page,
}
IN_THE_CLONE = {
    "../../README.md": "index.md",
    "../../ARCHITECTURE.md": "explanation/architecture.md",
    "../../profiles/README.md": "benchmarks/profiles.md",
}
"""Links of pages to files beside ``docs``, and the pages that are made of those."""
PICTURES = ("follower-after.svg", "follower-before.svg")
SIGNATURE = re.compile(r"<p>Appender\.\w+[:(][^\n]*\n")
SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the theme loads so that a search works in pages that are opened as files."""
ROLE = re.compile(r":(?:meth|class|func|data|attr|mod|exc):<code>")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and the pictures that they show."""
    for place, make in PAGES.items():
        files.append(File.generated(config, place, content=make()))
    for name in PICTURES:
        path = included.ROOT / "profiles" / name
        files.append(File.generated(config, f"benchmarks/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to files of the clone to the pages that are made of those."""
    for link, place in IN_THE_CLONE.items():
        target = posixpath.relpath(place, posixpath.dirname(page.file.src_uri))
        markdown = markdown.replace(f"]({link}", f"]({target}")
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Remove what docstrings have and Markdown does not: Sphinx's roles, Cython's signatures."""
    return SIGNATURE.sub("<p>", ROLE.sub("<code>", html))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the one script that the theme would load from another host from the site itself."""
    return output.replace(SHIM, get_relative_url("assets/javascripts/iframe-worker.js", page.url))


def on_post_template(output: str, **_: Any) -> str:
    """Remove that script from pages that stand nowhere, as 404.html."""
    return output.replace(f'<script src="{SHIM}"></script>', "")
