"""Producers whose leaders stall, leave and are lost under chance: every outcome is true (I23, I24).

Rings are small, so that they overflow with what is taken and not answered (D24). Each seed is one
history: appended is whatever there is room for, from tiny records to such that fill half a ring.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from typing import Any

import pytest

from kraftfast.client.producer.init_producer_id import Identities
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.socket_sender import SocketSender
from kraftfast.errors import ErrorCode, KraftfastError, UnknownOutcome
from kraftfast.record.builder import Values
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire import frame, produce
from kraftfast.wire.messages import InitProducerIdResponse
from tests.client.kit import ACK, REFUSED, ScriptedReplica, ack
from tests.client.model_log import ModelLog, Verdict
from tests.client.test_socket_sender import FakeConnection
from tests.histories import COMMITTED, FAILED, UNKNOWN, Append, check

RINGS = {"ring_bytes": 1 << 14, "batch_bytes": 2000, "window": 32}
LOST = UnknownOutcome("lost")
REFUSALS = [ErrorCode.INVALID_RECORD, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT]
STEPS = 120


class RingLeader(ScriptedReplica):
    """Over rings."""

    def __init__(self, outcomes: Outcomes) -> None:
        super().__init__(outcomes, **RINGS)

    def answer(self, number: int, found: Verdict) -> None:
        if found.error:
            self.say(REFUSED, struct.pack("<QQii", number, 1, found.error, 0))
        else:
            self.say(ACK, ack(number, 1, found.base_offset, found.end_offset))

    def resign(self, _verdicts: list[Verdict]) -> None:
        self.leave()

    def vanish(self) -> None:
        self.sender.replica_gone()


class SocketLeader:
    """Over a connection whose buffers hold little, so that requests are cut off in their middle."""

    VERSION = 9

    def __init__(self, outcomes: Outcomes) -> None:
        ours, self.sock = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        self.sock.setblocking(False)
        connection: Any = FakeConnection(ours)
        self.sender = SocketSender(connection, outcomes, METADATA_TOPIC, None, 2000, 16)
        self.splitter = frame.FrameSplitter(1 << 20)
        self.frames: list[bytes] = []
        self.said = 0

    def look(self, count: int = 1 << 30) -> list[bytes]:
        try:
            while data := self.sock.recv(1 << 16):
                self.frames += [bytes(each) for each in self.splitter.frames(data)]
        except BlockingIOError:
            pass
        found, self.frames = self.frames[:count], self.frames[count:]
        starts = [frame.decode_request_header(data).body_start for data in found]
        requests = [produce.decode_request(self.VERSION, *each) for each in zip(found, starts)]
        return [bytes(request.records) for request in requests]

    def release(self) -> None:
        """There is no room to be given back."""

    def answer(self, number: int, found: Verdict) -> None:
        answer = produce.PartitionProduced(
            topic=METADATA_TOPIC, error_code=found.error, base_offset=found.base_offset
        )
        self.sock.sendall(produce.encode_response(self.VERSION, number, answer))
        self.said += 1

    def resign(self, verdicts: list[Verdict]) -> None:
        """What it appended may be committed, what it has not looked at is not appended."""
        for found in verdicts[self.said :]:
            code = found.error or ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self.answer(self.said, Verdict(code))
        for _ in self.look():
            self.answer(self.said, Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def vanish(self) -> None:
        self.sock.close()

    def close(self) -> None:
        self.sock.close()


LEADERS: dict[str, Any] = {"ring": RingLeader, "socket": SocketLeader}


class History:
    """One producer, and one leader after the other."""

    def __init__(self, seed: int, idempotent: bool, transport: str) -> None:
        self.leader = LEADERS[transport]
        self.chance = random.Random(seed)
        self.log = ModelLog(self.chance)
        self.outcomes = Outcomes()
        self.identities = Identities(self, None) if idempotent else None
        self.backlog: list[Any] = []
        self.values: list[bytes] = []
        self.verdicts: list[Verdict] = []
        self.answered = 0
        self.replica: Any = None
        self.lead()

    # --- what the producer's connector does -------------------------------------------------------

    def reach(self, _sender: Any, _deadline: float) -> History:
        return self

    def ask(self, *_question: Any) -> Any:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def close(self) -> None:
        """Nothing is open."""

    def lead(self) -> None:
        """The next leader, with what the one before gave back."""
        self.verdicts, self.answered = [], 0
        self.replica = self.leader(self.outcomes)
        sender = self.replica.sender
        if self.identities is None:
            sender.take_over(self.backlog)
        else:
            self.identities.enlist(sender, self.outcomes, self.backlog, time.monotonic() + 5)
        sender.poll()

    # --- what happens -----------------------------------------------------------------------------

    def value(self) -> bytes:
        size = self.chance.choice((0, 10, 300, 1500, 5000))
        found = b"%d:" % len(self.values) + b"v" * size
        self.values.append(found)
        return found

    def append(self) -> None:
        """One record or many, as far as there is room."""
        sender = self.replica.sender
        if self.chance.random() < 0.6:
            if sender.append(self.value()) < 0:
                self.values.pop()
        else:
            many = [self.value() for _ in range(self.chance.randint(1, 12))]
            _, taken = sender.append_values(Values(many), 0)
            del self.values[len(self.values) - len(many) + taken :]
        if self.chance.random() < 0.5:
            sender.seal()
        assert self.outcomes.next_ticket == len(self.values)

    def take(self) -> None:
        """The leader takes some batches and gives their slots back; now and then it refuses one."""
        for data in self.replica.look(self.chance.randint(1, 8)):
            if self.chance.random() < 0.03:
                self.verdicts.append(Verdict(self.chance.choice(REFUSALS)))
            else:
                self.verdicts.append(self.log.append(data))
        if self.chance.random() < 0.8:
            self.replica.release()

    def answer(self) -> None:
        """What is committed is acknowledged, in order; or some of it."""
        self.log.commit_some()
        while self.answered < len(self.verdicts) and self.chance.random() < 0.9:
            found, number = self.verdicts[self.answered], self.answered
            if not found.error and found.end_offset > self.log.committed:
                break
            self.replica.answer(number, found)
            self.answered += 1

    def lose(self) -> None:
        """It is killed, or says that it does not lead, or is only given up for being silent."""
        kind = self.chance.choice(("killed", "left", "silent"))
        sender = self.replica.sender
        if kind == "left":
            self.replica.resign(self.verdicts)
            sender.poll()
        elif kind == "killed":
            self.replica.vanish()
            sender.poll()
        sender.fail(LOST)
        self.backlog = sender.give_up(LOST)
        if kind == "silent":
            self.take()  # it took some more meanwhile, and was still the leader
        self.log.lose_some()
        self.replica.close()
        self.lead()

    def settle(self) -> None:
        """No fault any more, until everything is resolved."""
        for _ in range(1000):
            sender = self.replica.sender
            sender.seal()
            for data in self.replica.look():
                self.verdicts.append(self.log.append(data))
            self.replica.release()
            self.log.committed = self.log.end_offset
            self.answer()
            sender.poll()
            if sender.broken is not None:
                self.lose()
            if self.outcomes.resolved == self.outcomes.next_ticket:
                return
        raise AssertionError("it never ends")

    def appends(self) -> list[Append]:
        found = []
        for ticket, value in enumerate(self.values):
            append = Append("p", ticket, value, 0.0)
            try:
                append.offset = self.outcomes.offset_of(ticket)
                append.outcome, append.acked = COMMITTED, 1.0
            except UnknownOutcome:
                append.outcome = UNKNOWN
            except KraftfastError:
                append.outcome = FAILED
            found.append(append)
        return found


def run(seed: int, idempotent: bool, transport: str = "ring") -> tuple[list[str], History]:
    history = History(seed, idempotent, transport)
    steps = [history.append] * 10 + [history.take] * 4 + [history.answer] * 3
    for _ in range(STEPS):
        history.chance.choice(steps)()
        history.replica.sender.poll()
        if history.replica.sender.broken is not None or history.chance.random() < 0.04:
            history.lose()
    history.settle()
    return check(history.appends(), history.log.records()), history


@pytest.mark.parametrize("transport", list(LEADERS))
@pytest.mark.parametrize("idempotent", [True, False])
def test_every_outcome_is_true_whatever_becomes_of_the_leaders(
    idempotent: bool, transport: str
) -> None:
    counts = {COMMITTED: 0, UNKNOWN: 0, FAILED: 0}
    for seed in range(60):
        wrong, history = run(seed, idempotent, transport)
        assert not wrong, f"seed {seed}: {wrong[:3]}"
        for append in history.appends():
            counts[append.outcome] += 1
        history.replica.close()
    assert counts[COMMITTED] > 3000 and counts[FAILED] > 10
    assert idempotent or counts[UNKNOWN] > 100
