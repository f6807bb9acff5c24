"""What an audit says: of each replica, and of each thing that is wrong or worth knowing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing (``note``)."""

    kind: str
    """``crc``, ``framing``, ``gap``, ``epoch``, ``divergence``, ``snapshot``; ``lag``, ``tail``."""
    replica: str
    """The odd one; "" where no majority says which it is."""
    segment: str
    position: int
    """Byte of ``segment`` where it begins; -1 if it has no one place."""
    first_offset: int
    end_offset: int
    text: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class Audited:
    """One replica's log."""

    replica: str
    start_offset: int
    end_offset: int
    batches: int
    records: int
    bytes: int


@dataclass(slots=True)
class Report:
    """What an audit found out."""

    replicas: list[Audited]
    start_offset: int
    """All replicas were compared from here."""
    end_offset: int
    """And below this offset."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(each.note for each in self.findings)

    @property
    def first(self) -> Finding | None:
        """The problem at the lowest offset."""
        return next((each for each in self.findings if not each.note), None)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        first = self.first
        return {
            "ok": self.ok,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "bytes": sum(each.bytes for each in self.replicas),
            "first": asdict(first) if first is not None else None,
            "replicas": [asdict(each) for each in self.replicas],
            "findings": [asdict(each) for each in self.findings],
        }

    def lines(self) -> list[str]:
        """Return the same for people."""
        made = [
            f"{each.replica}: offsets {each.start_offset:,} to end offset {each.end_offset:,}, "
            f"{each.batches:,} batches, {each.records:,} records, {each.bytes:,} bytes"
            for each in self.replicas
        ]
        made += [f"{'note' if each.note else each.kind}: {each.text}" for each in self.findings]
        if self.first is None:
            count = len(self.replicas)
            alike = f"{count} replicas are identical" if count > 1 else "1 replica is sound"
            made.append(
                f"{alike} from offset {self.start_offset:,} to {self.end_offset:,}, "
                "and every CRC holds"
            )
        else:
            made.append(f"first divergence: {self.first.text}")
        return made
