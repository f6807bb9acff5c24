"""The records that answer a Fetch, but for those of streams over a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import CorruptLog

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.log.reading.served import Served
    from kraftfast.log.segment import Segment
    from kraftfast.node.node import Node


def records_for(
    node: Node, served: Served, effect: AnswerFetch, bytes_max: int
) -> tuple[Segment, int, int] | None:
    """Return (segment, position, length) of the records; None for none, or if they are damaged.

    Then the answer says CORRUPT_MESSAGE, and the damage is reported.
    """
    if effect.read_offset < 0:
        return None
    try:
        return served.locate(node.log, effect.read_offset, bytes_max, effect.end_offset_max)
    except CorruptLog as error:
        node.damage.refuse(node, effect, error)
        return None
