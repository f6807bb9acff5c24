"""What processes of one host tell each other when they connect, before they share memory.

A message is one JSON object from another process. One that does not fit the types below must be
refused here, so that no code behind this needs to check a type or a size (S7).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kraftfast.errors import MalformedFrame, PeerGone, UnsupportedVersion

HELLO_BYTES_MAX = 64 * 1024
NAME_CHARACTERS_MAX = 255
PATH_CHARACTERS_MAX = 4096
ENDPOINTS_MAX = 16
LAYOUT = 1
"""Number of the layouts that processes of one host map: rings and messages, statistics, events.

A change of a layout must come with another number. Otherwise another version could take some other
field for an acknowledgement (D3), and no CRC would show it.
"""

Int16 = Annotated[int, Meta(ge=0, le=2**15 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Port = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00]*$")]
Path = Annotated[str, Meta(max_length=PATH_CHARACTERS_MAX, pattern=r"^[^\x00]*$")]
Endpoints = Annotated[tuple[tuple[Name, Name, Port], ...], Meta(max_length=ENDPOINTS_MAX)]


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process is and what it wants; each side fills the fields that concern it.

    ``kind``: peer, producer, watch, events, poke, status, query or request (``LocalDoor`` explains
    them). ``error``: why the other side is refused. ``log``: where the sender's segments are.
    ``generation``, ``out``, ``into``: of the rings on offer, with their capacities in bytes as the
    sender sees them. ``not_leader``: no ring was made, ask ``leader_id``. ``directory``,
    ``endpoints`` (name, host, port), ``kraft_versions`` (least, most): what others need to make a
    replica a voter, and to find it again. ``args``, ``at_least``: of a query or request. A query
    too long for ``args`` is passed as a memory file of ``out`` bytes. ``again``: another request
    may follow on the same connection. ``layout``: the sender's ``LAYOUT``; 0: it does not say.
    """

    kind: str = ""
    error: str = ""
    node_id: Int32 = -1
    directory_id: Name = ""
    cluster_id: Name = ""
    durability: Name = ""
    records: Name = ""
    log: Path = ""
    directory: Path = ""
    endpoints: Endpoints = ()
    kraft_versions: tuple[Int16, Int16] | None = None
    generation: Int64 = 0
    out: Int64 = 0
    into: Int64 = 0
    leader_id: Int32 = -1
    epoch: Int32 = -1
    leads: bool = False
    not_leader: bool = False
    args: str = ""
    at_least: Int64 = -1
    again: bool = False
    layout: Int32 = 0


HELLO = msgspec.json.Decoder(Hello)


def encode_hello(hello: Hello) -> bytes:
    """Return the message that carries ``hello``, with the layout of this process."""
    return msgspec.json.encode(msgspec.structs.replace(hello, layout=LAYOUT))


def layout_refusal(hello: Hello) -> str:
    """Return why no memory may be shared with the other side, "" if its layouts are the same."""
    if hello.layout == LAYOUT:
        return ""
    return (
        f"shared-memory layout {hello.layout}, not {LAYOUT}: replicas and clients of one host need "
        "the same version of kraftfast"
    )


def check_layout(hello: Hello) -> None:
    """Check that what the other side passes can be mapped. Raises UnsupportedVersion."""
    refusal = layout_refusal(hello)
    if refusal:
        raise UnsupportedVersion(refusal)


def decode_hello(data: bytes) -> Hello:
    """Return the message of the other side. Raises PeerGone if there is none, MalformedFrame."""
    if not data:
        raise PeerGone("the other side closed the connection")
    try:
        return HELLO.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame(f"a local message that does not decode: {error}") from None
