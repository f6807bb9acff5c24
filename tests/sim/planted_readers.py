"""What is planted for the rules of consumers and watches that run as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftfast.client.consumer.consumer import Consumer
from kraftfast.client.watch import Watch
from kraftfast.errors import OffsetOutOfRange, TimedOut
from kraftfast.record import pure
from kraftfast.sim.clients import watched_consumers
from kraftfast.sim.clients.watched_consumers import LocalReading, LocalWatcher
from kraftfast.sim.oracles.shadow import BatchId
from tests.sim.kit import Quorum
from tests.sim.planted_programs import program
from tests.sim.planting import Scene, plant
from tests.sim.steps import BESIDE


def with_readers() -> Quorum:
    return Quorum(1, transport="ring", local_consumers=1, local_watchers=1, **BESIDE)


def reader(scene: Scene) -> LocalReading:
    """The consumer, which has died and comes to nothing more by itself."""
    found: LocalReading = program(scene, LocalReading)
    found.end()
    found.position = 0
    scene.patch.setattr(found, "_rest", lambda: None)
    return found


def batch_of(scene: Scene, identity: BatchId, **words: Any) -> Any:
    """A committed batch as a consumer hands it out, but for what a bug did to it."""
    (batch,) = pure.batches(scene.oracle.bytes_of(identity))
    names = "base_offset", "end_offset", "crc", "data"
    return SimpleNamespace(**({each: getattr(batch, each) for each in names} | words))


def record_of(scene: Scene, number: int, **words: Any) -> Any:
    """The first record of a committed batch, likewise."""
    (batch,) = pure.batches(scene.oracle.bytes_of(data_batches(scene)[number]))
    record = next(iter(batch.records()))
    names = "offset", "key", "value", "timestamp"
    return SimpleNamespace(**({each: getattr(record, each) for each in names} | words))


def data_batches(scene: Scene) -> list[BatchId]:
    found = scene.oracle.committed
    decoded = [next(pure.batches(scene.oracle.bytes_of(each))) for each in found]
    return [each for each, batch in zip(found, decoded, strict=True) if not batch.is_control]


@plant("I20: a consumer at {} is given [{}, {})", with_readers)
def batch_is_left_out(scene: Scene) -> None:
    reader(scene).take_batch(batch_of(scene, scene.oracle.committed[1]))


@plant("I20: a consumer is given other bytes at {} than were committed", with_readers)
def batch_has_other_bytes(scene: Scene) -> None:
    first = scene.oracle.committed[0]
    data = scene.oracle.bytes_of(first)
    reader(scene).take_batch(batch_of(scene, first, data=bytes([data[0] ^ 1]) + data[1:]))


@plant("I20: a consumer at {} is given record {}, not {}", with_readers)
def record_is_left_out(scene: Scene) -> None:
    reader(scene).take_record(record_of(scene, 1))


@plant("I20: a consumer is given another record at {} than was committed", with_readers)
def record_has_another_value(scene: Scene) -> None:
    reader(scene).take_record(record_of(scene, 0, value=b"another"))


@plant("I20: a consumer that read nothing at {} goes on at {}", with_readers)
def records_are_forgotten(scene: Scene) -> None:
    def read(self: Consumer, count: int, *, timeout: float) -> None:
        self.position += 1
        raise TimedOut("too few")

    scene.patch.setattr(Consumer, "read", read)
    scene.world.run(10_000)


@plant("I20: a consumer at {} is told that the log begins at {}; it begins at {}", with_readers)
def records_are_called_gone(scene: Scene) -> None:
    def check_start(self: Consumer, start: int) -> None:
        raise OffsetOutOfRange("gone", self.position + 1)

    scene.patch.setattr(Consumer, "_check_start", check_start)
    scene.append()
    scene.world.run(10_000)


@plant("L2: {} {} comes to {} only; {} is committed", with_readers)
def consumer_stands_still(scene: Scene) -> None:
    reader(scene)
    watched_consumers.check_caught_up(scene.world, scene.oracle.committed_end)


@plant("I6: a watch tells of {}, committed is {}", with_readers)
def watch_tells_too_much(scene: Scene) -> None:
    assert isinstance(program(scene, LocalWatcher), LocalWatcher)
    told = iter(range(1 << 40, 1 << 41))
    scene.patch.setattr(Watch, "high_watermark", property(lambda self: next(told)))
    scene.world.run(10_000)


@plant("I6: a watch that told of {} tells of {}", with_readers)
def watch_takes_it_back(scene: Scene) -> None:
    told = iter(range(-1, -(1 << 20), -1))
    scene.patch.setattr(Watch, "high_watermark", property(lambda self: next(told)))
    scene.world.run(10_000)
