"""What the flat messages of ``fetch`` and ``produce`` have in common.

A flat message stands for a request or response of one topic and one partition, which is what a
quorum has: the arrays of Kafka's message are flattened away. ``FIELDS`` names its attributes.
"""

from __future__ import annotations

from typing import Any


def assign(flat: Any, values: dict[str, Any]) -> None:
    """Set attributes by name. Raises ``TypeError`` for a name that is not a field."""
    for name, value in values.items():
        if name not in flat.FIELDS:
            raise TypeError(f"{type(flat).__name__} has no field {name!r}")
        setattr(flat, name, value)


def equal(flat: Any, other: Any) -> bool:
    """Return whether both are of one class and all their fields are equal."""
    return type(flat) is type(other) and all(
        getattr(flat, name) == getattr(other, name) for name in flat.FIELDS
    )


def text(flat: Any) -> str:
    """Return the fields that differ from their defaults, as the constructor takes them."""
    default = type(flat)()
    told = (
        f"{name}={getattr(flat, name)!r}"
        for name in flat.FIELDS
        if getattr(flat, name) != getattr(default, name)
    )
    return f"{type(flat).__name__}({', '.join(told)})"


def sole_partition(topics: list[Any], partitions: str) -> tuple[Any, Any] | None:
    """Return topic and partition of a message that has just one, else None."""
    if len(topics) != 1:
        return None
    inside = getattr(topics[0], partitions)
    return (topics[0], inside[0]) if len(inside) == 1 else None
