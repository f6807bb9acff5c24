"""``server.properties``: Kafka's config names, and what they are here.

An unknown key is refused with the nearest name that is known; one of Kafka's brokers that
has no meaning here is noted; one that would promise security that is not there is refused.
Sources: Kafka's ``KRaftConfigs``, ``QuorumConfig``,
``SocketServerConfigs``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from kraftfast import limits
from kraftfast.arguments import ID_MAX
from kraftfast.cli.hints import did_you_mean
from kraftfast.cli.options import listen_address
from kraftfast.cli.root import say_warning
from kraftfast.core.config import FlushPolicy
from kraftfast.errors import InputError, InvalidOption
from kraftfast.log.small_files import properties
from kraftfast.node.event_log import FORMATS
from kraftfast.node.node_config import ListenerConfig, NodeConfig, VoterConfig
from kraftfast.types import Address, address_from_text

Fields = Mapping[str, str]
ANY_HOST = ("", "0.0.0.0", "::")
"""What a listener on every address has for its host: nothing that others could connect to."""


class ServerProperties(NamedTuple):
    """One replica as its file describes it, and what is to be said about the file.

    ``metrics``: where ``/metrics`` is served, None if nowhere. ``log_format``: of events.
    """

    node: NodeConfig
    notes: list[str]
    metrics: Address | None = None
    log_format: str = "text"


def number(least: int = 0, most: int = 2**63 - 1) -> Callable[[str], int]:
    """Return a parser of whole numbers within bounds."""

    def parse(text: str) -> int:
        value = int(text) if is_number(text.removeprefix("-")) else None
        if value is None or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most} is expected")
        return value

    return parse


def choice(*known: str) -> Callable[[str], str]:
    """Return a parser of words."""

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"one of {', '.join(known)} is expected")
        return text

    return parse


def truth(text: str) -> bool:
    """``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is expected")
    return text.lower() == "true"


SCALARS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "controller.quorum.election.timeout.ms": ("election_timeout_ms", number(1)),
    "controller.quorum.fetch.timeout.ms": ("fetch_timeout_ms", number(1)),
    "controller.quorum.election.backoff.max.ms": ("election_backoff_ms_max", number(0)),
    "controller.quorum.request.timeout.ms": ("request_timeout_ms", number(1)),
    "controller.quorum.retry.backoff.ms": ("retry_backoff_ms", number(0)),
    "controller.quorum.fetch.max.bytes": ("fetch_max_bytes", number(1, limits.BATCH_BYTES_MAX)),
    "controller.quorum.auto.join.enable": ("auto_join", truth),
    "controller.quorum.fetch.snapshot.max.bytes": (
        "fetch_snapshot_max_bytes",
        number(1, limits.BATCH_BYTES_MAX),
    ),
    "kraftfast.campaign": ("campaign", truth),
    "metadata.max.retention.bytes": ("retention_bytes", number(-1)),
    "metadata.max.retention.ms": ("retention_ms", number(-1)),
    "metadata.log.max.record.bytes.between.snapshots": ("snapshot_bytes", number(1)),
    "metadata.log.max.snapshot.interval.ms": ("snapshot_interval_ms", number(0)),
    "metadata.log.segment.bytes": (
        "segment_bytes",
        number(limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX),
    ),
    "metadata.log.segment.ms": ("segment_ms", number(1)),
    "max.connections": ("connections_max", number(1)),
    "max.connections.per.ip": ("connections_per_address_max", number(1)),
    "kraftfast.producers.max": ("producers_max", number(1, limits.PRODUCERS_MAX)),
    "kraftfast.flush": ("flush", choice(*(each.value for each in FlushPolicy))),
    "kraftfast.idle": ("idle", choice(*limits.IDLE_SPIN_US)),
    "kraftfast.prepare.bytes": ("prepare_bytes", number(0)),
    "kraftfast.prepare.stride.bytes": ("stride_bytes", number(limits.PREPARE_PIECE_BYTES)),
}
"""Keys that are one field of NodeConfig each."""

STRUCTURED = (
    "process.roles", "node.id", "controller.quorum.voters", "controller.quorum.bootstrap.servers",
    "listeners", "advertised.listeners", "controller.listener.names",
    "listener.security.protocol.map", "metadata.log.dir", "log.dirs", "log.dir",
    "kraftfast.metrics.listen", "kraftfast.log.format",
)  # fmt: skip

