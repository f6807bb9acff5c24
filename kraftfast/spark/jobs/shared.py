"""What the replicas of a log should have alike, and what only looks like a divergence."""

from __future__ import annotations

from kraftfast.log.reading.extents import LogExtents, agreed_end
from kraftfast.spark.jobs.audit_findings import Finding
from kraftfast.spark.reading.committed import OneLog, quorum_end
from kraftfast.spark.reading.locations import Place


def shared_offsets(places: list[Place], bounds: dict[str, int | None]) -> range:
    """Return the offsets that all replicas should have, below their bounds."""
    extents = [LogExtents(place.log_path).look(bounds[place.name]) for place in places]
    ends = [end for end in bounds.values() if end is not None]
    first = max(each.start_offset for each in extents)
    return range(first, max(first, min([*ends, *(each.end_offset for each in extents)])))


def void_tails(places: list[Place]) -> dict[str, Finding]:
    """Return by replica the records of an earlier epoch than those committed at their offsets.

    A leader that was cut off appended them, and the replica's next start drops them.
    """
    logs = [OneLog(place) for place in places if place.directory]
    if len(logs) < 2:
        return {}
    found = {}
    try:
        best = quorum_end(logs)
        reference = best.log.extent(best.end)
        for log in logs:
            mine, known = log.whole_extent(), log.end()
            first = agreed_end(reference, mine)
            epoch, other = mine.epoch_at(first), reference.epoch_at(first)
            if not -1 < epoch < other or known is None or known > first:
                continue
            name, end = log.place.name, mine.end_offset
            text = (
                f"{name} holds {end - first:,} records from offset {first:,} on, of epoch {epoch}, "
                f"that never were committed: those of epoch {other} were"
            )
            found[name] = Finding("tail", name, "", -1, first, end, text, True)
    finally:
        for log in logs:
            log.close()
    return found
