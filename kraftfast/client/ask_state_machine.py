"""Ask the state machine of a replica on this host, through the socket in its directory."""

from __future__ import annotations

import base64
import os
from typing import Any

import msgspec

from kraftfast import limits
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.timing import deadline_after
from kraftfast.errors import (
    ErrorCode,
    InvalidOption,
    MalformedFrame,
    PeerGone,
    RequestRefused,
    TimedOut,
)
from kraftfast.link.host_ports import Local
from kraftfast.link.ring_link import close_all
from kraftfast.types import SOCKET_NAME


def query(
    directory: str, args: tuple[Any, ...], at_least: int, timeout: float, host: ClientHost = HOST
) -> Any:
    """Return what the machine's ``query(*args)`` returns; see ``LocalQuorum.query``."""
    local = host.local
    left = deadline_after(timeout, 0.001, host.monotonic) - host.monotonic()
    data = packed(args)
    question: dict[str, Any] = {"kind": "query", "at_least": at_least}
    with local.connect(os.path.join(directory, SOCKET_NAME), left) as sock:
        try:
            if len(data) <= limits.QUERY_INLINE_BYTES_MAX:
                question["args"] = base64.b64encode(data).decode()
                local.send(sock, msgspec.json.encode(question), [])
            else:
                file = local.memory_file("kraftfast-question", len(data))
                try:
                    file.memory[:] = data
                    question["out"] = len(data)
                    local.send(sock, msgspec.json.encode(question), [file.fd])
                finally:
                    file.close()
            found, fds = local.receive(sock, limits.QUERY_INLINE_BYTES_MAX)
        except TimeoutError:
            raise TimedOut(
                f"the state machine of the replica in {directory} did not answer in {left:.3g} s"
            ) from None
        except OSError as error:
            raise PeerGone(f"the replica in {directory} is gone: {error.strerror}") from None
    if not found:
        close_all(fds, local)
        raise PeerGone(f"the replica in {directory} hung up")
    answer = unpacked(found, fds, local)
    if "error" in answer:
        code = ErrorCode(answer.get("code", ErrorCode.UNKNOWN_SERVER_ERROR))
        raise RequestRefused(str(answer["error"]), code)
    return answer["value"]


def packed(args: tuple[Any, ...]) -> bytes:
    """Return the arguments as MessagePack. Raises InvalidOption for what it cannot carry."""
    try:
        data = msgspec.msgpack.encode(args)
    except Exception as error:  # whatever the types raise when they are packed
        raise InvalidOption(f"arguments that MessagePack cannot carry: {error}") from None
    if len(data) > limits.QUERY_BYTES_MAX:
        raise InvalidOption(
            f"arguments of {len(data)} bytes: the limit is {limits.QUERY_BYTES_MAX}"
        )
    return data


def unpacked(found: bytes, fds: list[int], local: Local) -> dict[str, Any]:
    """Return the answer: the message, or what is in the file that came with it; takes ``fds``.

    A refusal of the door is a JSON object. Raises MalformedFrame, PeerGone.
    """
    close_all(fds[1:], local)
    try:
        if found[:1] == b"{":
            close_all(fds[:1], local)
            return msgspec.json.decode(found, type=dict[str, Any])
        answer = msgspec.msgpack.decode(found, type=dict[str, Any])
        if not fds:
            return answer
        size = answer.get("bytes")
        if type(size) is not int or not 0 < size <= limits.QUERY_BYTES_MAX:
            close_all(fds[:1], local)
            raise MalformedFrame(f"an answer of {size!r} bytes")
        return msgspec.msgpack.decode(local.map_peer_file(fds[0], size)[:], type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame(f"an answer that does not decode: {error}") from None
