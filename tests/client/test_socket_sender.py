"""The sender over TCP, against a server that answers as it is told to."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.client.client_host import HOST
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.socket_sender import REQUEST_TIMEOUT_MS, SocketSender
from kraftfast.client.remote_connector import connect_producer
from kraftfast.errors import (
    DiskFull,
    ErrorCode,
    NotLeader,
    PeerGone,
    RecordsRefused,
    RecordTooLarge,
    RequestRefused,
    UnknownOutcome,
)
from kraftfast.record.builder import Values
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import frame, produce
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import SERVED, Versions
from tests.client.kit import ScriptedServer, flat, values_of, wait_until

LOST = UnknownOutcome("lost")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def sender_to(server: ScriptedServer, **settings: Any) -> SocketSender:
    arguments: dict[str, Any] = {"batch_bytes": 4096, "window": 8} | settings
    return connect_producer([server.address], METADATA_TOPIC, Outcomes(), **arguments)


def answered(sender: SocketSender, until: Any) -> None:
    """Take answers in until something holds."""

    def look() -> bool:
        sender.poll()
        return bool(until())

    wait_until(look)


def one_batch_each(sender: SocketSender, values: list[bytes]) -> None:
    for value in values:
        assert sender.append(value) >= 0
        sender.seal()


def script(*answers: Any) -> Any:
    return lambda number, _request: answers[number]


@pytest.mark.parametrize(
    "version", range(SERVED[ApiKey.PRODUCE].first, SERVED[ApiKey.PRODUCE].last + 1)
)
def test_frames_are_those_of_the_wire_codec_in_every_version(version: int) -> None:
    server = ScriptedServer(versions=dict(SERVED) | {ApiKey.PRODUCE: Versions(0, version)})
    sender = sender_to(server, batch_bytes=1 << 17)
    for size in (1, 40, 70, 200, 16_300, 100_000):  # where the length takes one byte more
        sender.append(b"v" * size)
        answered(sender, lambda: sender.under_way == 0)
    for data, request in zip(server.frames[-6:], server.produced):
        header = frame.decode_request_header(data)
        assert (header.version, header.client_id) == (version, "kraftfast")
        expected = produce.PartitionProduce(
            acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic=METADATA_TOPIC if version <= 12 else "",
            topic_id=METADATA_TOPIC_ID if version > 12 else bytes(16), records=request.records,
        )  # fmt: skip
        assert (
            b"".join(produce.encode_request(version, header.correlation_id, "kraftfast", expected))[
                4:
            ]
            == data
        )
    numbers = [frame.decode_request_header(data).correlation_id for data in server.frames]
    assert numbers == list(range(len(numbers))), "every request has a number of its own"
    sender.close()
    server.close()


def test_a_server_without_topic_ids_is_named_the_topic() -> None:
    server = ScriptedServer(versions=dict(SERVED) | {ApiKey.METADATA: Versions(0, 9)})
    sender = sender_to(server)
    sender.append(b"v")
    answered(sender, lambda: sender.under_way == 0)
    assert server.produced[0].topic == METADATA_TOPIC
    sender.close()


def test_batches_are_pipelined_up_to_the_window_and_answered_in_order(
    server: ScriptedServer,
) -> None:
    release = threading.Event()

    def later(number: int, _request: Any) -> Any:
        release.wait(10)
        return (1000 + number,)

    server.on_produce = later
    sender = sender_to(server, window=4)
    one_batch_each(sender, [b"0", b"1", b"2", b"3"])
    assert sender.append(b"4") == -1 and sender.under_way == 4
    release.set()
    answered(sender, lambda: sender.under_way == 0)
    assert [sender.outcomes.offset_of(ticket) for ticket in range(4)] == [1000, 1001, 1002, 1003]
    latency = sender.commit_latency()
    assert 0 < latency["p50_us"] <= latency["max_us"] * 1.02
    sender.reset_latency()
    assert sender.commit_latency()["max_us"] == 0
    sender.close()


def test_bytes_under_way_are_bounded_also_where_records_are_large(server: ScriptedServer) -> None:
    server.on_produce = script(*["hold"] * 9)
    sender = sender_to(server, batch_bytes=1 << 16, window=8)
    large = b"v" * (3 << 20)
    assert sender.append(large) == 0, "one record always has its batch"
    sender.seal()
    assert sender.append(large) == -1
    assert sender.append_values(Values([large]), 0) == (1, 0)
    sender.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, DiskFull),
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLarge),
        (ErrorCode.INVALID_RECORD, RecordsRefused),
        (ErrorCode.CORRUPT_MESSAGE, RequestRefused),
        (ErrorCode.UNKNOWN_TOPIC_ID, RequestRefused),
        (ErrorCode.REQUEST_TIMED_OUT, UnknownOutcome),
        (ErrorCode.UNKNOWN_SERVER_ERROR, UnknownOutcome),
        (ErrorCode.NETWORK_EXCEPTION, UnknownOutcome),
        (999, UnknownOutcome),
    ],
)
def test_what_a_code_says_of_one_batch_and_the_next_goes_on(
    server: ScriptedServer, code: int, kind: type[Exception]
) -> None:
    server.on_produce = script((5,), code, (6,))
    sender = sender_to(server)
    one_batch_each(sender, [b"a", b"b", b"c"])
    answered(sender, lambda: sender.under_way == 0)
    assert sender.broken is None
    assert [sender.outcomes.offset_of(ticket) for ticket in (0, 2)] == [5, 6]
    with pytest.raises(kind):
        sender.outcomes.offset_of(1)
    sender.close()


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_what_was_not_appended_goes_to_the_next_leader_in_order(
    server: ScriptedServer, code: int
) -> None:
    server.on_produce = script((7,), code, code, code)
    sender = sender_to(server)
    one_batch_each(sender, [b"a", b"b", b"c", b"d"])
    answered(sender, lambda: sender.broken is not None)
    assert isinstance(sender.broken, NotLeader) and sender.append(b"e") == -1
    back = sender.give_up(LOST)
    assert [(values_of(batch), first) for batch, first, *_ in back] == [
        ([b"b"], 1),
        ([b"c"], 2),
        ([b"d"], 3),
    ]
    assert sender.outcomes.resolved == 1
    other = ScriptedServer()
    following = connect_producer([other.address], METADATA_TOPIC, sender.outcomes, 4096, 8)
    following.take_over(back)
    following.poll()
    answered(following, lambda: following.under_way == 0)
    assert other.values() == [[b"b"], [b"c"], [b"d"]] and sender.outcomes.resolved == 4
    following.close()
    other.close()


@pytest.mark.parametrize(
    "then", [(9,), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, "hold"]
)
def test_nothing_is_handed_on_behind_what_may_have_been_appended_after_it(
    server: ScriptedServer, then: Any
) -> None:
    """A leader that was none for a moment: offsets would not be in the order of tickets (I24)."""
    lost = ErrorCode.NOT_LEADER_OR_FOLLOWER
    server.on_produce = script((8,), lost, then, lost)
    sender = sender_to(server)
    one_batch_each(sender, [b"a", b"b", b"c", b"d"])
    if then == "hold":
        wait_until(lambda: len(server.produced) == 4)
        server.connections[-1].shutdown(socket.SHUT_RDWR)
    answered(sender, lambda: sender.broken is not None)
    back = sender.give_up(LOST)
    assert [values_of(batch) for batch, *_ in back] == ([] if then == "hold" else [[b"d"]])
    with pytest.raises(NotLeader, match="nothing was appended"):
        sender.outcomes.offset_of(1)
    if isinstance(then, tuple):
        assert sender.outcomes.offset_of(2) == 9
    else:
        with pytest.raises(UnknownOutcome):
            sender.outcomes.offset_of(2)


def test_a_leader_that_falls_silent_after_it_left_is_not_waited_for(server: ScriptedServer) -> None:
    server.on_produce = script(ErrorCode.NOT_LEADER_OR_FOLLOWER, "hold")
    sender = sender_to(server)
    one_batch_each(sender, [b"a", b"b"])
    began = time.monotonic()
    answered(sender, lambda: sender.broken is not None)
    assert 0.5 < time.monotonic() - began < 5.0
    assert sender.give_up(LOST) == [] and sender.outcomes.resolved == 2


def test_a_broken_connection_leaves_what_was_sent_unknown(server: ScriptedServer) -> None:
    server.on_produce = script((3,), "hang up", "hold")
    sender = sender_to(server)
    one_batch_each(sender, [b"a", b"b", b"c"])
    sender.append(b"open")
    answered(sender, lambda: sender.broken is not None)
    assert isinstance(sender.broken, PeerGone)
    back = sender.give_up(LOST)
    assert [values_of(batch) for batch, *_ in back] == [[b"open"]]
    assert sender.outcomes.offset_of(0) == 3
    for ticket in (1, 2):
        with pytest.raises(UnknownOutcome):
            sender.outcomes.offset_of(ticket)


def test_what_meets_a_connection_that_ended_while_idle_never_left(server: ScriptedServer) -> None:
    """The first bytes into it are taken by the kernel and answered by a reset."""
    sender = sender_to(server)
    sender.append(b"a")
    answered(sender, lambda: sender.under_way == 0)
    server.connections[-1].shutdown(socket.SHUT_RDWR)
    wait_until(lambda: select.select([sender.connection], [], [], 0)[0])
    one_batch_each(sender, [b"b"])
    assert isinstance(sender.broken, PeerGone)
    back = sender.give_up(LOST)
    assert [(values_of(batch), first) for batch, first, *_ in back] == [([b"b"], 1)]
    assert sender.outcomes.resolved == 1, "nobody has it: the next leader will"


def test_a_sender_that_is_dropped_leaves_no_descriptor(server: ScriptedServer) -> None:
    """As where a leader resigns before it took anything: nobody closes that one."""
    files = Path("/proc/self/fd")

    def eventfds() -> int:
        return sum("eventfd" in os.readlink(file) for file in files.iterdir() if file.exists())

    before = eventfds()
    for _ in range(3):
        sender_to(server)
    assert eventfds() == before


def test_what_never_left_whole_comes_back() -> None:
    """The kernel's buffer fills: one frame is cut in two, those behind it never began."""
    sender, theirs = pair(batch_bytes=1 << 17, window=16)
    one_batch_each(sender, [b"%02d" % i + b"v" * 50_000 for i in range(14)])
    sender.fail(PeerGone("enough"))
    back = sender.give_up(LOST)
    unknown = sender.outcomes.resolved
    assert unknown > 0 and back and unknown + len(back) == 14
    assert [(values_of(batch)[0] or b"")[:2] for batch, *_ in back] == [
        b"%02d" % i for i in range(unknown, 14)
    ]
    received = b"".join(iter(lambda: theirs.recv(1 << 20), b""))
    whole = [bytes(found) for found in frame.FrameSplitter(1 << 20).frames(received)]
    assert len(whole) == unknown and sum(map(len, whole)) + 4 * unknown < len(received)
    theirs.close()


