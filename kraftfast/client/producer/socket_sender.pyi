from kraftfast.client.connection import Connection
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.sender import Sender

REQUEST_TIMEOUT_MS: int

class SocketSender(Sender):
    connection: Connection
    def __init__(
        self,
        connection: Connection,
        outcomes: Outcomes,
        topic: str,
        topic_id: bytes | None,
        batch_bytes: int,
        window: int,
        node_id: int = -1,
        epoch: int = -1,
    ) -> None: ...
