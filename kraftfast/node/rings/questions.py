"""Questions to a replica's state machine, as they come through the local door.

What is small travels in the message, what is larger in a sealed memory file (R5): a message is
bounded by the socket's buffer. Arguments are decoded and answers encoded in the machine's thread.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kraftfast import limits
from kraftfast.errors import ErrorCode, InvalidOption, PeerGone
from kraftfast.link.hello import Hello
from kraftfast.link.host_ports import Local
from kraftfast.link.ring_link import close_all
from kraftfast.node.failures import describe

if TYPE_CHECKING:
    from kraftfast.node.node import Node

ERROR_CHARACTERS_MAX = 4096


def arguments(question: Hello, fds: list[int], local: Local) -> Callable[[], list[Any]]:
    """Return what decodes the arguments of a question; takes over ``fds``. Raises PeerGone."""
    if not fds:
        return lambda: decoded(lambda: base64.b64decode(question.args))
    close_all(fds[1:], local)
    if not 0 < question.out <= limits.QUERY_BYTES_MAX:
        close_all(fds[:1], local)
        raise PeerGone(f"a question with arguments of {question.out} bytes")
    memory = local.map_peer_file(fds[0], question.out)
    return lambda: decoded(lambda: memory[:])  # D20: its writer may still change it


def decoded(read: Callable[[], Any]) -> list[Any]:
    """Return the arguments that ``read()`` returns packed. Raises InvalidOption."""
    try:
        found: list[Any] = msgspec.msgpack.decode(read(), type=list)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidOption(f"arguments that do not decode: {error}") from None
    return found


def packed(answer: dict[str, Any]) -> bytes:
    """Return an answer as MessagePack, or the reason why it cannot be sent."""
    if "error" in answer:
        text = answer["error"]
        if len(text) > ERROR_CHARACTERS_MAX:
            answer = answer | {"error": text[:ERROR_CHARACTERS_MAX] + "..."}
    try:
        data = msgspec.msgpack.encode(answer)
    except Exception as error:  # whatever the machine's types raise when they are packed
        kind = type(answer.get("value")).__name__
        text = f"query() returned an answer of type {kind} that MessagePack cannot carry: {error}"
        return packed({"error": text})
    if len(data) > limits.QUERY_BYTES_MAX:
        text = (
            f"the answer of query() has {len(data)} bytes, the limit is {limits.QUERY_BYTES_MAX}: "
            "ask for it in parts"
        )
        return packed({"error": text, "code": int(ErrorCode.MESSAGE_TOO_LARGE)})
    return data


class Answering:
    """Sends one answer, from whatever thread has it, and has the loop close the socket."""

    def __init__(self, node: Node, sock: socket.socket, done: Callable[[], None]) -> None:
        self.node, self.sock, self.done = node, sock, done

    def __call__(self, answer: dict[str, Any]) -> None:
        """Send it at once or not at all: the machine must not wait for the caller."""
        try:
            data = packed(answer)
            if len(data) <= limits.QUERY_INLINE_BYTES_MAX:
                self.sock.send(data, socket.MSG_DONTWAIT)
            else:
                self._send_file(data)
        except Exception as error:  # noqa: BLE001 - in the machine's thread
            why = describe(error)
            self.node.background.tell(lambda: self.node.tell("query_failed", why=why))
        finally:
            self.node.background.tell(self.done)

    def _send_file(self, data: bytes) -> None:
        local = self.node.host.local
        file = local.memory_file("kraftfast-answer", len(data))
        try:
            file.memory[:] = data
            local.send(self.sock, msgspec.msgpack.encode({"bytes": len(data)}), [file.fd])
        finally:
            file.close()
