"""What one replica may hold in memory, beside its log and what is derived from it (I25).

In a search there are few peers, readers and records, so whatever a replica keeps for ever grows
beyond a bound that is as small. The limits that strangers meet are tested in tests/core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.model import timeless
from tests.model.storing import attributes_of

if TYPE_CHECKING:
    from tests.model.alone import Lone

PER_PEER = 6
"""Elements of one container for each replica of the quorum: as many as a channel holds messages."""
ASKED = 12
"""Readers and consumers that may wait at once: more than ask in any search."""
CONTAINERS = (list, dict, set, deque)


def stay_small(host: Lone) -> None:
    """Assert that nothing that a replica remembers of its peers and readers grows without end."""
    assert host.replica is not None
    most = ASKED + PER_PEER * len(host.world.setting.ids)
    for name, count in held(timeless.state_of(host.replica)):
        host.world.looked["held"] = max(host.world.looked["held"], count)
        assert count <= most, f"I25: {host.id} holds {count} {name}, where {most} may be"


def held(state: Any) -> Iterator[tuple[str, int]]:
    """Yield each container of a replica's state by name, with the number of its elements."""
    election = getattr(state.current, "election", None)
    for thing in (*timeless.timed(state), state.peers, *([election] if election else [])):
        for name in attributes_of(type(thing), thing):
            value = getattr(thing, name)
            if isinstance(value, CONTAINERS):
                yield f"{type(thing).__name__}.{name}", len(value)