def answer(number: int, base_offset: int = 1) -> bytes:
    return produce.encode_response(
        9, number, produce.PartitionProduced(topic=METADATA_TOPIC, base_offset=base_offset)
    )


@pytest.mark.parametrize(
    "data",
    [
        answer(5),  # of another request
        answer(0, -1),  # committed, but nowhere
        b"\0\0\0\x02ab",
        b"\x7f\0\0\0",
        b"\0\0\0\x2c\0\0\0\0" + b"\xff" * 40,
        answer(0) + answer(1),  # of a request that was never sent
    ],
)
def test_an_answer_that_makes_no_sense_ends_the_connection(data: bytes) -> None:
    sender, theirs = pair()
    sender.append(b"v")
    wait_until(lambda: theirs.recv(1 << 16))
    theirs.sendall(data)
    answered(sender, lambda: sender.broken is not None)
    assert isinstance(sender.broken, PeerGone)
    sender.give_up(LOST)
    assert sender.outcomes.resolved == 1
    theirs.close()


class FakeConnection:
    """What SocketSender takes over, around one end of a socket pair."""

    CLIENT_ID, host = "c", HOST

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.splitter = sock, frame.FrameSplitter()

    def version_of(self, api_key: int, version_max: int | None = None) -> int:
        return 9

    def hand_over(self) -> tuple[int, int]:
        self.sock.setblocking(False)
        return self.sock.fileno(), 0

    def close(self) -> None:
        self.sock.close()


