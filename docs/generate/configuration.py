"""The page of configuration keys, from the table by which ``server.properties`` is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kraftfast.cli.server_properties import SCALARS, SECURITY, STRUCTURED, WITHOUT_MEANING
from kraftfast.node.node_config import NodeConfig

HEAD = """# Configuration

`kraftfast serve --config FILE` reads Kafka's `server.properties`. An unknown key is refused with
the nearest known name. The keys below whose names begin with `kraftfast.` are our own; all others
are Kafka's. Times are milliseconds, sizes bytes.

## What the replica is

| key | meaning |
| --- | --- |
"""
SCALARS_HEAD = """
## How it runs

| key | default | values | meaning |
| --- | --- | --- | --- |
"""
WITHOUT_HEAD = """
## Keys without effect

Kafka's example files have these. They are accepted, change nothing here, and a note says so at the
start: """
SECURITY_HEAD = """
## Keys that are refused

Keys that would promise security which is not there yet are refused: those that begin with """

STRUCTURES = {
    "process.roles": "`controller`: the replica may vote; `broker`: it observes",
    "node.id": "the replica's id, 0 to 2,147,483,647, unique in the quorum",
    "controller.quorum.voters": "static voters, as `id@host:port,...`; without effect once the "
    "log holds voters (`kraft.version` 1)",
    "controller.quorum.bootstrap.servers": "servers to ask for the leader, as `host:port,...`",
    "listeners": "addresses to listen on, as `NAME://host:port,...`",
    "advertised.listeners": "the addresses that others are told, if they differ",
    "controller.listener.names": "the listener of `listeners` that replicas use among themselves",
    "listener.security.protocol.map": "every listener must map to `PLAINTEXT`",
    "metadata.log.dir": "the replica's directory",
    "log.dirs": "its first entry is the directory if `metadata.log.dir` is missing",
    "log.dir": "the directory if both of the above are missing",
    "kraftfast.metrics.listen": "where `/metrics`, `/healthz` and `/readyz` are served, as "
    "`host:port`, or as `port` on 127.0.0.1; off without it "
    "([Prometheus](../operations/prometheus.md))",
    "kraftfast.log.format": "how events are written on stderr, `text` or `json` "
    "([Events](../operations/events.md))",
}
MEANINGS = {
    "controller.quorum.election.timeout.ms": "a campaign that has no result ends after this "
    "time to twice this time, at random",
    "controller.quorum.fetch.timeout.ms": "a follower that does not reach its leader for so long "
    "campaigns; a leader that no majority fetches from for so long resigns",
    "controller.quorum.election.backoff.max.ms": "the longest time that a voter waits after "
    "EndQuorumEpoch if it is not first in the list of successors",
    "controller.quorum.request.timeout.ms": "a request without an answer is repeated after this",
    "controller.quorum.retry.backoff.ms": "the pause before a failed request is repeated",
    "controller.quorum.fetch.max.bytes": "the largest response to a Fetch of a replica",
    "controller.quorum.auto.join.enable": "the replica asks to become a voter by itself",
    "controller.quorum.fetch.snapshot.max.bytes": "the largest slice of a snapshot",
    "kraftfast.campaign": "whether it ever asks to lead; by default all but a witness do",
    "metadata.max.retention.bytes": "how much of the log is kept, -1: all. By default 100 MiB "
    "where a state machine makes snapshots, all elsewhere",
    "metadata.max.retention.ms": "how long records are kept, -1: for ever. By default 7 days where "
    "a state machine makes snapshots, for ever elsewhere",
    "metadata.log.max.record.bytes.between.snapshots": "a snapshot is made after so many bytes",
    "metadata.log.max.snapshot.interval.ms": "and after so much time; 0: never by time",
    "metadata.log.segment.bytes": "the size of a segment file",
    "metadata.log.segment.ms": "a segment is closed after this time even if it is not full",
    "max.connections": "connections from clients at once",
    "max.connections.per.ip": "connections from one address at once",
    "kraftfast.producers.max": "how many idempotent producers the log remembers",
    "kraftfast.flush": "when the leader flushes its own log: see "
    "[Deferred flush](../explanation/deferred-flush.md)",
    "kraftfast.idle": "how the loop waits: `block`, `hybrid`, `spin`, `poll` from the least CPU "
    "time to the least latency",
    "kraftfast.prepare.bytes": "how much is written with zeros before the replica starts",
    "kraftfast.prepare.stride.bytes": "how much is written with zeros ahead of the log's end under "
    "load; a replica goes on from `kraftfast.prepare.bytes` with 8 times what it has appended",
}


def page() -> str:
    """Return the page. Raises KeyError for a key that is not described here."""
    described = [f"| `{key}` | {STRUCTURES[key]} |" for key in STRUCTURED]
    text = HEAD + "\n".join(described) + "\n" + SCALARS_HEAD
    text += "\n".join(scalar_row(key, field, parse) for key, (field, parse) in SCALARS.items())
    text += "\n" + WITHOUT_HEAD + ", ".join(f"`{key}`" for key in WITHOUT_MEANING) + ".\n"
    return text + SECURITY_HEAD + ", ".join(f"`{key}`" for key in SECURITY) + ".\n"


def scalar_row(key: str, field: str, parse: Callable[[str], Any]) -> str:
    """Return the row of a key that is one field of NodeConfig."""
    fields = NodeConfig.__struct_defaults__
    names = NodeConfig.__struct_fields__
    default = fields[names.index(field) - (len(names) - len(fields))]
    shown = "see meaning" if default is None else f"`{str(default).lower()}`"
    return f"| `{key}` | {shown} | {values(parse)} | {MEANINGS[key]} |"


def values(parse: Callable[[str], Any]) -> str:
    """Return the values that a parser takes, from the variables it closes over."""
    held = inspect.getclosurevars(parse).nonlocals
    if "known" in held:
        return ", ".join(f"`{word}`" for word in held["known"])
    if "least" in held:
        most = "" if held["most"] == 2**63 - 1 else f" to {held['most']:,}"
        return f"{held['least']:,}{most or ' or more'}"
    return "`true`, `false`"
