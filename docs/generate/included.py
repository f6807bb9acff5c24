"""Pages of the site that are stored elsewhere in the repository: README, ARCHITECTURE, profiles."""

from __future__ import annotations

import re
from pathlib import Path

from kraftfast.core.roles import TRANSITIONS, EpochStep

ROOT = Path(__file__).resolve().parents[2]
PICTURE = re.compile(r"<!-- roles -->.*?<!-- /roles -->", re.DOTALL)
EPOCHS = {EpochStep.SAME: "the same", EpochStep.NEXT: "the next", EpochStep.HIGHER: "any higher"}


def home() -> str:
    """Return README.md with links that hold within the site."""
    text = (ROOT / "README.md").read_text()
    text = text.replace("](ARCHITECTURE.md)", "](explanation/architecture.md)")
    text = text.replace("](profiles/README.md)", "](benchmarks/profiles.md)")
    text = re.sub(r"\[(\w+\.md)\]\(\1\)", r"`\1`", text)  # of the repository, not of the site
    return re.sub(r'(\]\(|src(?:set)?=")docs/', r"\1", text)


def architecture() -> str:
    """Return ARCHITECTURE.md. A table stands for its diagram, which needs a script to be drawn."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert PICTURE.search(text), "ARCHITECTURE.md has no table of roles"
    text = PICTURE.sub(roles(), text).replace("](README.md)", "](../index.md)")
    return text.replace("](docs/explanation/", "](").replace("](docs/", "](../")


def roles() -> str:
    """Return the legal transitions of roles as a table."""
    rows = ["| from | to | epoch | when |", "| --- | --- | --- | --- |"]
    rows += [
        f"| {each.source} | {each.target} | {EPOCHS[each.epochs]} | {each.when} |"
        for each in TRANSITIONS
    ]
    return "\n".join(rows) + "\n"


def profiles() -> str:
    """Return profiles/README.md."""
    text = (ROOT / "profiles" / "README.md").read_text()
    return re.sub(r"`(follower-\w+\.svg)`", r"[`\1`](\1)", text)
