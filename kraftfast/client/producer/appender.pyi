from collections.abc import Iterable

from typing_extensions import Buffer, Unpack

from kraftfast.client.client_host import ClientHost
from kraftfast.client.producer.news import News
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.sender import Sender
from kraftfast.client.producer.tickets import RecordFields

DEFAULT_TIMEOUT: float
SLEEP_S_MAX: float

class Appender:
    outcomes: Outcomes
    sender: Sender | None
    keeper_sleeps: bool
    caller_sleeps: bool
    @property
    def host(self) -> ClientHost: ...
    @property
    def pumping(self) -> bool: ...
    @property
    def news(self) -> News: ...
    reported_to: int
    def pump(self, sender: Sender, ticket: int, deadline: float) -> None: ...
    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
        timestamp: int | None = None,
        timeout: float = 30.0,
    ) -> int: ...
    def append_wait(
        self,
        value: Buffer | None,
        *,
        timeout: float = 30.0,
        **fields: Unpack[RecordFields],
    ) -> int: ...
    def wait_resolved(self, ticket: int, deadline: float) -> None: ...
    def wait(self, ticket: int, *, timeout: float = 30.0) -> int: ...
    @property
    def resolved(self) -> int: ...