WITHOUT_MEANING = (
    "num.network.threads", "num.io.threads", "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes", "socket.request.max.bytes", "num.partitions",
    "num.recovery.threads.per.data.dir",
    "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr", "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr", "log.flush.interval.messages", "log.flush.interval.ms",
    "log.retention.hours", "log.retention.bytes", "log.segment.bytes",
    "log.retention.check.interval.ms", "inter.broker.listener.name",
    "group.initial.rebalance.delay.ms",
    "producer.id.expiration.ms", "producer.id.expiration.check.interval.ms",
    "controller.quorum.append.linger.ms", "metadata.max.idle.interval.ms",
)  # fmt: skip
"""Keys of Kafka's own example files and of its controllers that change nothing here."""

SECURITY = (
    "ssl.",
    "sasl.",
    "authorizer.",
    "super.users",
    "security.",
    "principal.",
    "listener.name.",
)


PROPERTIES_BYTES_MAX = 1 << 20


def read_server(path: str, warn: Callable[[str], None] = say_warning) -> ServerProperties:
    """Return the replica that a ``server.properties`` describes.

    ``warn`` is told of keys that stand there twice: Kafka, too, takes the last one without a word.
    Raises InputError, InvalidOption.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(PROPERTIES_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > PROPERTIES_BYTES_MAX:
        raise InputError(f"{path} is no properties file: it has more than 1 MiB")
    try:
        fields = properties.decode(data)
    except ValueError as error:
        raise InvalidOption(f"{path} is not a properties file: {error}") from None
    for key, lines in properties.doubled(data).items():
        where = ", ".join(map(str, lines[:-1]))
        warn(f"{path}: {key} stands in line {where} and again in line {lines[-1]}, which counts")
    try:
        return server(fields)
    except InvalidOption as error:
        raise InvalidOption(f"{path}: {error}") from None


def server(fields: Fields) -> ServerProperties:
    """Return the replica that these keys and values describe. Raises InvalidOption."""
    notes = check_names(fields)
    settings = {
        field: _parse(fields, key, parse)
        for key, (field, parse) in SCALARS.items()
        if key in fields
    }
    node_id = _parse(fields, "node.id", number(0, ID_MAX))
    voters = _voters(fields)
    may_vote = _may_vote(fields, node_id, {voter.id for voter in voters})
    if not voters and not _list(fields, "controller.quorum.bootstrap.servers"):
        raise InvalidOption(
            "controller.quorum.bootstrap.servers is missing (or controller.quorum.voters, for "
            "voters that never change)"
        )
    names = [name.upper() for name in _list(fields, "controller.listener.names")]
    listeners = _listeners(fields)
    if not names or (may_vote and names[0] not in {listener.name for listener in listeners}):
        raise InvalidOption("controller.listener.names must name a listener of `listeners`")
    own = next((voter for voter in voters if voter.id == node_id), None)
    if may_vote:
        listeners = [_reachable(each, own if each.name == names[0] else None) for each in listeners]
    node = NodeConfig(
        node_id=node_id,
        directory=_directory(fields),
        voters=voters,
        listeners=listeners,
        controller_listener=names[0],
        may_vote=may_vote,
        bootstrap_servers=[
            address_of(part, "controller.quorum.bootstrap.servers")
            for part in _list(fields, "controller.quorum.bootstrap.servers")
        ],
        **settings,
    )
    if node.auto_join and not (may_vote and node.endpoints):
        raise InvalidOption(
            "controller.quorum.auto.join.enable: only a controller that others can reach can join"
        )
    node.quorum_config("majority")  # bounds that hold between values
    metrics, form = "kraftfast.metrics.listen", "kraftfast.log.format"
    return ServerProperties(
        node,
        notes,
        _parse(fields, metrics, listen_address) if metrics in fields else None,
        _parse(fields, form, choice(*FORMATS)) if form in fields else FORMATS[0],
    )


def _may_vote(fields: Fields, node_id: int, voters: set[int]) -> bool:
    """Return whether it is a controller; a broker only follows, and serves reads.

    Raises InvalidOption.
    """
    roles = _list(fields, "process.roles")
    if roles not in (["controller"], ["broker"]):
        raise InvalidOption(
            f"process.roles must be controller or broker, not {','.join(roles) or 'empty'}: a "
            "controller may vote, a broker observes; this replicates the log of a quorum alone"
        )
    if roles == ["controller"] and voters and node_id not in voters:
        raise InvalidOption(f"node.id {node_id} is not among controller.quorum.voters")
    if roles == ["broker"] and node_id in voters:
        raise InvalidOption(f"node.id {node_id} is among controller.quorum.voters: no broker is")
    return roles == ["controller"]


def check_names(fields: Fields) -> list[str]:
    """Return what is to be noted about the keys.

    Raises InvalidOption for an unknown or unsafe one.
    """
    known = [*SCALARS, *STRUCTURED]
    ignored = []
    for key in fields:
        if key in known:
            continue
        if key in WITHOUT_MEANING:
            ignored.append(key)
        elif key.startswith(SECURITY):
            raise InvalidOption(f"{key}: there is no authentication or encryption here yet")
        else:
            hint = did_you_mean(key, [*known, *WITHOUT_MEANING])
            name = key if key.isprintable() else ascii(key)  # a byte order mark is not seen
            raise InvalidOption(f"there is no key {name}{hint}")
    return [f"without effect here: {', '.join(ignored)}"] if ignored else []


def _parse(fields: Fields, key: str, parse: Callable[[str], Any]) -> Any:
    if key not in fields:
        raise InvalidOption(f"{key} is missing")
    try:
        return parse(fields[key])
    except ValueError as error:
        raise InvalidOption(f"{key}={fields[key]}: {error}") from None


def _list(fields: Fields, key: str) -> list[str]:
    return [part.strip() for part in fields.get(key, "").split(",") if part.strip()]


def address_of(text: str, key: str, port_min: int = 1, *, any_host: bool = False) -> Address:
    """Return the ``host:port`` of a setting. Raises InvalidOption."""
    try:
        return address_from_text(text, port_min, any_host=any_host)
    except ValueError as error:
        raise InvalidOption(f"{key}: {error}") from None


def is_number(text: str) -> bool:
    """Return whether this is the text of a whole number that is not negative.

    ``isdigit`` is true of a superscript 2 too, of which ``int`` makes no number.
    """
    return text.isascii() and text.isdecimal() and len(text) < 20


def is_id(text: str) -> bool:
    """Return whether this is the text of a replica's id, which requests carry in four bytes."""
    return is_number(text) and int(text) <= ID_MAX


