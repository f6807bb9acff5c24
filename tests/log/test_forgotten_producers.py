"""Producers that a log has forgotten: what they send again is refused, and never comes twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast.errors import CorruptBatch, UnsupportedVersion
from kraftfast.log.idempotence.forgotten import APART_MAX, Forgotten
from kraftfast.log.idempotence.producer_state import check_producer_state
from kraftfast.log.idempotence.producers import Producers
from kraftfast.log.small_files.id_ranges import CLOCK_ID, NUMBER_LAST, leader_id
from tests.log.producer_model import Appended
from tests.log.test_producers import DUPLICATE, NONE, UNKNOWN, a_twin, data_batch, try_append

NAMED = [leader_id(1, number, True) for number in range(1, 7)]
LEADERS = [leader_id(1, number) for number in range(1, 7)]


@pytest.mark.parametrize("ids", [LEADERS, NAMED])
def test_what_a_forgotten_producer_sends_again_is_refused(tmp_path: Path, ids: list[int]) -> None:
    """Others came between a batch and its repeat, more than the log remembers."""
    with a_twin(tmp_path) as twin:
        for id in ids[:5]:
            assert twin.append(id, 0, 0, 2) is NONE
        for id in ids[:2]:  # three are remembered
            assert twin.append(id, 0, 0, 2) is UNKNOWN, "the repeat of its first batch"
            assert twin.append(id, 0, 2) is UNKNOWN
        assert twin.append(ids[4], 0, 0, 2) is DUPLICATE
        twin.reopen(False)
        twin.check()
        assert twin.append(ids[0], 0, 0, 2) is UNKNOWN
        assert twin.append(ids[0], 1, 0, 2) is NONE, "it goes on in a higher epoch"
        assert twin.append(ids[5], 0, 0) is NONE, "never seen: handed out after all of them"
        twin.check()


def test_a_producer_that_was_never_seen_but_is_older(tmp_path: Path) -> None:
    """While few were forgotten, all of them are known one by one: it is none of them."""
    with a_twin(tmp_path) as twin:
        for id in (*LEADERS[1:5], *NAMED[1:5]):
            twin.append(id, 2, 0)
        for id in (LEADERS[0], NAMED[0]):
            assert twin.append(id, 0, 1) is UNKNOWN
            assert twin.append(id, 0, 0) is NONE
        twin.check()


@pytest.mark.parametrize("others", [LEADERS[1:5], NAMED[1:5]])
def test_the_high_epoch_of_another_stands_in_nobodys_way(tmp_path: Path, others: Any) -> None:
    with a_twin(tmp_path) as twin:
        twin.append(LEADERS[0], 0, 0)
        for id in others:
            twin.append(id, 30_000, 0)
        assert twin.append(LEADERS[0], 0, 0) is UNKNOWN, "the repeat of its first batch"
        assert twin.append(LEADERS[0], 1, 0) is NONE
        twin.check()


def test_of_very_many_the_lowest_epochs_are_one() -> None:
    """An older id that is none of the highest cannot be told from a forgotten one."""
    found = Forgotten()
    for number in range(1, 3 * APART_MAX):
        found.add(leader_id(1, 2 * number), 0)
    found.add(leader_id(1, 1000), 30_000)
    assert not found.may_begin(leader_id(1, 3), 0, 1)
    assert found.may_begin(leader_id(1, 3), 1, 1)
    assert not found.may_begin(leader_id(1, 1000), 30_000, 1)
    assert found.may_begin(leader_id(1, 1000), 30_001, 1)
    assert found.may_begin(leader_id(1, 1, True), 0, 1), "names have ids of their own"


FORGETTING = st.tuples(st.sampled_from([0, 2**30, CLOCK_ID]), st.integers(0, 99), st.integers(0, 5))


@given(st.lists(FORGETTING, max_size=200))
def test_what_was_forgotten_never_begins_again_in_its_epoch(gone: list[Any]) -> None:
    producers = Producers(4)
    for kind, number, epoch in gone:
        producers.forgotten.add(kind + number, epoch)
    again = loaded(producers.encode())
    assert again.encode() == producers.encode()
    for found in (producers.forgotten, again.forgotten):
        for kind, number, epoch in gone:
            for earlier in range(epoch + 1):
                assert not found.may_begin(kind + number, earlier, 2**31 - 1)
            assert found.may_begin(kind + number, 6, 2**31 - 1)


def test_since_when_every_name_is_known(tmp_path: Path) -> None:
    """Of a name that is not known: whether it was never used, or may be one that was forgotten."""
    with a_twin(tmp_path) as twin:
        for id in LEADERS[:5]:
            twin.append(id, 0, 0)
        assert twin.log.producers.names_since == 0, "those that were forgotten had no name"
        offsets = []
        for number, id in enumerate(NAMED[:5]):
            offsets.append(twin.log.end_offset)
            twin.name(f"name {number}", id, 0, True)
        assert twin.log.producers.names_since == offsets[2], "three are known"
        twin.append(NAMED[2], 0, 0)
        assert twin.log.producers.names_since == offsets[3]
        twin.check()


def test_a_higher_limit_brings_no_forgotten_name_back(tmp_path: Path) -> None:
    """An operator who raises it, since names are refused, must not have them begin again."""
    with a_twin(tmp_path) as twin:
        offsets = []
        for number, id in enumerate(NAMED[:5]):
            offsets.append(twin.log.end_offset)
            twin.name(f"name {number}", id, 0, True)
        state = twin.log.producers.encode()
    raised = Producers(1000)
    raised.load(offsets[-1] + 1, state)
    assert raised.named("name 0") is None and raised.names_since == offsets[2]


def test_a_name_that_ran_out_of_epochs_is_not_forgotten(tmp_path: Path) -> None:
    with a_twin(tmp_path) as twin:
        for epoch, id in zip((32765, 32766, 0), NAMED, strict=False):
            twin.name("name", id, epoch, True)
        assert twin.log.producers.forgotten and twin.log.producers.names_since == 0


def test_ids_that_nobody_can_have_been_given(tmp_path: Path) -> None:
    """One of them, once forgotten, would have all that come after it refused."""
    with a_twin(tmp_path) as twin:
        assert twin.append(leader_id(2, 1), 0, 0) is UNKNOWN, "the leader is of epoch 1"
        for id in (2**63 - 1, CLOCK_ID):
            assert try_append(twin.log, data_batch(id, 0, 0)) is UNKNOWN
        twin.check()


def test_later_ids_are_larger() -> None:
    places = [(0, 1), (1, 2), (2, 1), (2**31 - 1, NUMBER_LAST)]
    both = [[leader_id(*each, named) for each in places] for named in (False, True)]
    assert all(ids == sorted(ids) for ids in both)
    assert len({*both[0], *both[1]}) == 8 and max(both[1]) < CLOCK_ID


BATCHES = st.tuples(st.sampled_from(LEADERS + NAMED), st.integers(0, 2), st.integers(0, 3))


@settings(max_examples=60)
@given(sent=st.lists(BATCHES, max_size=60), cut=st.integers(0, 60))
def test_nothing_comes_twice(tmp_path_factory: Any, sent: list[Any], cut: int) -> None:
    """Whatever is sent, in whatever order, as often as it likes."""
    with a_twin(tmp_path_factory.mktemp("log")) as twin:
        for number, batch in enumerate(sent):
            twin.append(*batch)
            if number == cut:
                twin.log.flush()
                twin.reopen(False)
        assert all(isinstance(each, Appended) for each in twin.entries)
        assert len({each[:3] for each in twin.entries}) == len(twin.entries)
        twin.check()


# --- versions of the state ----------------------------------------------------------------------

ONE = bytes([9, 0, 4, 0, 1, 0, 0, 1, 1, 0])
"""Producer 9, epoch 0, touched at 4, without a name: one record, its last sequence 0, at 4."""


def loaded(state: bytes) -> Producers:
    producers = Producers(4)
    producers.load(0, state)
    return producers


def test_states_of_other_versions() -> None:
    first = b"\x01\x01" + ONE
    assert loaded(first).encode() == first
    second = b"\x02\x02\x03\x06\x00\x01\x01" + bytes([len(ONE)]) + ONE
    assert loaded(second).forgotten.to_numbers() == [5, -1, 0, 5, 0, 0, -1, -1, 0, -1, -1, 0]
    head = b"\x06\x00\x01" + b"\x06\x01\x01" + 2 * b"\x00\x00\x01"
    third = b"\x03\x02" + bytes([len(head)]) + head + b"\x01" + bytes([len(ONE)]) + ONE
    assert loaded(second).encode() == loaded(third).encode() == third
    longer = ONE + b"more"
    fourth = b"\x04\x02" + bytes([len(head) + 1]) + head + b"\x63\x01" + bytes([len(longer)])
    fourth += longer + b"behind"
    assert loaded(fourth).encode() == third, "what a later version adds is skipped"
    assert loaded(fourth).get(9).records == 1


@pytest.mark.parametrize(
    "state, error",
    [
        (b"\x04\x04\x00\x00", UnsupportedVersion),  # an older reader must not skip it
        (b"\x02\x03\x00\x00", CorruptBatch),
        (b"\x00", CorruptBatch),
        (b"\x02\x02\x03\x00\x00\x00\x00more", CorruptBatch),
        (b"\x02\x02\x03\x00\x00\x00\x01\x05" + ONE, CorruptBatch),
    ],
)
def test_states_that_are_refused(state: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match="state of producers"):
        check_producer_state(state)


@given(st.sampled_from([b"\x01", b"\x02\x02", b"\x07\x02"]), st.binary(max_size=60))
def test_any_bytes_are_a_state_or_corrupt(begin: bytes, data: bytes) -> None:
    producers = Producers(4)
    try:
        producers.load(0, begin + data)
    except CorruptBatch:
        assert len(producers) == 0
    else:
        assert loaded(producers.encode()).encode() == producers.encode()
