"""The small parts by themselves: peers, log view, validation, configuration."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraftfast import limits
from kraftfast.core.config import Durability, FlushPolicy, QuorumConfig
from kraftfast.core.log_view import NEVER_MS, LogView
from kraftfast.core.replication.validation import Validity, validate
from kraftfast.core.request_manager import RequestManager
from kraftfast.core.trail import EpochTrail
from kraftfast.errors import InvalidOption
from kraftfast.types import OffsetAndEpoch, Voter, VoterSet

# --- peers (Kafka: RequestManagerTest) --------------------------------------------------------


# covers: testSuccessfulResponse, testIgnoreUnexpectedResponse, testFindReadyWithInflightRequest
def test_one_request_at_a_time_and_only_its_answer_counts() -> None:
    peers = RequestManager(300, 20)
    first = peers.sent(2, 0)
    assert not peers.is_ready(2, 0) and peers.is_ready(3, 0)
    with pytest.raises(AssertionError):
        peers.sent(2, 0)
    assert not peers.answered(2, first + 1) and not peers.answered(3, first)
    assert peers.answered(2, first) and peers.is_ready(2, 0)
    assert not peers.answered(2, first), "an answer counts once"
    assert peers.sent(2, 0) != first


# covers: testBackoffAfterFailure
def test_a_failure_leaves_the_peer_alone_for_a_while() -> None:
    peers = RequestManager(300, 20)
    peers.sent(2, 0)
    peers.back_off(2, 5)
    assert not peers.is_ready(2, 24) and peers.is_ready(2, 25)
    assert peers.due_ms(2) == 25


# covers: RequestManagerTest.testRequestTimeout, testFindReadyWithRequestTimedout
def test_an_unanswered_request_is_given_up() -> None:
    peers = RequestManager(300, 20)
    correlation = peers.sent(2, 0, is_fetch=True)
    peers.expire(299)
    assert peers.fetching is not None and peers.due_ms(2) == 300
    peers.expire(300)
    assert peers.fetching is None and not peers.answered(2, correlation)
    assert not peers.is_ready(2, 319) and peers.is_ready(2, 320)
    peers.check_invariants()


# covers: testAnyInflightRequestWithAnyRequest
def test_one_fetch_overall() -> None:
    peers = RequestManager(300, 20)
    peers.sent(2, 0, is_fetch=True)
    with pytest.raises(AssertionError, match="one Fetch"):
        peers.sent(3, 0, is_fetch=True)


# covers: testResetAllConnections
def test_a_change_of_role_forgets_requests_pauses_and_strangers() -> None:
    peers = RequestManager(300, 20)
    correlation = peers.sent(2, 0)
    peers.back_off(3, 0)
    peers.peer(99)
    peers.link_up(98, streaming=True, pre_vote=True)
    peers.reset(keep=(2, 3))
    assert not peers.answered(2, correlation)
    assert peers.is_ready(2, 0) and peers.is_ready(3, 0)
    assert set(peers._peers) == {2, 3, 98}


def test_correlation_ids_stay_positive() -> None:
    peers = RequestManager(300, 20)
    peers.next_correlation = 2**31 - 1
    assert peers.sent(2, 0) == 2**31 - 1
    assert peers.sent(3, 0) == 1


# --- the log view -----------------------------------------------------------------------------


def view(end: int = 10, flushed: int = 10, in_memory: bool = False) -> LogView:
    return LogView(EpochTrail([(1, 0), (3, 6)]), 0, end, flushed, in_memory, 0)


def test_a_flush_covers_what_was_there_when_it_began() -> None:
    log = view()
    log.appended(12, 200, 5)
    log.begin_flush()
    log.appended(15, 300, 9)
    assert (log.flushing_bytes, log.unflushed_bytes) == (200, 300)
    assert log.oldest_unflushed_ms() == 5
    assert log.flushed(12, 0)
    assert (log.flushed_end_offset, log.unflushed_bytes, log.oldest_unflushed_ms()) == (12, 300, 9)
    log.check_invariants()


def test_a_flush_that_sampled_later_covers_more() -> None:
    log = view()
    log.appended(12, 200, 5)
    log.begin_flush()
    log.appended(15, 300, 9)
    assert log.flushed(15, 0)
    assert log.unflushed_bytes == 0
    log.check_invariants()


def test_what_a_flush_did_not_reach_waits_on() -> None:
    """A job of the flusher holds so many files; D14 counts from the append, not from that flush."""
    log = view()
    log.appended(20, 1_000, 5)
    log.begin_flush()
    log.appended(25, 300, 40)
    assert log.flushed(15, 0)
    assert log.unflushed_bytes == 1_300 and log.oldest_unflushed_ms() == 5
    log.begin_flush()
    assert log.flushed(25, 0)
    assert log.unflushed_bytes == 0 and log.oldest_unflushed_ms() == NEVER_MS


def test_a_cut_lowers_what_is_flushed_and_voids_flushes_of_before() -> None:
    """D2, D8; Redpanda #2937."""
    log = view(end=12, flushed=10)
    log.begin_flush()
    log.truncate(7)
    assert (log.end_offset, log.flushed_end_offset, log.truncations) == (7, 7, 1)
    assert log.trail.last_epoch == 3
    log.appended(12, 500, 1)
    assert not log.flushed(12, 0), "it says what stood there before the cut"
    assert log.flushed_end_offset == 7 and not log.flushing
    log.begin_flush()
    assert log.flushed(12, 1) and log.flushed_end_offset == 12


