"""The words of ``kraftfast top``: what stands in its tables, live and with ``--once``."""

from __future__ import annotations

from kraftfast.cli.show import microseconds
from kraftfast.live.view import ReplicaView, StageView, View

REPLICAS = (
    "replica", "role", "end offset", "lag", "unflushed", "fsyncs/s", "p99", "ring", "clients",
    "elections", "CPU", "memory", "log", "disk free",
)  # fmt: skip
"""``p99``: of the fsyncs. ``ring``: how full. ``clients``: producers/watchers/connections."""
TEXTS = 2
"""So many columns of ``REPLICAS`` are words; numbers stand to the right."""
NARROW = ((0, 1, 2, 3, 4, 5, 6, 9), (0, 1, 7, 8, 10, 11, 12, 13))
"""Columns of ``REPLICAS`` that have room in 80 columns: one half, and the other."""
STAGES = ("stage", "p50", "p99", "p99.9", "max", "samples")
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN = "-"


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands, a dash for what is not known.

    >>> number(1234567), number(1.25, 1), number(None)
    ('1,234,567', '1.2', '-')
    """
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def size(value: float | None) -> str:
    """Return a number of bytes in the unit that suits it.

    >>> size(512), size(5 << 20), size(None)
    ('512 B', '5.0 MiB', '-')
    """
    if value is None:
        return UNKNOWN
    unit = 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{value:.0f} B"


def percent(value: float | None) -> str:
    """Return a share of 1 as a percentage."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def head(it: View) -> str:
    """Return who leads, and how much is committed a second."""
    leader = f"replica {it.leader_id} leads epoch {it.epoch}" if it.leader_id >= 0 else "no leader"
    rate = f"{number(it.records_per_s)} records/s"
    return (
        f"{leader}, {rate}, {size(it.bytes_per_s)}/s, {number(it.batches_per_s)} batches/s, "
        f"high watermark {number(it.high_watermark)}"
    )


def replica_cells(it: ReplicaView) -> list[str]:
    """Return the cells under ``REPLICAS``."""
    clients = (it.producers, it.watchers, it.connections)
    return [
        str(it.id),
        it.role if it.up else "down",
        number(it.end_offset),
        number(it.lag_records),
        number(it.unflushed_records),
        number(it.flushes_per_s),
        microseconds(it.flush_p99_us),
        percent(it.ring_fill),
        UNKNOWN if None in clients else "/".join(map(str, clients)),
        number(it.elections),
        percent(it.cpu),
        size(it.resident_bytes),
        size(it.log_bytes),
        size(it.free_bytes),
    ]


def stage_cells(name: str, it: StageView) -> list[str]:
    """Return the cells under ``STAGES``."""
    slow = map(microseconds, (it.p50_us, it.p99_us, it.p999_us, it.max_us))
    return [name.replace("_", " "), *slow, number(it.count)]


def problems(it: View) -> list[str]:
    """Return a line about each replica that is not ready."""
    return [
        f"replica {each.id}: {each.why_not_ready}" for each in it.replicas if each.why_not_ready
    ]
