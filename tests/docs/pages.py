"""The pages that a user reads, and the examples in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cli.kit import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """One block of a page."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        """Where it stands, and how it begins."""
        first = self.text.splitlines()[0][:40]
        return f"{self.page.relative_to(ROOT)} {self.language} {first}"

    @property
    def runs_spark(self) -> bool:
        return "spark" in self.text


def blocks(page: Path, *languages: str) -> Iterator[Example]:
    """Yield the blocks of a page, those in these languages or all."""
    for language, text in BLOCK.findall(page.read_text()):
        if not languages or language in languages:
            yield Example(page, language, text)
