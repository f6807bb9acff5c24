from kraftfast.client.connection import Connection
from kraftfast.client.producer.ledger import Ledger
from kraftfast.client.producer.sender import Sender

REQUEST_TIMEOUT_MS: int

class SocketSender(Sender):
    connection: Connection
    def __init__(
        self,
        connection: Connection,
        ledger: Ledger,
        topic: str,
        topic_id: bytes | None,
        batch_bytes: int,
        window: int,
        node_id: int = -1,
        epoch: int = -1,
    ) -> None: ...
