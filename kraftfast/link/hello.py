"""What processes of one host say of themselves when they meet, before any ring stands.

One JSON object a message. It comes from another process: whatever does not fit the types below is
a malformed message, never a surprise further in (S7).
"""

from __future__ import annotations

import msgspec

from kraftfast.errors import MalformedFrame, PeerGone

HELLO_BYTES_MAX = 64 * 1024


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who somebody is and what he wants; a side fills the fields that concern it.

    ``kind``: peer, producer, watch, poke, status, query or request. ``error``: why the other
    side is refused. ``generation``, ``out``, ``into``: rings on offer, capacities in bytes as
    their sender sees them. ``not_leader``: no ring was made, ask ``leader_id``. ``directory``,
    ``endpoints`` (name, host, port), ``kraft_versions`` (least, most): what others need to make a
    replica a voter, and to find it again.
    """

    kind: str = ""
    error: str = ""
    node_id: int = -1
    directory_id: str = ""
    cluster_id: str = ""
    durability: str = ""
    records: str = ""
    log: str = ""
    directory: str = ""
    endpoints: tuple[tuple[str, str, int], ...] = ()
    kraft_versions: tuple[int, int] | None = None
    generation: int = 0
    out: int = 0
    into: int = 0
    leader_id: int = -1
    epoch: int = -1
    leads: bool = False
    not_leader: bool = False
    args: str = ""
    at_least: int = -1


def encode_hello(hello: Hello) -> bytes:
    """The message that carries it."""
    return msgspec.json.encode(hello)


def decode_hello(data: bytes) -> Hello:
    """What the other side says of itself. Raises PeerGone if it ended, MalformedFrame."""
    if not data:
        raise PeerGone("the other side closed the connection")
    try:
        return msgspec.json.decode(data, type=Hello)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a local message that does not decode: {error}") from None
