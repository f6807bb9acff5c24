"""Leaders in this process for whole producers: rings that a thread answers from a model log."""

from __future__ import annotations

import random
import struct
import threading
import time
from typing import Any

from kraftfast.client.client_host import HOST
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import ErrorCode, KraftfastError
from kraftfast.wire.messages import InitProducerIdResponse
from tests.client.kit import ACK, REFUSED, ScriptedReplica, ack, values_of
from tests.client.model_log import ModelLog, Verdict


class ScriptedQuorum:
    """A producer's connector.

    ``mute``: nothing is taken. ``refused``: values whose batches are refused, with ``refusal``,
    DiskFull's code. ``problem``: what a search for the leader raises.
    """

    def __init__(self, *, ring_bytes: int = 1 << 16, batch_bytes: int = 2000, window: int = 8):
        self.window, self.batch_bytes, self.ring_bytes = window, batch_bytes, ring_bytes
        self.log = ModelLog(random.Random(1))
        self.mute, self.problem = False, KraftfastError()
        self.reachable = True
        self.refused: set[bytes] = set()
        self.refusal = ErrorCode.KAFKA_STORAGE_ERROR
        self._lock = threading.Lock()
        self._replica: ScriptedReplica | None = None
        self._verdicts: list[Verdict] = []
        self._ids = 0
        self._ended = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # --- the connector ----------------------------------------------------------------------------

    host = HOST

    def connect(self, outcomes: Outcomes, record_bytes: int, _deadline: float) -> Any:
        if not self.reachable:
            raise self.problem
        ring_bytes = self.ring_bytes
        while ring_bytes < 2 * record_bytes + 4096:
            ring_bytes *= 2
        settings: dict[str, Any] = {"batch_bytes": self.batch_bytes, "window": self.window}
        replica = ScriptedReplica(outcomes, ring_bytes=ring_bytes, **settings)
        with self._lock:
            self._leave()
            self._replica, self._verdicts = replica, []
        return replica.sender

    def reach(self, _sender: Any, _deadline: float) -> ScriptedQuorum:
        return self

    def ask(self, *_question: Any) -> Any:
        self._ids += 1
        return InitProducerIdResponse(producer_id=self._ids, producer_epoch=0)

    def close(self) -> None:
        """Nothing is open after a question."""

    def superseded(self, _sender: Any, _deadline: float) -> bool:
        return False

    # --- what leads -------------------------------------------------------------------------------

    def take(self) -> bool:
        """Take what was handed over, and answer nothing; whether that was anything."""
        with self._lock:
            self._take()
            return bool(self._verdicts)

    def lose(self) -> None:
        """The leader ends; what it took last may be lost with it."""
        with self._lock:
            self._leave()
            self.log.lose_some()

    def commit_unanswered(self) -> None:
        """Everything handed over is committed, and the leader ends before it says so."""
        with self._lock:
            self._leave()
            self.log.committed = self.log.end_offset

    def resign(self) -> None:
        """The leader says that it does not lead, and has looked at nothing since it was muted."""
        with self._lock:
            assert self._replica is not None
            self._replica.leave()
            self._replica.close()
            self._replica = None
        self.mute = False

    def _leave(self) -> None:
        if self._replica is not None:
            self._take()
            self._replica.close()
        self._replica = None

    def _take(self) -> None:
        assert self._replica is not None
        for data in self._replica.look():
            if self.refused.intersection(values_of(data)):
                self._verdicts.append(Verdict(self.refusal))
            else:
                self._verdicts.append(self.log.append(data))
        self._replica.release()

    def _answer(self) -> None:
        replica = self._replica
        assert replica is not None
        while replica.answered < len(self._verdicts):
            found, number = self._verdicts[replica.answered], replica.answered
            if found.error:
                replica.say(REFUSED, struct.pack("<QQii", number, 1, found.error, 0))
            else:
                replica.say(ACK, ack(number, 1, found.base_offset, found.end_offset))
            replica.answered += 1

    def _serve(self) -> None:
        while not self._ended:
            with self._lock:
                if self._replica is not None and not self.mute:
                    self._take()
                    self.log.committed = self.log.end_offset
                    self._answer()
            time.sleep(0.0005)

    def values(self) -> list[bytes]:
        """Of every record in the log."""
        with self._lock:
            return [value for _, value in self.log.records()]

    def stop(self) -> None:
        self._ended = True
        self._thread.join()
        if self._replica is not None:
            self._replica.close()
