"""The quorum that the options of a benchmark describe."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20
SEGMENT_BYTES_MAX = 2**31 - MIB
SEGMENT_BYTES = 256 * MIB
KEPT_SEGMENTS = 4
START_TIMEOUT_S = 600.0
HOST = "127.0.0.1"
PORT_TRIES_MAX = 100


def quorum_of(place: str, asked: dict[str, Any], prepare_bytes: int = 0, **settings: Any) -> Any:
    """Start the quorum that the options of a benchmark describe; what is left out is usual."""
    from kraftfast import LocalQuorum
    from kraftfast.bench.loads import retained

    kept = asked.get("retention")
    retention = None if kept is None else int(kept * MIB)
    wanted = prepare_bytes if retention is None else retention // KEPT_SEGMENTS
    segment_bytes = asked.get("segment_bytes")
    usual = retention is not None and asked["durability"] == "memory"
    if segment_bytes is None and wanted > SEGMENT_BYTES and not usual:
        segment_bytes = min(SEGMENT_BYTES_MAX, wanted)
    names = ("durability", "flush", "transport", "idle", "processors")
    settings |= retained.settings(asked.get("retained_producers", 0))
    settings |= listening(asked)
    return LocalQuorum(
        place,
        asked["voters"],
        segment_bytes=segment_bytes,
        prepare_bytes=prepare_bytes,
        retention_bytes=retention,
        timeout=START_TIMEOUT_S,
        **{name: asked[name] for name in names if name in asked},
        **settings,
    )


def listening(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a quorum that observers and idle connections reach over TCP."""
    from kraftfast.bench.loads import other_clients

    if not other_clients.wanted(asked):
        return {}
    most = other_clients.wanted(asked) + other_clients.CONNECTIONS_OF_OTHERS
    found = {"connections_max": most, "connections_per_address_max": most}
    if asked["transport"] != "socket":
        found["port"] = ports_behind(asked["voters"])
    return found | {"host": HOST, "expose_without_authentication": True}


def ports_behind(count: int) -> int:
    """Return a port behind which so many are free. Raises CannotListen."""
    import socket

    from kraftfast.errors import CannotListen
    from kraftfast.quorum import free_port

    for _ in range(PORT_TRIES_MAX):
        first = free_port(HOST)
        try:
            for port in range(first, first + count):
                socket.create_server((HOST, port)).close()
        except (OSError, OverflowError):
            continue
        return first - 1
    raise CannotListen(f"there are no {count} free ports in a row on {HOST}")
