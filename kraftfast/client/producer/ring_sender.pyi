from kraftfast.client.client_host import ClientHost
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.sender import Sender
from kraftfast.link.hello import Hello
from kraftfast.link.ring_link import OwnDoorbell, RingLink

class RingSender(Sender):
    link: RingLink
    own_doorbell: OwnDoorbell
    hello: Hello
    def __init__(
        self,
        link: RingLink,
        own_doorbell: OwnDoorbell,
        outcomes: Outcomes,
        batch_bytes: int,
        window: int,
        host: ClientHost = ...,
    ) -> None: ...
    def want_room(self) -> None: ...
    def woke_up(self) -> None: ...
    def replica_gone(self) -> None: ...
