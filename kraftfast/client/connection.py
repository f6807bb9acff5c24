"""One blocking connection to a server: greeted, then asked one question after the other.

For handshakes and for what is not hot; a ``SocketSender`` takes a greeted connection over.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from kraftfast import forks, limits
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.name_lookup import NameUnknownYet
from kraftfast.errors import ErrorCode, MalformedFrame, PeerGone, TimedOut, UnsupportedVersion
from kraftfast.types import Address as Address
from kraftfast.types import address_text
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, ApiVersionsRequest
from kraftfast.wire.notation import Versions
from kraftfast.wire.versions import CLIENT_VERSION, SERVED, negotiate, offered_versions

if TYPE_CHECKING:
    from kraftfast.wire.frame import WireMessage

AT_ONCE = (
    "before it answered anything: it may have as many connections as it takes "
    "(max.connections.per.ip, max.connections; LocalQuorum: connections_per_address_max, "
    "connections_max)"
)


class ConnectionRefused(PeerGone):
    """The server hung up before it answered anything: as Kafka's refuse a connection."""


class Connection:
    """A TCP connection. Not thread-safe; no use after a failure.

    Raises PeerGone if the server cannot be reached or hangs up (ConnectionRefused: at once),
    TimedOut if it does not answer until ``deadline`` (by the clock of its ``host``),
    UnsupportedVersion, MalformedFrame.
    """

    # address: whose. sock, splitter: the connection and what came over it. versions: what the
    # server offers, by API. correlation_id: of the next request.

    CLIENT_ID = "kraftfast"

    def __init__(self, address: Address, deadline: float, host: ClientHost = HOST) -> None:
        self.address, self.host = address, host
        self.correlation_id = 0
        self.splitter = frame.FrameSplitter(limits.FRAME_BYTES_MAX_BEFORE_API_VERSIONS)
        self.versions: dict[int, Versions] = {}
        try:
            self.sock = host.connect(address, self._left(deadline, "connecting"))
        except NameUnknownYet as error:
            raise TimedOut(f"cannot reach {_text(address)}: {error}") from None
        except TimeoutError:
            raise TimedOut(f"{_text(address)} does not answer") from None
        except OSError as error:
            raise PeerGone(f"cannot reach {_text(address)}: {error.strerror or error}") from None
        forks.own(self)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            self._greet(deadline)
        except BaseException:
            self.close()
            raise

    def _greet(self, deadline: float) -> None:
        """Ask what it speaks; a server that does not know our version says so in version 0."""
        body = ApiVersionsRequest(
            client_software_name=self.CLIENT_ID, client_software_version=CLIENT_VERSION
        )
        ours = SERVED[ApiKey.API_VERSIONS]
        try:
            answer = self._exchange(ApiKey.API_VERSIONS, ours.last, body, deadline)
        except PeerGone as error:
            raise ConnectionRefused(f"{error} {AT_ONCE}") from None
        except MalformedFrame as error:
            reason = str(error).removeprefix(f"{_text(self.address)}: ")
            raise MalformedFrame(
                f"{_text(self.address)} does not speak Kafka's protocol; is it the port of another "
                f"service? ({reason})"
            ) from None
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            with self._naming_server():
                version = negotiate(ApiKey.API_VERSIONS, offered_versions(answer))
            answer = self._exchange(ApiKey.API_VERSIONS, version, body, deadline)
        if answer.error_code != ErrorCode.NONE:
            raise UnsupportedVersion(
                f"{_text(self.address)} refuses to be greeted: error {answer.error_code}"
            )
        self.versions = offered_versions(answer)
        self.splitter.frame_bytes_max = limits.FRAME_BYTES_MAX

    def version_of(self, api_key: int, version_max: int | None = None) -> int:
        """Return the version of an API to speak, at most ``version_max``.

        Raises UnsupportedVersion.
        """
        ours = SERVED[api_key]
        if version_max is not None:
            ours = Versions(ours.first, min(ours.last, version_max))
        with self._naming_server():
            return negotiate(api_key, self.versions, {api_key: ours})

    def ask(
        self, api_key: int, body: WireMessage, deadline: float, version_max: int | None = None
    ) -> WireMessage:
        """Return the answer to one question."""
        return self._exchange(api_key, self.version_of(api_key, version_max), body, deadline)

    def _exchange(
        self, api_key: int, version: int, body: WireMessage, deadline: float
    ) -> WireMessage:
        number = self.next_correlation_id()
        self.send(frame.encode_request(api_key, version, number, self.CLIENT_ID, body), deadline)
        try:
            data = self.receive(deadline)
        except TimedOut:
            self.close()
            raise
        if frame.correlation_id(data) != number:
            self.close()
            raise MalformedFrame(f"{_text(self.address)} answers another question")
        try:
            with self._naming_server():
                return frame.decode_response(api_key, version, data)[1]
        except (MalformedFrame, UnsupportedVersion):
            self.close()
            raise

    def next_correlation_id(self) -> int:
        """Return a number for the next request."""
        number, self.correlation_id = self.correlation_id, self.correlation_id + 1 & 0x7FFFFFFF
        return number

    # --- frames -----------------------------------------------------------------------------------

    def send(self, data: bytes, deadline: float) -> None:
        """Send a whole frame."""
        self.sock.settimeout(self._left(deadline, f"asking {_text(self.address)}"))
        try:
            self.sock.sendall(data, socket.MSG_NOSIGNAL)  # see send_with_fds
        except OSError as error:
            self._broken(error)

    def receive(self, deadline: float) -> frame.Frame:
        """Return the next frame. After TimedOut it may be called again."""
        while True:
            found = self.splitter.next_frame()
            if found is not None:
                return found
            self.sock.settimeout(self._left(deadline, f"waiting for {_text(self.address)}"))
            try:
                count = self.sock.recv_into(self.splitter.room())
            except TimeoutError:
                raise TimedOut(f"{_text(self.address)} does not answer") from None
            except OSError as error:
                self._broken(error)
            if count == 0:
                self.close()
                raise PeerGone(f"{_text(self.address)} closed the connection")
            self.splitter.received(count)

    def _broken(self, error: OSError) -> NoReturn:
        self.close()
        if isinstance(error, TimeoutError):
            raise TimedOut(f"{_text(self.address)} does not answer") from None
        raise PeerGone(f"connection to {_text(self.address)} broken: {error.strerror}") from None

    # --- end --------------------------------------------------------------------------------------

    def hand_over(self) -> tuple[int, int]:
        """Hand over the descriptor, non-blocking from now on, and the next correlation id."""
        self.sock.setblocking(False)
        return self.sock.fileno(), self.correlation_id

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        """Hang up."""
        self.sock.close()

    disown = close

    @contextmanager
    def _naming_server(self) -> Iterator[None]:
        """Let a failure say whose answer it is about: a quorum has several servers."""
        try:
            yield
        except (MalformedFrame, UnsupportedVersion) as error:
            raise type(error)(f"{_text(self.address)}: {error}") from None

    def _left(self, deadline: float, doing: str) -> float:
        left = deadline - self.host.monotonic()
        if left <= 0:
            raise TimedOut(f"no time left for {doing}")
        return left


def _text(address: Address) -> str:
    return address_text(*address)
