"""A forked child uses nothing that its parent made (R11), and its parent does not notice it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kraftfast
from kraftfast.errors import WrongProcess
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.node.storage.description import locked, run_lock
from kraftfast.node.storage.local_layout import format_quorum
from kraftfast.quorum import LocalQuorum


def in_child(ask: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """What a forked child of this process answers, as JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            threading.Timer(timeout_s, os._exit, (9,)).start()
            os.write(writer, json.dumps(ask()).encode())
        except BaseException:
            os.write(writer, json.dumps(traceback.format_exc()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the child did not end by itself"
    return json.loads(answer)


def refused(calls: dict[str, Callable[[], Any]]) -> list[str]:
    """Those that did anything but raise WrongProcess."""
    wrong = []
    for name, call in calls.items():
        try:
            wrong.append(f"{name}: {call()!r}")
        except WrongProcess as error:
            if f"process {os.getppid()}" not in str(error):
                wrong.append(f"{name}: {error}")
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
    return wrong


def calls_of(producer: Any) -> dict[str, Callable[[], Any]]:
    return {
        "append": lambda: producer.append(b"child"),
        "try_append": lambda: producer.try_append(b"child"),
        "append with a key": lambda: producer.append(b"child", key=b"k"),
        "append_wait": lambda: producer.append_wait(b"child"),
        "append_many": lambda: producer.append_many([b"child"] * 10),
        "append_many_nowait": lambda: producer.append_many_nowait([b"child"] * 10),
        "wait for the last": lambda: producer.wait(producer.outcomes.next_ticket - 1),
        "wait for the first": lambda: producer.wait(0),
        "flush": lambda: producer.flush(),
        "last_sequence": lambda: producer.last_sequence(),
        "on_commit": lambda: producer.on_commit(print),
    }


@pytest.mark.parametrize("settings", [{}, {"idempotent": False}], ids=["idempotent", "plain"])
def test_a_producer_belongs_to_the_process_that_made_it(
    quorum: LocalQuorum, settings: dict[str, Any]
) -> None:
    with quorum.producer(**settings) as producer:
        first = producer.append_wait(b"before")
        tickets = [producer.append(b"under way %d" % n) for n in range(500)]
        assert in_child(lambda: refused(calls_of(producer))) == []
        assert in_child(producer.close) is None
        offsets = [producer.wait(ticket) for ticket in tickets]
        offsets += [producer.append_wait(b"after %d" % n) for n in range(50)]
        records = quorum.consumer(first).read(551)
    assert [record.offset for record in records[1:]] == offsets
    assert Counter(record.value for record in records)[b"child"] == 0
    assert len({record.value for record in records}) == 551


def test_a_child_is_refused_whatever_lock_another_thread_held(ring_quorum: LocalQuorum) -> None:
    with ring_quorum.producer() as producer:
        going = True

        def append() -> None:
            while going:
                producer.append_many([b"x"] * 100)
                producer.append_wait(b"y")

        producer.append_wait(b"x")  # there is a ticket to ask for
        threads = [threading.Thread(target=append) for _ in range(3)]
        for thread in threads:
            thread.start()
        producer.on_commit(lambda _: None)
        answers = [in_child(lambda: refused(calls_of(producer))) for _ in range(8)]
        going = False
        for thread in threads:
            thread.join()
        assert answers == [[]] * 8
        producer.append_wait(b"z")


def shared_with_parent() -> list[str]:
    """Writable memory files that are mapped, and descriptors of ours that are open."""
    with open("/proc/self/maps") as maps:
        found = [line for line in maps if "memfd:kraftfast" in line and "rw-s" in line]
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith(("/memfd:kraftfast", "anon_inode:[pidfd]", "anon_inode:[eventfd]")):
            found.append(target)
    return found


def test_neither_rings_nor_descriptors_are_inherited(ring_quorum: LocalQuorum) -> None:
    before = Counter(shared_with_parent())  # other tests leave some behind
    with ring_quorum.producer() as producer, ring_quorum.consumer() as consumer:
        producer.append_wait(b"x")
        assert Counter(shared_with_parent()) - before
        assert Counter(in_child(shared_with_parent)) - before == Counter()
        assert producer.append_wait(b"y") > 0
        consumer.wait(timeout=5)


def calls_of_consumer(consumer: Any, records: Iterator[Any]) -> dict[str, Callable[[], Any]]:
    """Every call of a consumer; ``records``: an iterator over it that was begun."""
    return {
        "next": lambda: list(records),
        "iter": lambda: list(consumer),
        "read": lambda: consumer.read(1),
        "wait": lambda: consumer.wait(timeout=1),
        "batches": lambda: list(consumer.batches()),
        "high_watermark": lambda: consumer.high_watermark,
    }


def test_a_consumer_belongs_to_the_process_that_made_it(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        first = producer.append_wait(b"0")
        for n in range(1, 20):
            producer.append_wait(b"%d" % n)
        with quorum.consumer(first) as consumer:
            records = iter(consumer)
            next(records)
            calls = calls_of_consumer(consumer, records)
            assert in_child(lambda: refused(calls)) == []
            assert in_child(consumer.close) is None
            assert len(list(records)) == 19
            producer.append_wait(b"20")
            assert consumer.wait(timeout=5)
            assert [record.value for record in consumer.read(1)] == [b"20"]


def test_an_async_producer_belongs_to_the_process_that_made_it(quorum: LocalQuorum) -> None:
    async def main() -> None:
        producer = await quorum.async_producer()
        await producer.append_wait(b"before")
        under_way = [producer.append(b"%d" % n) for n in range(100)]
        calls = {
            "append": lambda: producer.append(b"child"),
            "append_wait": lambda: asyncio.run(producer.append_wait(b"child")),
            "append_many": lambda: asyncio.run(producer.append_many([b"child"])),
            "flush": lambda: asyncio.run(producer.flush()),
        }
        assert in_child(lambda: refused(calls)) == []
        assert in_child(lambda: asyncio.run(producer.close())) is None
        assert len(await asyncio.gather(*under_way)) == 100
        await asyncio.wait_for(producer.append_wait(b"after"), 10)  # its epoll is as it was
        await producer.close()

    asyncio.run(main())


def calls_of_quorum(quorum: LocalQuorum) -> dict[str, Callable[[], Any]]:
    return {
        "producer": lambda: quorum.producer(timeout=1),
        "consumer": lambda: quorum.consumer(timeout=1),
        "status": lambda: quorum.status(1),
        "statuses": lambda: quorum.statuses(),
        "query": lambda: quorum.query(1, timeout=1),
        "leader": lambda: quorum.leader(),
        "wait_leader": lambda: quorum.wait_leader(1),
        "watch": lambda: quorum.watch(1),
        "kill": lambda: quorum.kill(1),
        "admin": lambda: quorum.admin(),
        "async_admin": lambda: quorum.async_admin(),
        "describe": lambda: quorum.describe(timeout=1),
        "read_barrier": lambda: quorum.read_barrier(timeout=1),
        "read_barrier of one": lambda: quorum.read_barrier(1, timeout=1),
        "add_replica": lambda: quorum.add_replica(timeout=1),
        "adopt": lambda: quorum.adopt(timeout=1),
        "identity": lambda: quorum.identity(1),
        "add_voter": lambda: quorum.add_voter(timeout=1),
        "remove_voter": lambda: quorum.remove_voter(1, timeout=1),
        "stop_replica": lambda: quorum.stop_replica(1),
        "reassign": lambda: quorum.reassign([1], timeout=1),
        "transfer": lambda: quorum.transfer(timeout=1),
        "upgrade": lambda: quorum.upgrade(timeout=1),
    }


def test_a_quorum_belongs_to_the_process_that_started_it(ring_quorum: LocalQuorum) -> None:
    pids = [ring_quorum.supervisor.pid(id) for id in (1, 2, 3)]
    calls = calls_of_quorum(ring_quorum)
    admin = ring_quorum.admin()
    calls["an admin that was there"] = lambda: admin.describe(timeout=1)
    assert in_child(lambda: refused(calls)) == []
    assert in_child(ring_quorum.close) is None
    assert [ring_quorum.supervisor.pid(id) for id in (1, 2, 3)] == pids
    assert len(ring_quorum.statuses()) == 3


def test_servers_are_reached_by_each_process_by_itself(socket_quorum: LocalQuorum) -> None:
    addresses = [f"{host}:{port}" for host, port in socket_quorum.addresses.values()]
    quorum = kraftfast.connect(addresses)
    calls = {
        "producer": lambda: quorum.producer(timeout=1),
        "consumer": lambda: quorum.consumer(timeout=1),
        "admin": lambda: quorum.admin(),
        "describe": lambda: quorum.describe(timeout=1),
    }
    assert in_child(lambda: refused(calls)) == []
    assert in_child(lambda: kraftfast.connect(addresses).producer().append_wait(b"own")) > 0


def append_job(where: Any, n: int) -> int:
    quorum = kraftfast.connect(where)
    with quorum.producer() as producer:
        return producer.append_wait(b"job-%d" % n)


def test_workers_of_a_pool_make_clients_of_their_own(quorum: LocalQuorum) -> None:
    where: Any = quorum.path
    if quorum.addresses:
        where = [f"{host}:{port}" for host, port in quorum.addresses.values()]
    with quorum.producer() as producer, multiprocessing.get_context("fork").Pool(2) as pool:
        first = producer.append_wait(b"parent")
        offsets = pool.starmap(append_job, [(where, n) for n in range(20)])
        records = quorum.consumer(first + 1).read(20)
    assert sorted(offsets) == [record.offset for record in records]
    assert {record.value for record in records} == {b"job-%d" % n for n in range(20)}


def test_an_attached_quorum_has_all_clients(ring_quorum: LocalQuorum) -> None:
    with kraftfast.connect(ring_quorum.path) as quorum, quorum.producer() as producer:
        offset = producer.append_wait(b"attached")
        assert quorum.read_barrier() > offset
        assert len(quorum.describe().voters) == 3
        assert quorum.topic == ring_quorum.description.topic
        assert quorum.consumer(offset).read(1)[0].value == b"attached"
        assert len(in_child(lambda: refused({"producer": quorum.producer}))) == 0
    with pytest.raises(kraftfast.errors.NotFormatted):
        kraftfast.connect(ring_quorum.path + "/nothing")


def test_a_child_keeps_no_lock_of_its_parent(tmp_path: Any) -> None:
    """A worker's child, say, which its state machine forked, and which outlives it."""
    path = str(tmp_path / "q")
    format_quorum(path, 1)
    directory = ReplicaDirectory(Disk(), path + "/1")
    running = run_lock(path)
    go_on, stay = os.pipe()
    runs, says = os.pipe()
    with locked(path):
        pid = os.fork()
        if pid == 0:
            try:
                os.close(stay)
                os.write(says, b"x")
                os.read(go_on, 1)
            finally:
                os._exit(0)
        os.read(runs, 1)
    for fd in (go_on, runs, says):
        os.close(fd)
    try:
        directory.close()
        running.release()
        ReplicaDirectory(Disk(), path + "/1").close()
        run_lock(path).release()
        with locked(path):
            pass
    finally:
        os.close(stay)
        os.waitpid(pid, 0)
