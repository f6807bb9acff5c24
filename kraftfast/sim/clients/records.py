"""The records that answer a Fetch of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.sim.machines.process import Process


def read_answer(process: Process, effect: AnswerFetch) -> bytes | None:
    """Read what answers a Fetch that is none of a stream, perhaps cut short; None: nothing."""
    if effect.read_offset < 0:
        return None
    bound = min(effect.max_bytes, process.settings.fetch_max_bytes)
    found = process.log.locate(effect.read_offset, bound, effect.read_end_offset)
    if found is None:
        return None
    segment, position, length = found
    return bytes(segment.file.view(position, position + length))