def test_memory_counts_what_is_appended() -> None:
    log = view(flushed=0, in_memory=True)
    assert log.ackable_end_offset() == 10
    log.appended(12, 200, 5)
    assert log.ackable_end_offset() == 12 and log.unflushed_bytes == 0


# --- validation (reference 7.1; Kafka: KafkaRaftLogTest.testValidateOffsetAndEpoch...) -----------


# covers: testValidateEpochGreaterThanLastKnownEpoch, testValidateEpochLessThanOldestSnapshotEpoch
# covers: testValidateOffsetLessThanOldestSnapshotOffset
# covers: testValidateOffsetEqualToOldestSnapshotOffset
# covers: testValidateUnknownEpochLessThanLastKnownGreaterThanOldestSnapshot
# covers: testValidateOffsetGreatThanEndOffset, testValidateOffsetLessThanLEO
# covers: testValidateValidEpochAndOffset, testValidateEpochLessThanFirstEpochInLog
# covers: testFetchRequestTruncateToLogStart
def test_validation_with_snapshots() -> None:
    log = LogView(EpochTrail([(2, 10), (4, 15)]), 10, 20, 20, False, 0)
    earliest = OffsetAndEpoch(10, 1)  # which is named, not a later one

    def judge(offset: int, epoch: int) -> tuple[Validity, object]:
        return validate(log, offset, epoch, earliest)

    assert judge(9, 1) == (Validity.SNAPSHOT, earliest), "below the log's start"
    assert judge(0, 0) == (Validity.SNAPSHOT, earliest), "offset 0 of a log that starts later"
    assert judge(10, 2) == (Validity.SNAPSHOT, earliest), "at the start, of another epoch"
    assert judge(10, 1) == (Validity.VALID, None), "at the start, as the snapshot ends"
    assert judge(12, 0) == (Validity.SNAPSHOT, earliest), "an epoch older than the snapshot"
    assert judge(13, 2) == (Validity.VALID, None)
    assert judge(16, 2) == (Validity.DIVERGING, OffsetAndEpoch(15, 2))
    assert judge(16, 3) == (Validity.DIVERGING, OffsetAndEpoch(15, 2))
    assert judge(20, 4) == (Validity.VALID, None)
    assert judge(21, 4) == (Validity.DIVERGING, OffsetAndEpoch(20, 4))
    assert judge(18, 9) == (Validity.DIVERGING, OffsetAndEpoch(20, 4))
    later = LogView(EpochTrail([(3, 10)]), 10, 15, 15, False, 0)
    assert validate(later, 14, 2, earliest) == (Validity.DIVERGING, earliest)
    whole = LogView(EpochTrail([(2, 0), (4, 3)]), 0, 6, 6, False, 0)
    assert validate(whole, 4, 3) == (Validity.DIVERGING, OffsetAndEpoch(3, 2))


def test_offset_zero_is_valid_whatever_the_epoch() -> None:
    log = LogView(EpochTrail([(4, 0)]), 0, 20, 20, False, 0)
    assert validate(log, 0, 3) == (Validity.VALID, None)
    assert validate(log, 1, 3) == (Validity.DIVERGING, OffsetAndEpoch(0, 3))


# --- configuration ----------------------------------------------------------------------------


def test_names_are_taken_as_text() -> None:
    config = QuorumConfig(durability="all", flush="parallel")
    assert config.durability is Durability.ALL and config.flush is FlushPolicy.PARALLEL
    assert (config.check_quorum_timeout_ms, config.begin_quorum_epoch_ms) == (3000, 1000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("election_timeout_ms", 0),
        ("fetch_timeout_ms", -1),
        ("request_timeout_ms", 0),
        ("retry_backoff_ms", -1),
        ("failover_step_ms", -1),
        ("fetch_max_bytes", 0),
        ("stream_pushes_max", 0),
        ("unflushed_bytes_max", limits.TURN_BYTES_MAX - 1),
        ("held_age_ms_max", 49),
        ("durability", "disk"),
        ("flush", "never"),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=name):
        replace(QuorumConfig(), **{name: value})


def test_voter_sets_are_sets_of_ids() -> None:
    assert VoterSet.of(3, 1) == VoterSet.of(1, 3) and hash(VoterSet.of(1)) == hash(VoterSet.of(1))
    for voters in ([Voter(1), Voter(1, b"x" * 16)], [Voter(-1)], map(Voter, range(65))):
        with pytest.raises(InvalidOption):
            VoterSet(voters)


def test_a_parked_fetch_is_answered_long_before_it_counts_as_lost() -> None:
    """Else the followers of an idle leader take its silence for its end, and elect."""
    assert QuorumConfig().fetch_max_wait_ms == limits.FETCH_MAX_WAIT_MS
    assert QuorumConfig(fetch_timeout_ms=300).fetch_max_wait_ms == 150
    assert QuorumConfig(request_timeout_ms=100, fetch_max_wait_ms=100).fetch_max_wait_ms == 50
    assert QuorumConfig(fetch_timeout_ms=1).fetch_max_wait_ms == 1
