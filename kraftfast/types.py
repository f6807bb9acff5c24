"""The small values that every floor speaks of. Immutable, comparable, without behaviour of I/O.

Kafka's words: epoch, offset, directory id, voter. Offsets are exclusive ends everywhere.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from dataclasses import dataclass
from typing import NamedTuple

Uuid = bytes
"""A 16-byte id as on the wire (most significant long first); its text is :func:`uuid_text`."""

ZERO_UUID: Uuid = bytes(16)
"""Absent directory id."""

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"
METADATA_PARTITION = 0

SOCKET_NAME = "replica.sock"
"""In the directory of a replica that runs: where its host's processes reach it."""

NO_EPOCH = -1
NO_OFFSET = -1
NO_NODE = -1


def uuid_text(uuid: Uuid) -> str:
    """URL-safe base64 without padding, 22 characters (Kafka's ``Uuid.toString``).

    >>> uuid_text(METADATA_TOPIC_ID)
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> Uuid:
    """The 16 bytes of :func:`uuid_text`. Raises ``ValueError`` for anything else.

    >>> uuid_from_text('AAAAAAAAAAAAAAAAAAAAAQ') == METADATA_TOPIC_ID
    True
    """
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"not a base64 id of 22 characters: {text!r}")
    return raw


HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
HOST_LABEL_CHARACTERS_MAX = 63
HOST_CHARACTERS_MAX = 253


def address_from_text(text: str, port_min: int = 1) -> tuple[str, int]:
    """The host and port of ``host:port``, or of ``[host]:port`` with an IPv6 address.

    >>> address_from_text("localhost:9092"), address_from_text("[::1]:9093")
    (('localhost', 9092), ('::1', 9093))

    The host may be empty. Raises ``ValueError``.
    """
    host, colon, port = text.rpartition(":")
    digits = port.isascii() and port.isdecimal() and len(port) <= 5
    if not colon or not digits or not port_min <= int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port, with a port from {port_min} to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError(f"{text!r}: brackets are for IPv6 addresses")
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"{text!r}: {host!r} is no IPv6 address") from None
    elif not HOST_CHARACTERS.issuperset(host) or len(host) > HOST_CHARACTERS_MAX:
        raise ValueError(f"{text!r}: {host!r} is no host name")
    elif any(not 0 < len(part) <= HOST_LABEL_CHARACTERS_MAX for part in _labels(host)):
        raise ValueError(f"{text!r}: a part of {host!r} is empty or longer than 63 characters")
    return host, int(port)


def _labels(host: str) -> list[str]:
    return host.removesuffix(".").split(".") if host else []


class OffsetAndEpoch(NamedTuple):
    """A place in a log: an offset (often an exclusive end), and the epoch of the record before."""

    offset: int
    epoch: int


class ReplicaKey(NamedTuple):
    """A replica as votes and fetches name it; a zero directory id means "not told"."""

    id: int
    directory_id: Uuid = ZERO_UUID


class Endpoint(NamedTuple):
    """Where a listener of a replica can be reached; names are upper-case as Kafka writes them."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """One entry of a voter set (KIP-853 VotersRecord; static voters have no directory id)."""

    id: int
    directory_id: Uuid = ZERO_UUID
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 0

    @property
    def key(self) -> ReplicaKey:
        """Id and directory id together."""
        return ReplicaKey(self.id, self.directory_id)
