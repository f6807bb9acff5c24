"""The sender over a ring, against a replica that answers as it is told to."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.sender import RECORD_BYTES_MAX
from kraftfast.errors import (
    DiskFull,
    ErrorCode,
    InvalidOption,
    LocalError,
    NotLeader,
    PeerGone,
    RecordsRefused,
    RecordTooLarge,
    UnknownOutcome,
)
from kraftfast.record.batch import batches
from kraftfast.record.builder import Values
from tests.client.kit import ACK, REFUSED, ScriptedReplica, ack, flat, values_of

LOST = UnknownOutcome("lost")


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
def replica(outcomes: Outcomes) -> ScriptedReplica:
    return ScriptedReplica(outcomes)


def test_the_first_record_leaves_at_once_and_others_gather_behind_it(
    replica: ScriptedReplica,
) -> None:
    sender = replica.sender
    assert [sender.append(b"%d" % i) for i in range(5)] == list(range(5))
    assert [values_of(batch) for batch in replica.look()] == [[b"0"]]
    assert sender.has_open and sender.under_way == 1
    replica.release()
    replica.acknowledge(1)
    assert sender.poll()
    assert [values_of(batch) for batch in replica.look()] == [[b"1", b"2", b"3", b"4"]]
    assert sender.outcomes.resolved == 1 and not sender.has_open


def test_a_full_batch_leaves_and_a_full_window_takes_no_more(replica: ScriptedReplica) -> None:
    sender, value = replica.sender, b"v" * 1000
    tickets = 0
    while sender.append(value) >= 0:
        tickets += 1
    assert sender.under_way == sender.window == 8
    assert sender.append(value) == -1 and sender.append_values(Values([value]), 0) == (tickets, 0)
    replica.look()
    replica.release()
    replica.acknowledge(1)
    assert sender.append(value) == tickets
    assert (
        len(replica.batches[0]) < 4096
        and sum(len(values_of(b)) for b in replica.batches) <= tickets
    )


def test_a_full_ring_takes_no_more_until_what_is_in_it_is_acknowledged(outcomes: Outcomes) -> None:
    """D24: slots that were released may have to be sent again, so they are not overwritten."""
    replica = ScriptedReplica(outcomes, ring_bytes=1 << 16, batch_bytes=16384, window=64)
    sender, value = replica.sender, b"v" * 8000
    while sender.append(value) >= 0:
        pass
    assert sender.under_way < sender.window
    sender.want_room()
    assert sender.going_to_sleep()
    assert len(replica.look(2)) == 2
    replica.release()
    assert sender.going_to_sleep(), "what is released and not acknowledged makes no room"
    assert sender.append(value) == -1
    replica.acknowledge(2)
    sender.poll()
    assert not sender.going_to_sleep(), "room is news to a caller that waits for it"
    assert sender.going_to_sleep(), "once: a caller that only polls must be able to sleep"
    assert sender.append(value) >= 0


def test_records_with_everything_and_at_their_bounds(replica: ScriptedReplica) -> None:
    sender = replica.sender
    sender.append_record(None, b"key", [("a", b"1"), ("b", None)], 1234)
    sender.append_record(b"far", None, (), (1 << 62))
    sender.append_record(memoryview(b"view"), bytearray(b"k"), [], None)
    sender.append_record(b"", None, (), 0)
    for bad in (
        ("text", None, (), None),
        (b"", 5, (), None),
        (b"", None, [("a",)], None),
        (b"", None, [(b"a", b"")], None),
        (b"", None, (), -1),
        (b"", None, (), 1 << 63),
        (b"", None, (), "now"),
    ):
        with pytest.raises(InvalidOption):
            sender.append_record(*bad)
    largest = sender.record_bytes_max
    with pytest.raises(RecordTooLarge) as caught:
        sender.append(b"v" * (largest + 1))
    assert caught.value.record_bytes == largest + 1
    assert sender.outcomes.next_ticket == 4
    sender.append_record(b"v" * (largest - 8), b"k" * 4, [("a", b"b")], None)
    for _ in range(9):
        replica.look()
        replica.release()
        replica.acknowledge(len(replica.batches) - replica.answered)
        sender.poll()
    records = flat([list(found.records()) for batch in replica.batches for found in batches(batch)])
    assert [record.value for record in records[:4]] == [None, b"far", b"view", b""]
    assert records[0].key == b"key" and list(records[0].headers) == [("a", b"1"), ("b", None)]
    assert [record.timestamp for record in (records[0], records[1], records[3])] == [
        1234,
        1 << 62,
        0,
    ]
    assert abs(records[2].timestamp - time.time() * 1000) < 10_000
    assert len(records[4].value) == largest - 8 and sender.outcomes.resolved == 5


def test_the_largest_record_of_all_fits_a_batch_of_its_own(outcomes: Outcomes) -> None:
    replica = ScriptedReplica(outcomes, ring_bytes=32 << 20)
    assert replica.sender.record_bytes_max == RECORD_BYTES_MAX
    header = ("h", b"h" * 100)  # 104 bytes: each part has its size in front
    with pytest.raises(RecordTooLarge):
        replica.sender.append_record(b"v" * (RECORD_BYTES_MAX - 103), None, [header], 1)
    assert replica.sender.append_record(b"v" * (RECORD_BYTES_MAX - 104), None, [header], 1) == 0
    (batch,) = replica.look()
    assert len(values_of(batch)[0] or b"") == RECORD_BYTES_MAX - 104
    assert replica.sender.append_values(Values([b"w" * RECORD_BYTES_MAX]), 0) == (1, 1)


def test_a_kafka_raft_log_refuses_what_its_reader_would(outcomes: Outcomes) -> None:
    replica = ScriptedReplica(outcomes, records="kafka-raft")
    sender = replica.sender
    for bad in (
        (None, None, (), None),
        (b"", None, (), None),
        (b"v", b"k", (), None),
        (b"v", None, [("a", b"")], None),
    ):
        with pytest.raises(RecordsRefused):
            sender.append_record(*bad)
    with pytest.raises(RecordsRefused, match="value 1 "):
        sender.check_values(Values([b"a", b"", b"c"]))
    with pytest.raises(RecordsRefused):
        sender.append(b"")
    assert not sender.has_open and sender.append(b"leaves at once") == 0
    for ticket, stamp in enumerate((None, None, 5, 5, 6, None), 1):
        assert sender.append_record(b"%d" % ticket, None, (), stamp) == ticket
    sender.seal()
    sent = replica.look()
    assert [values_of(batch) for batch in sent[1:]] == [
        [b"1", b"2"],
        [b"3", b"4"],
        [b"5"],
        [b"6"],
    ], "each timestamp has a batch of its own"
    assert [
        record.timestamp
        for batch in sent[2:4]
        for each in batches(batch)
        for record in each.records()
    ] == [5, 5, 6]


def test_many_values_are_checked_before_the_first_one_leaves(replica: ScriptedReplica) -> None:
    import array

    sender = replica.sender
    assert sender.check_values(Values([b"a", None, b"ccc"])) == 3
    assert sender.check_values(Values(b"abcdef", size=2)) == 2
    with pytest.raises(InvalidOption, match="value 1 "):
        sender.check_values(Values(b"abc", array.array("i", [0, 2, 1, 3])))
    with pytest.raises(InvalidOption, match="value 0 "):
        sender.check_values(Values(b"abc", array.array("q", [0, 4])))
    with pytest.raises(RecordTooLarge, match="value 1 "):
        sender.check_values(Values([b"", b"v" * (RECORD_BYTES_MAX + 1)]))


def test_values_of_all_sizes_arrive_in_order(outcomes: Outcomes) -> None:
    replica = ScriptedReplica(outcomes, window=64)
    values = [b"v" * n for n in (10, 5000, 0, 4096, 100_000, 3, 4000, 4000)] * 3
    column, done = Values(values), 0
    while done < len(values):
        first, taken = replica.sender.append_values(column, done)
        assert first == done
        done += taken
    assert flat(values_of(batch) for batch in replica.look()) == values


# --- what comes back --------------------------------------------------------------------------


def test_refusals_count_for_what_they_name_however_early_they_come(
    replica: ScriptedReplica,
) -> None:
    sender, outcomes = replica.sender, replica.sender.outcomes
    for i in range(4):
        sender.append(b"%d" % i)
        sender.seal()
    replica.look()
    replica.refuse(2, 1, ErrorCode.KAFKA_STORAGE_ERROR)  # while the first two wait for their commit
    sender.poll()
    assert outcomes.resolved == 0
    replica.acknowledge(2)
    sender.poll()
    assert outcomes.resolved == 3 and [outcomes.offset_of(0), outcomes.offset_of(1)] == [100, 101]
    with pytest.raises(DiskFull):
        outcomes.offset_of(2)
    replica.say(ACK, ack(3, 1, 102, 103))
    sender.poll()
    assert outcomes.offset_of(3) == 102


@pytest.mark.parametrize(
    "message",
    [
        (ACK, ack(0, 3, 0, 3)),  # more than was sent
        (ACK, ack(1, 1, 0, 1)),  # not the oldest... twice, see below
        (ACK, ack(0, 1, 0, 2)),  # offsets that do not fit
        (ACK, ack(0, 1, -1, 0)),
        (ACK, ack(0, 1 << 63, 0, 2)),
        (ACK, ack(1 << 63, 1, 0, 1)),
        (REFUSED, struct.pack("<QQii", 1, 2, 56, 0)),
        (ACK, b"short"),
        (77, b"what"),
    ],
)
def test_an_answer_that_makes_no_sense_ends_the_ring(
    replica: ScriptedReplica, message: tuple[int, bytes]
) -> None:
    sender = replica.sender
    for value in (b"a", b"b"):
        sender.append(value)
        sender.seal()
    replica.look()
    replica.say(*message)
    if message[1][:16] == struct.pack("<QQ", 1, 1):
        replica.say(*message)
    sender.poll()
    assert isinstance(sender.broken, PeerGone)
    assert sender.append(b"c") == -1
    back = sender.give_up(LOST)
    outcomes = sender.outcomes
    assert back == [] and outcomes.resolved == outcomes.next_ticket == 2, (
        "a living replica may take all of it"
    )
    with pytest.raises(UnknownOutcome):
        outcomes.offset_of(0)


def test_what_a_leaver_looked_at_is_unknown_and_the_rest_comes_back_in_order(
    replica: ScriptedReplica,
) -> None:
    sender, outcomes = replica.sender, replica.sender.outcomes
    for i in range(5):
        sender.append(b"%d" % i)
        sender.seal()
    sender.append(b"open")
    replica.look(3)
    replica.acknowledge(1)
    replica.leave(leader_id=2)
    sender.poll()
    assert isinstance(sender.broken, NotLeader) and sender.broken.leader_id == 2
    back = sender.give_up(LOST)
    assert [(values_of(batch), first, records) for batch, first, records, _ in back] == [
        ([b"3"], 3, 1), ([b"4"], 4, 1), ([b"open"], 5, 1),
    ]  # fmt: skip
    assert outcomes.resolved == 3 and outcomes.next_ticket == 6 and outcomes.offset_of(0) == 100
    for ticket in (1, 2):
        with pytest.raises(UnknownOutcome, match="lost"):
            outcomes.offset_of(ticket)


def test_only_a_ring_that_nobody_reads_any_more_gives_anything_back(
    replica: ScriptedReplica,
) -> None:
    sender = replica.sender
    for value in (b"a", b"b"):
        sender.append(value)
        sender.seal()
    sender.append(b"open")
    replica.look(1)
    sender.fail(PeerGone("a later leader is known"))  # this one may only be slow
    back = sender.give_up(LOST)
    assert [values_of(batch) for batch, *_ in back] == [[b"open"]]
    assert sender.outcomes.resolved == 2


def test_a_replica_that_hangs_up_takes_no_more(replica: ScriptedReplica) -> None:
    sender = replica.sender
    for value in (b"a", b"b"):
        sender.append(value)
        sender.seal()
    replica.look(1)
    replica.acknowledge(1)
    replica.close()
    for _ in range(2):  # its last word ends the first sleep
        sender.sleep(5.0, 10)
    assert isinstance(sender.broken, PeerGone)
    back = sender.give_up(LOST)
    assert [values_of(batch) for batch, *_ in back] == [[b"b"]] and sender.outcomes.offset_of(
        0
    ) == 100


def test_a_backlog_goes_before_what_is_appended_meanwhile(outcomes: Outcomes) -> None:
    old = ScriptedReplica(outcomes, window=8)
    for i in range(6):
        old.sender.append(b"old %d" % i)
        old.sender.seal()
    old.leave()
    old.sender.poll()
    new = ScriptedReplica(outcomes, window=4)
    new.sender.take_over(old.sender.give_up(LOST))
    new.sender.poll()
    assert new.sender.backlog and new.sender.append(b"new") == -1, "appends wait behind it"
    new.look()
    new.release()
    new.acknowledge(4)
    new.sender.poll()
    assert not new.sender.backlog and new.sender.append(b"new") == 6
    new.sender.seal()
    new.look()
    new.acknowledge(3)
    new.sender.poll()
    assert flat(values_of(batch) for batch in new.batches) == [b"old %d" % i for i in range(6)] + [
        b"new"
    ]
    assert [outcomes.offset_of(ticket) for ticket in range(7)] == list(range(100, 107))


def test_a_backlog_survives_a_second_leader_too(outcomes: Outcomes) -> None:
    first = ScriptedReplica(outcomes)
    for i in range(3):
        first.sender.append(b"%d" % i)
        first.sender.seal()
    first.leave()
    first.sender.poll()
    second = ScriptedReplica(outcomes, window=1)
    second.sender.take_over(first.sender.give_up(LOST))
    second.sender.poll()
    second.leave()
    second.sender.poll()
    back = second.sender.give_up(LOST)
    assert [values_of(batch) for batch, *_ in back] == [[b"0"], [b"1"], [b"2"]]
    assert outcomes.resolved == 0


# --- threads and sleep ------------------------------------------------------------------------


def test_a_sleeper_is_woken_by_the_replica_and_by_another_thread_that_took_its_answer(
    replica: ScriptedReplica,
) -> None:
    sender = replica.sender
    for round in range(20):
        ticket = sender.append(b"v")
        sleeper = threading.Thread(target=lambda ticket=ticket: sender.sleep(5.0, ticket))
        began = time.monotonic()
        sleeper.start()
        if round % 2:
            time.sleep(0.005)
        replica.look()
        replica.release()
        replica.acknowledge(1)
        if round % 4 < 2:
            sender.poll()
        sleeper.join(5.0)
        assert time.monotonic() - began < 2.0, "the wake-up was lost"
        assert sender.outcomes.resolved == ticket + 1


def test_letting_go_wakes_a_sleeper_and_closes_when_it_has_left(replica: ScriptedReplica) -> None:
    sender = replica.sender
    sender.append(b"v")
    began = time.monotonic()
    sleeper = threading.Thread(target=lambda: sender.sleep(10.0, 0))
    sleeper.start()
    time.sleep(0.05)
    sender.give_up(LOST)
    sleeper.join(5.0)
    assert time.monotonic() - began < 5.0
    assert replica.sock.recv(1) == b"", "the replica sees the end"
    sender.sleep(10.0, 5)
    sender.attend()
    sender.close()


def test_columns_are_encoded_while_other_threads_append_and_poll(outcomes: Outcomes) -> None:
    replica = ScriptedReplica(outcomes, ring_bytes=1 << 22, batch_bytes=1 << 16, window=64)
    sender, stop, counts = replica.sender, threading.Event(), []
    sealed = threading.Event()  # until then a batch may be open that is not under way yet

    def serve() -> None:
        while sender.broken is None and (not sealed.is_set() or sender.under_way):
            if found := replica.look():
                replica.release()
                replica.acknowledge(len(found))
            sender.poll()

    def append(name: int) -> None:
        taken = 0
        while not stop.is_set() and sender.broken is None:
            taken += sender.append(b"%d:%d" % (name, taken)) >= 0
        counts.append((name, taken))

    threads = [
        threading.Thread(target=serve),
        *(threading.Thread(target=append, args=(n,)) for n in (1, 2)),
    ]
    for thread in threads:
        thread.start()
    column, done, deadline = Values([b"0:%d" % i for i in range(60_000)]), 0, time.monotonic() + 20
    while done < len(column) and time.monotonic() < deadline:
        first, taken = sender.append_values(column, done)
        done += taken
    stop.set()
    for thread in threads[1:]:
        thread.join()
    sender.seal()
    sealed.set()
    threads[0].join()
    counts.append((0, done))
    seen: dict[int, int] = {0: 0, 1: 0, 2: 0}
    for value in flat(values_of(batch) for batch in replica.batches):
        name, number = (int(part) for part in (value or b"").split(b":"))
        assert number == seen[name], "each thread's records come once and in order"
        seen[name] += 1
    assert done == len(column) and seen == dict(counts) and outcomes.resolved == sum(seen.values())


def test_senders_have_bounds() -> None:
    for settings in ({"window": 0}, {"window": 1 << 16}, {"batch_bytes": 10}):
        with pytest.raises(InvalidOption):
            ScriptedReplica(Outcomes(), **settings)
    with pytest.raises(LocalError):
        Outcomes().offset_of(0)
