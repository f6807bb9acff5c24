"""The quorum that the options of a benchmark describe."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20
SEGMENT_BYTES_MAX = 2**31 - MIB
SEGMENT_BYTES = 256 * MIB
KEPT_SEGMENTS = 4
START_TIMEOUT_S = 600.0


def quorum_of(place: str, asked: dict[str, Any], prepare_bytes: int = 0) -> Any:
    """Start the quorum that the options of a benchmark describe; what is left out is usual."""
    from kraftfast import LocalQuorum

    kept = asked.get("retention")
    retention = None if kept is None else int(kept * MIB)
    wanted = prepare_bytes if retention is None else retention // KEPT_SEGMENTS
    segment_bytes = asked.get("segment_bytes") or min(SEGMENT_BYTES_MAX, max(wanted, SEGMENT_BYTES))
    names = ("durability", "flush", "transport", "idle", "processors")
    return LocalQuorum(
        place,
        asked["voters"],
        segment_bytes=segment_bytes,
        prepare_bytes=prepare_bytes,
        retention_bytes=retention,
        timeout=START_TIMEOUT_S,
        **{name: asked[name] for name in names if name in asked},
    )
