"""What producers were told against what the log holds, in one pass (I23, I24).

The log's offsets give the order, so nothing is searched for: every acknowledged value stands where
it was said to, once; none that was refused is there; an append that was acknowledged before
another was begun stands before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.record import pure
from kraftfast.sim.clients.clients import ACKNOWLEDGED, FAILED, UNKNOWN, Append, Told
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process


def read_bytes(process: Process, end_offset: int) -> bytes:
    """Return every batch below ``end_offset``."""
    log, offset, found = process.log, process.log.log_start_offset, []
    while offset < end_offset:
        segment, position, length = log.locate(offset, 1 << 30, end_offset)
        found.append(bytes(segment.file.view(position, position + length)))
        base_offset = segment.place_of(offset)[1]
        offset = log.span(segment, position, base_offset, 1 << 30, end_offset)[1]
    return b"".join(found)


def read_values(data: bytes) -> dict[int, bytes | None]:
    """Offset -> value of every record of a log from offset 0, control records as None."""
    values: dict[int, bytes | None] = {}
    for batch in pure.batches(data):
        batch.check()
        require(batch.base_offset == len(values), f"a gap before offset {batch.base_offset}")
        for record in batch.records():
            values[record.offset] = None if batch.is_control else record.value
    return values


def places_of(values: dict[int, bytes | None]) -> dict[bytes, int]:
    """Return where each value stands; I23: once."""
    places: dict[bytes, int] = {}
    for offset, value in values.items():
        if value is not None:
            require(value not in places, f"I23: {value[:20]!r} at {places.get(value)} and {offset}")
            places[value] = offset
    return places


def check_history(history: list[Append | Told], places: dict[bytes, int]) -> dict[str, int]:
    """Hold every outcome against the committed values; returns how many there were of each."""
    counts = {ACKNOWLEDGED: 0, FAILED: 0, UNKNOWN: 0, "": 0}
    last_of: dict[tuple[int, int], int] = {}
    for append in history:
        counts[append.outcome] += 1
        found = [places.get(value, -1) for value in append.values]
        name = append.values[0][:20]
        if append.outcome == ACKNOWLEDGED:
            expected = list(range(append.base_offset, append.end_offset))
            require(
                found == expected, f"I23: {name!r} acknowledged at {expected}, found at {found}"
            )
            require(
                append.base_offset >= append.floor,
                f"{name!r} stands at {append.base_offset}, but {append.floor} was acknowledged "
                "before it was begun",
            )
        elif append.outcome == FAILED:
            require(set(found) == {-1}, f"I24: {name!r} was refused, and stands at {found}")
        if found[0] >= 0:
            require(
                found == list(range(found[0], found[0] + len(found))),
                f"I23: {name!r} is torn apart: {found}",
            )
            last = last_of.get(append.ring, -1)
            require(found[0] > last, f"I23: {name!r} of one producer at {found} after {last}")
            last_of[append.ring] = found[-1]
    return counts
