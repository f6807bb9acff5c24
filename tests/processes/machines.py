"""State machines for tests with real processes."""

from __future__ import annotations

from typing import Any

import kraftfast

FILLER = b"#"
"""A value that begins so is not remembered."""
BALLAST_BYTES = 24 << 20
"""What a snapshot carries beside the state, so that fetching it takes a while."""
ROW_BYTES = 4096


class Seen(kraftfast.StateMachine):
    """Which of the values ``name-number-...`` were applied, and how often anything came twice."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}
        self.twice = self.restored = self.made = 0

    def apply(self, batch: Any) -> None:
        for record in batch.records():
            if record.value.startswith(FILLER):
                continue
            name, number, _ = record.value.decode().split("-", 2)
            numbers = self.seen.setdefault(name, set())
            self.twice += int(number) in numbers
            numbers.add(int(number))

    def snapshot(self, writer: Any) -> None:
        self.made += 1
        for name, numbers in self.seen.items():
            writer.extend(b"%s-%d" % (name.encode(), number) for number in sorted(numbers))
        writer.extend([FILLER * ROW_BYTES] * (BALLAST_BYTES // ROW_BYTES))

    def restore(self, reader: Any) -> None:
        self.restored += 1
        self.seen = {}
        for record in reader.records():
            if not record.value.startswith(FILLER):
                name, number = record.value.decode().split("-")
                self.seen.setdefault(name, set()).add(int(number))

    def query(self, what: str, *args: Any) -> Any:
        if what == "counts":
            return {"twice": self.twice, "restored": self.restored, "made": self.made}
        missing = [number for number in args[1] if number not in self.seen.get(args[0], ())]
        return [len(self.seen.get(args[0], ())), missing[:10]]
