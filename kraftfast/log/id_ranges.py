"""Make producer ids so that an id which was handed out earlier is smaller.

A leader's is its epoch (31 bits) and a number that counts up in it. A replica that does not lead
gives its clock and its own id: 2^62, the microseconds since 2020 times 2^11, the low bits of the
node id. So no id is given twice, and of each kind later ids are larger: a log that has forgotten a
producer need not remember more than the largest id that it has forgotten of each kind
(``producers.pyx``).
"""

from __future__ import annotations

NUMBER_BITS = 31
CLOCK_ID = 1 << 62
"""The first id of the second kind: those of replicas that do not lead."""
NODE_BITS = 11
CLOCK_BEGIN_US = 1_577_836_800_000_000
"""2020-01-01: microseconds since then have 51 bits until 2091."""


def leader_id(epoch: int, number: int) -> int:
    """Return the id that a leader hands out as its ``number``-th, from 1."""
    assert 0 <= epoch < 1 << 31 and 0 <= number < 1 << NUMBER_BITS
    return epoch << NUMBER_BITS | number


def clock_id(now_us: int, node_id: int) -> int:
    """Return the id of a replica that does not lead; ``now_us``: since 1970, never the same."""
    ticks = min(max(now_us - CLOCK_BEGIN_US, 0), (1 << 51) - 1)
    return CLOCK_ID | ticks << NODE_BITS | node_id & (1 << NODE_BITS) - 1