def pair(**settings: Any) -> tuple[SocketSender, socket.socket]:
    ours, theirs = socket.socketpair()
    arguments: dict[str, Any] = {"batch_bytes": 4096, "window": 4} | settings
    connection: Any = FakeConnection(ours)
    return SocketSender(connection, Outcomes(), METADATA_TOPIC, None, **arguments), theirs


def test_a_sleeper_sends_on_when_there_is_room_and_is_woken_by_answers() -> None:
    sender, theirs = pair(batch_bytes=1 << 20, window=4)
    one_batch_each(sender, [b"v" * 1_000_000] * 3)
    got = bytearray()

    def read() -> None:
        while len(got) < 3_000_000:
            got.extend(theirs.recv(1 << 16))
        theirs.sendall(answer(0) + answer(1, 2) + answer(2, 3))

    reader = threading.Thread(target=read)
    reader.start()
    began = time.monotonic()
    while sender.outcomes.resolved < 3 and time.monotonic() - began < 10:
        sender.sleep(2.0, 2)
    assert sender.outcomes.resolved == 3 and time.monotonic() - began < 5
    reader.join()
    sender.close()


def test_another_thread_that_takes_the_answer_wakes_the_sleeper() -> None:
    """The kernel goes back to sleep where what woke it was read meanwhile."""
    sender, theirs = pair()
    for round in range(20):
        ticket = sender.append(b"v")
        theirs.recv(1 << 16)
        done = threading.Event()
        sleeper = threading.Thread(
            target=lambda ticket=ticket: (sender.sleep(5.0, ticket), done.set())
        )
        began = time.monotonic()
        sleeper.start()
        theirs.sendall(answer(round, round))
        while sender.outcomes.resolved <= ticket:
            sender.poll()
        sleeper.join(5)
        assert time.monotonic() - began < 2.0, "the wake-up was lost"
    sender.close()


def test_buffers_are_used_again_only_once_they_are_answered() -> None:
    sender, theirs = pair(batch_bytes=4096, window=4)
    values = [b"%d" % i + b"v" * 3000 for i in range(40)]
    splitter, received, number = frame.FrameSplitter(1 << 20), [], 0
    for value in values:
        while sender.append(value) < 0:
            received += [bytes(found) for found in splitter.frames(theirs.recv(1 << 20))]
            theirs.sendall(answer(number, number))
            number += 1
            answered(sender, lambda: sender.outcomes.resolved == number)
        sender.seal()
    theirs.settimeout(1.0)
    while len(received) < 40:
        received += [bytes(found) for found in splitter.frames(theirs.recv(1 << 20))]
    requests = [
        produce.decode_request(9, data, frame.decode_request_header(data).body_start)
        for data in received
    ]
    assert flat(values_of(request.records) for request in requests) == values
    sender.close()
