"""What is planted for the rules of what clients are told, and of how a run must end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftfast.core.events import TransferRequested
from kraftfast.core.messages import ReadBarrierResponse
from kraftfast.errors import CorruptLog, ErrorCode
from kraftfast.node.failures import Unanswered
from kraftfast.node.requests.producer_ids import Granted
from kraftfast.node.tcp.partition_leader import PartitionLeader
from kraftfast.record import pure
from kraftfast.sim import world
from kraftfast.sim.clients.clients import ACKNOWLEDGED, FAILED, Append, SimQuestion
from kraftfast.sim.clients.idempotent import Attempt, IdempotentProducer, SentBatch
from kraftfast.sim.clients.kafka_consumer import KafkaConsumer
from kraftfast.sim.clients.named import NamedProducer
from kraftfast.sim.machines.process import Process
from kraftfast.sim.oracles import history
from kraftfast.types import NO_NODE, NO_OFFSET
from tests.sim.planting import Scene, plant
from tests.sim.steps import NEVER_ENDS

# --- who appends ----------------------------------------------------------------------------------


@plant("I23: {} is acknowledged, committed: {}")
def acknowledged_before_its_commit(scene: Scene) -> None:
    scene.unflushed()
    while scene.leader.door.runs:
        scene.leader.door.runs.popleft().acknowledged(0)


def appended(scene: Scene, values: list[bytes], base_offset: int = -1, outcome: str = "") -> Append:
    append = Append(scene.world.producers[0], 1, values, b"", False)
    append.floor = 0
    append.outcome = outcome
    append.base_offset, append.end_offset = base_offset, base_offset + len(values)
    return append


@plant("a gap before offset {}")
def offsets_with_a_gap(scene: Scene) -> None:
    records = pure.values_to_records([b"a"], 0, 3)
    history.read_values(pure.encode_batch(records, leader_epoch=1))


@plant("I23: {} at {} and {}")
def value_comes_twice(scene: Scene) -> None:
    history.places_of({0: None, 1: b"a", 2: b"a"})


@plant("I23: {} acknowledged at {}, found at {}")
def acknowledged_value_is_gone(scene: Scene) -> None:
    history.check_history([appended(scene, [b"a"], 3, ACKNOWLEDGED)], {})


@plant("{} stands at {}, but {} was acknowledged before it was begun")
def appends_change_places(scene: Scene) -> None:
    append = appended(scene, [b"a"], 3, ACKNOWLEDGED)
    append.floor = 4
    history.check_history([append], {b"a": 3})


@plant("I24: {} was refused, and stands at {}")
def refused_value_is_there(scene: Scene) -> None:
    history.check_history([appended(scene, [b"a"], -1, FAILED)], {b"a": 3})


@plant("I23: {} is torn apart: {}")
def batch_is_torn_apart(scene: Scene) -> None:
    history.check_history([appended(scene, [b"a", b"b"])], {b"a": 3, b"b": 5})


@plant("I23: {} of one producer at {} after {}")
def batches_of_one_ring_change_places(scene: Scene) -> None:
    first, second = appended(scene, [b"a"]), appended(scene, [b"b"])
    history.check_history([first, second], {b"a": 5, b"b": 3})


# --- who appends again until it is told -----------------------------------------------------------


def idempotent(scene: Scene) -> tuple[IdempotentProducer, SentBatch, SentBatch]:
    """A producer with two batches that it was not told of."""
    producer = IdempotentProducer(scene.world, 5)
    batches = [SentBatch(n, [b"%d" % n, b"and %d" % n], 2 * n, scene.world) for n in (1, 2)]
    for each in batches:
        each.floor = 0
    producer.pending.extend(batches)
    return producer, *batches


def attempt(producer: IdempotentProducer, batch: SentBatch) -> Attempt:
    return Attempt(producer, batch)


@plant("I23: batch {} of {} is refused: {}")
def first_batch_is_refused(scene: Scene) -> None:
    producer, first, _ = idempotent(scene)
    attempt(producer, first).refused_by(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)


@plant("I23: {} is told of {} before {}")
def second_batch_is_told_of_first(scene: Scene) -> None:
    producer, _, second = idempotent(scene)
    attempt(producer, second).acknowledged(0)


@plant("I23: batch {} of {} was acknowledged and is gone")
def acknowledged_batch_is_gone(scene: Scene) -> None:
    producer, first, _ = idempotent(scene)
    producer.done.append(first)
    producer.pending.popleft()
    producer.check({})


@plant("I23: batch {} is torn apart: {}")
def batch_of_a_producer_is_torn_apart(scene: Scene) -> None:
    producer, _, _ = idempotent(scene)
    producer.check({b"1": 5, b"and 1": 7})


@plant("I23: {} at {} comes after {}")
def batches_of_one_producer_change_places(scene: Scene) -> None:
    producer, _, _ = idempotent(scene)
    producer.check({b"1": 5, b"and 1": 6, b"2": 3, b"and 2": 4})


@plant("I23: {} stands at {}, not {}; {} was acknowledged before it was begun")
def batch_stands_elsewhere(scene: Scene) -> None:
    producer, first, _ = idempotent(scene)
    first.base_offset = 4
    producer.check({b"1": 5, b"and 1": 6})


# --- names ----------------------------------------------------------------------------------------


def named(scene: Scene, count: int = 3) -> tuple[NamedProducer, dict[bytes, int]]:
    """A name under which so many records are committed, and where they stand."""
    producer = NamedProducer(scene.world, 6)
    producer.acknowledged = count - 1
    producer.granted = Granted(ErrorCode.NONE, 1, 0, count - 1, 10 + count - 1)
    producer._question = producer._questions = 1
    return producer, {b"n6:%d:" % n: 10 + n for n in range(count)}


@plant("D22: name {} is told {}; {} was acknowledged")
def name_is_told_too_little(scene: Scene) -> None:
    producer, _ = named(scene)
    granted(producer, Granted(ErrorCode.NONE, 1, 0, 1, 11))


def granted(producer: NamedProducer, told: Granted, answered: int = 100) -> None:
    """A leader that acknowledges up to there grants the name."""
    target: Any = SimpleNamespace(id=1, door=SimpleNamespace(answered=answered))
    producer._answered(1, told, target)


@plant("I23: name {} is told of {}, which {} does not acknowledge: it does up to {}")
def name_is_told_too_much(scene: Scene) -> None:
    producer, _ = named(scene)
    granted(producer, Granted(ErrorCode.NONE, 1, 0, 5, 15), answered=14)


@plant(
    "D22: name {} is fenced {} times, and {} of its questions may have granted it to somebody else"
)
def name_is_fenced_for_nothing(scene: Scene) -> None:
    producer, _ = named(scene)
    assert producer.granted is not None
    granted(producer, producer.granted)
    batch = SentBatch(3, [b"n6:3:"], 3, scene.world)
    producer.pending.append(batch)
    attempt(producer, batch).refused_by(ErrorCode.INVALID_PRODUCER_EPOCH, 0)


@plant("I23: the records of name {} are {}")
def record_of_a_name_is_missing(scene: Scene) -> None:
    producer, places = named(scene)
    del places[b"n6:1:"]
    producer.check(places)


@plant("I23: record {} of name {} was acknowledged, and is gone")
def last_record_of_a_name_is_missing(scene: Scene) -> None:
    producer, places = named(scene)
    del places[b"n6:2:"]
    producer.check(places)


@plant("D22: name {} is told that {} stands at {}, it stands at {}")
def record_of_a_name_stands_elsewhere(scene: Scene) -> None:
    producer, places = named(scene)
    producer.grants.append(Granted(ErrorCode.NONE, 1, 0, 2, 13))
    producer.check(places)


# --- who reads ------------------------------------------------------------------------------------


@plant("a read barrier is answered twice")
def barrier_is_answered_twice(scene: Scene) -> None:
    question = SimQuestion(scene.world, scene.other)
    for _ in range(2):
        question.reply(ReadBarrierResponse(offset=scene.oracle.committed_end))


@plant("a read barrier of {} says {}; {} was committed before it was asked for, {} is committed")
def barrier_says_too_little(scene: Scene) -> None:
    assert scene.world.acknowledged_end > 0
    SimQuestion(scene.world, scene.other).reply(ReadBarrierResponse(offset=0))


@plant("L2: {} never answered a read barrier")
def barrier_is_never_answered(scene: Scene) -> None:
    scene.patch.setattr(SimQuestion, "reply", lambda self, answer: None)
    scene.world.barriers.ask(scene.other)
    scene.world.run(3_000)
    scene.world.barriers.check()


def reads(scene: Scene, name: str, told: Any) -> None:
    """A consumer that has read something asks a leader with a bug."""
    consumer = KafkaConsumer(scene.world)
    while consumer.position < 5:
        consumer.ask(scene.leader)
    scene.patch.setattr(PartitionLeader, name, told)
    consumer.ask(scene.leader)


@plant("I20: {} tells consumers {}, committed is {}")
def leader_tells_too_high_a_watermark(scene: Scene) -> None:
    reads(scene, "high_watermark", property(lambda self: self.log_end_offset + 5))


@plant("I20: {} says that its log begins at {}: {}")
def leader_tells_another_beginning(scene: Scene) -> None:
    reads(scene, "log_start_offset", property(lambda self: NO_OFFSET))


@plant("I20: {} does not tell its latest offset: {}")
def leader_lags_for_ever(scene: Scene) -> None:
    reads(scene, "lags", property(lambda self: True))


@plant("I20: {} says that the latest offset is {}; {} is acknowledged, {} committed")
def leader_tells_too_low_an_offset(scene: Scene) -> None:
    reads(scene, "last_stable_offset", property(lambda self: 0))


@plant("I20: {} says that epoch {} ends at {} of {}; a consumer read up to {} in it")
def leader_ends_an_epoch_too_early(scene: Scene) -> None:
    reads(scene, "end_offset_for_epoch", lambda self, epoch: (epoch, 1))


@plant("I20: {} sends a consumer away from {}, which it read up to: {}, {}")
def leader_sends_a_consumer_away(scene: Scene) -> None:
    told = ErrorCode.OFFSET_OUT_OF_RANGE, None
    reads(scene, "check_position", lambda self, *words: told)


# --- the end --------------------------------------------------------------------------------------


@plant("L2: {} answer no read barrier")
def every_barrier_is_refused(scene: Scene) -> None:
    reply = SimQuestion.reply

    def refused(self: SimQuestion, answer: ReadBarrierResponse) -> None:
        reply(self, ReadBarrierResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    scene.patch.setattr(SimQuestion, "reply", refused)
    scene.quorum.finish()


@plant("L2: a consumer gets nothing at {} of {}")
def consumer_gets_nothing(scene: Scene) -> None:
    scene.patch.setattr(PartitionLeader, "read", lambda self, *words: b"")
    scene.world.consumers.append(KafkaConsumer(scene.world))
    scene.quorum.finish()


@plant("L5: {} finds damage where none is")
def sound_log_is_called_damaged(scene: Scene) -> None:
    def damaged(self: PartitionLeader, *_words: Any) -> bytes:
        raise CorruptLog("a sound log is damaged")

    scene.patch.setattr(PartitionLeader, "read", damaged)
    scene.world.consumers.append(KafkaConsumer(scene.world))
    scene.quorum.finish()


@plant("an idle quorum elects")
def idle_quorum_elects(scene: Scene) -> None:
    scene.world.later(0, scene.leader.enter, scene.leader.resign)
    scene.world._rest()


@plant("an idle quorum hands over again and again")
def idle_quorum_hands_over_without_end(scene: Scene) -> None:
    def hand_over() -> None:
        leader = scene.world.leader()
        if leader is not None:
            leader.enter(leader.step, TransferRequested(Unanswered(), NO_NODE))
        scene.world.later(400_000, hand_over)

    scene.world.later(0, hand_over)
    scene.world._rest()


@plant("L7: {} takes {} steps a second")
def idle_replica_is_busy(scene: Scene) -> None:
    def busy() -> None:
        scene.other.steps += 1
        scene.world.later(300, busy)

    busy()
    scene.world._rest()


@plant("L7: events without end")
def events_without_end(scene: Scene) -> None:
    scene.patch.setattr(world, "EVENTS_MAX", scene.world.events + 100)
    scene.world.run(60_000)


@plant("L3: {} has another voter set than the leader")
def other_voters_at_the_end(scene: Scene) -> None:
    history = SimpleNamespace(latest="others")
    core = scene.core_of(scene.other, history=history)
    scene.patch.setattr(scene.other.machine, "process", scene.process_of(core=core))
    scene.world._check_end()


@plant("{}: the quorum did not come to rest: {}")
def quorum_does_not_come_to_rest(scene: Scene) -> None:
    scene.patch.setattr(scene.other, "disk_delay_us", lambda: 1_000 * NEVER_ENDS)
    scene.append()
    scene.quorum.finish()


@plant("L6: not all replicas came to {} under load: {}")
def one_does_not_catch_up(scene: Scene) -> None:
    scene.other.paused = True
    scene.append()
    scene.world.run(200)
    object.__setattr__(scene.world.settings, "load_ms", 300)
    scene.world._catch_up_under_load()


@plant("L2: no append is committed in a world that is well: {}")
def every_append_is_refused(scene: Scene) -> None:
    """That is an outcome, too, but not one to be content with."""
    scene.patch.setattr(Process, "offer", lambda self, append: append.refused(0))
    scene.quorum.finish()
