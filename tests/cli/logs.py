"""What the tests of ``kraftfast log`` share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

COMMITTED = Path(__file__).parents[1] / "log" / "data"
"""Log directories that Kafka left."""
CORRUPT, IN_USE, FOREIGN, UNFORMATTED, INPUT, USAGE = 33, 34, 35, 36, 3, 2


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def edit(path: str | Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def contents(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}
