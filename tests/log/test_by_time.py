"""Records by their time, against a plain search through all of them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraftfast.log.reading.by_time import COST_MAX, Found, Search, at_max_timestamp, at_timestamp
from kraftfast.log.snapshots.log_start import delete_before
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Codec, Record
from tests.log.kit import TIMESTAMP, Home, append, tend_until

Place = tuple[int, int, int]


def found_in(search: Search) -> tuple[Found | None, list[int]]:
    """What a search finds, and what each of its turns cost."""
    costs = []
    while True:
        try:
            costs.append(next(search))
        except StopIteration as done:
            assert max(costs, default=0) <= 1 + COST_MAX
            return done.value, costs


def found_by(search: Search) -> Found | None:
    return found_in(search)[0]


def first_from(places: list[Place], timestamp: int, end_offset: int) -> Place | None:
    """The plain search for ``at_timestamp``."""
    found = next((place for place in places if place[1] >= timestamp), None)
    return found if found is not None and found[0] < end_offset else None


def largest_below(places: list[Place], end_offset: int) -> Place | None:
    """The plain search for ``at_max_timestamp``."""
    known = [place for place in places if place[0] < end_offset]
    return max(known, key=lambda place: (place[1], -place[0]), default=None)


def a_log(home: Home, random: Random, batches: int) -> tuple[list[Place], list[int]]:
    """A log of several segments and epochs: its records, and the ends of its batches."""
    log = home.open(segment_bytes=1 << 20, stride_bytes=1 << 20)
    places, ends = [], []
    for number in range(batches):
        epoch = 1 + number // 7
        times = [TIMESTAMP + random.randrange(60) for _ in range(random.randrange(1, 5))]
        records = [
            Record(i, time, None, bytes(random.randrange(3000))) for i, time in enumerate(times)
        ]
        codec = random.choice([Codec.NONE, Codec.ZSTD])
        start = append(log, encode_batch(records, codec=codec), epoch)
        places += [(start + i, time, epoch) for i, time in enumerate(times)]
        ends.append(log.end_offset)
        if random.random() < 0.1:
            tend_until(log, log.roll)
    return places, ends


@pytest.mark.parametrize("seed", range(8))
def test_records_by_time(tmp_path: Path, seed: int) -> None:
    """At every committed end, and with the log beginning in a segment's middle."""
    random = Random(seed)
    home = Home(tmp_path)
    places, ends = a_log(home, random, 40)
    log = home.log
    for start_offset in (0, places[len(places) // 3][0]):
        if start_offset:
            delete_before(log, start_offset)
        known = [place for place in places if place[0] >= log.log_start_offset]
        first_whole = min(each for each in (0, *ends) if each >= log.log_start_offset)
        whole = [place for place in known if place[0] >= first_whole]
        for end_offset in ends:
            for timestamp in range(TIMESTAMP - 1, TIMESTAMP + 62, 3):
                found = found_by(at_timestamp(log, timestamp, end_offset))
                assert found == first_from(known, timestamp, end_offset)
            assert found_by(at_max_timestamp(log, end_offset)) == largest_below(whole, end_offset)
    home.close()


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    assert found_by(at_timestamp(log, 0, log.end_offset)) is None
    assert found_by(at_max_timestamp(log, log.end_offset)) is None
    home.close()


# --- what it costs ------------------------------------------------------------------------------


def log_of(home: Home, times: list[int]) -> Any:
    """A log with a batch of one record for each of these times."""
    log = home.open(segment_bytes=4 << 20, stride_bytes=4 << 20)
    made = {time: encode_batch([Record(0, time, None, b"")]) for time in set(times)}
    for time in times:
        append(log, made[time], 1)
    return log


MANY = 20_000
"""Batches, of 69 bytes each; the index has an entry every 60 of them."""


def test_times_that_do_not_rise_cost_little(tmp_path: Path) -> None:
    """One record of the future in front kept the index from leading anywhere: all was walked."""
    home = Home(tmp_path)
    times = [TIMESTAMP + 100] + [TIMESTAMP + 50] * MANY + [TIMESTAMP + 200, TIMESTAMP + 100]
    log = log_of(home, times)
    end = log.end_offset
    later = (MANY + 1, TIMESTAMP + 200, 1)
    first = (0, TIMESTAMP + 100, 1)
    for search, expected in (
        (at_timestamp(log, TIMESTAMP + 150, end), later),
        (at_timestamp(log, TIMESTAMP + 100, end), first),
        (at_timestamp(log, TIMESTAMP + 201, end), None),
        (at_timestamp(log, TIMESTAMP + 150, end - 2), None),
        (at_max_timestamp(log, end), later),
        (at_max_timestamp(log, end - 1), later),
        (at_max_timestamp(log, end - 2), first),
        (at_max_timestamp(log, MANY // 2), first),
    ):
        found, costs = found_in(search)
        assert found == expected and sum(costs) < 200, costs
    home.close()


def test_no_times_cost_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = log_of(home, [-1] * MANY + [TIMESTAMP] + [-1] * MANY)
    for end, expected in ((MANY, None), (log.end_offset, (MANY, TIMESTAMP, 1))):
        for search in (at_max_timestamp(log, end), at_timestamp(log, TIMESTAMP, end)):
            found, costs = found_in(search)
            assert found == expected and sum(costs) < 200, costs
    home.close()


def test_what_must_be_walked_is_walked_by_turns(tmp_path: Path) -> None:
    """The log begins behind the latest record of a segment, of which the index tells alone."""
    home = Home(tmp_path)
    log = log_of(home, [TIMESTAMP + 300] + [TIMESTAMP + 50] * MANY + [TIMESTAMP + 200])
    delete_before(log, 1)
    later = (MANY + 1, TIMESTAMP + 200, 1)
    for search in (
        at_timestamp(log, TIMESTAMP + 150, log.end_offset),
        at_max_timestamp(log, log.end_offset),
    ):
        found, costs = found_in(search)
        assert found == later and len(costs) >= MANY // COST_MAX
    home.close()


def test_a_log_that_loses_its_beginning_meanwhile(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = log_of(home, [TIMESTAMP + 300, TIMESTAMP + 250] + [TIMESTAMP] * MANY)
    delete_before(log, 1)
    for search in (
        at_max_timestamp(log, log.end_offset),
        at_timestamp(log, TIMESTAMP + 1, log.end_offset),
    ):
        next(search)
        delete_before(log, min(log.log_start_offset + 1, MANY))
        found = found_by(search)
        assert found is None or found[0] in (1, log.log_start_offset), found
    log.close()
    home.close()


@pytest.mark.parametrize("seed", range(6))
def test_small_batches_by_time(tmp_path: Path, seed: int) -> None:
    """Where the index leads: dozens of batches between its entries, times that rise or do not."""
    random = Random(seed)
    home = Home(tmp_path)
    time, times = TIMESTAMP, []
    while len(times) < 900:
        step = random.choice([0, 0, 1, -1, -(10**15)])
        for _ in range(random.randrange(1, 150)):
            times.append(max(time := max(time, TIMESTAMP) + step, -1))
        time = random.choice([time, TIMESTAMP + random.randrange(60), max([0, *times])])
    log = log_of(home, times)
    for start_offset in (0, random.randrange(len(times) - 100), len(times) - 100):
        delete_before(log, start_offset)
        places = [(i, each, 1) for i, each in enumerate(times) if i >= start_offset]
        for _ in range(60):
            end = random.randrange(start_offset, len(times) + 1)
            wanted = random.choice(times) + random.randrange(-1, 2)
            wanted = max(wanted, 0)
            assert found_by(at_timestamp(log, wanted, end)) == first_from(places, wanted, end)
            largest = largest_below(places, end)
            largest = largest if largest and largest[1] >= 0 else None
            assert found_by(at_max_timestamp(log, end)) == largest
    home.close()