def _voters(fields: Fields) -> list[VoterConfig]:
    found: dict[int, VoterConfig] = {}
    key = "controller.quorum.voters"
    for part in _list(fields, key):
        id, at, address = part.partition("@")
        if not at or not is_id(id):
            raise InvalidOption(f"{key}: {part!r} is not id@host:port, with an id up to {ID_MAX}")
        host, port = address_of(address, key)
        if host in ANY_HOST:
            raise InvalidOption(f"{key}: {part!r}: others cannot reach this address")
        if int(id) in found:
            raise InvalidOption(f"{key}: voter {id} is listed twice")
        found[int(id)] = VoterConfig(int(id), host, port)
    if len(found) > limits.VOTERS_MAX:
        raise InvalidOption(f"{key}: more than {limits.VOTERS_MAX} voters")
    return list(found.values())


def _listeners(fields: Fields) -> list[ListenerConfig]:
    advertised = {
        name: (host, port) for name, host, port in _endpoints(fields, "advertised.listeners")
    }
    found = [
        ListenerConfig(name, host, port, *advertised.get(name, ("", 0)))
        for name, host, port in _endpoints(fields, "listeners", 0)
    ]
    names = [listener.name for listener in found]
    if not found:
        raise InvalidOption("listeners is missing")
    if len(set(names)) < len(names):
        raise InvalidOption("listeners: a name is listed twice")
    for name in advertised:
        if name not in names:
            raise InvalidOption(f"advertised.listeners: {name} is not among listeners")
    for part in _list(fields, "listener.security.protocol.map"):
        name, _, protocol = part.partition(":")
        if protocol.upper() != "PLAINTEXT" and name.upper() in names:
            raise InvalidOption(
                f"listener.security.protocol.map: {part}: only PLAINTEXT is there yet"
            )
    return found


def _reachable(listener: ListenerConfig, own: VoterConfig | None) -> ListenerConfig:
    """Return a listener on every address with an advertised one: that of the own entry among the
    static voters, else this host's name (Kafka's ``effectiveAdvertisedControllerListeners``)."""
    if listener.advertised_host or listener.host not in ANY_HOST:
        return listener
    host, port = (own.host, own.port) if own is not None else (socket.getfqdn(), listener.port)
    return msgspec.structs.replace(listener, advertised_host=host, advertised_port=port)


def _endpoints(fields: Fields, key: str, port_min: int = 1) -> list[tuple[str, str, int]]:
    found = []
    for part in _list(fields, key):
        name, slashes, address = part.partition("://")
        if not slashes or not name:
            raise InvalidOption(f"{key}: {part!r} is not NAME://host:port")
        found.append((name.upper(), *address_of(address, key, port_min, any_host=True)))
    return found


def _directory(fields: Fields) -> str:
    """Return metadata.log.dir, else the first of log.dirs, else log.dir, as Kafka does."""
    for key in ("metadata.log.dir", "log.dirs", "log.dir"):
        places = _list(fields, key)
        if places:
            return os.path.abspath(places[0])
    raise InvalidOption("metadata.log.dir (or log.dirs) is missing")
