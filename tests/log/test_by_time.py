"""Records by their time, against a plain search through all of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kraftfast.log.by_time import at_max_timestamp, at_timestamp
from kraftfast.log.log_start import delete_before
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Codec, Record
from tests.log.kit import TIMESTAMP, Home, append, tend_until

Place = tuple[int, int, int]


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
                found = at_timestamp(log, timestamp, end_offset)
                assert found == first_from(known, timestamp, end_offset)
            assert at_max_timestamp(log, end_offset) == largest_below(whole, end_offset)
    home.close()


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    assert at_timestamp(log, 0, log.end_offset) is None
    assert at_max_timestamp(log, log.end_offset) is None
    home.close()
