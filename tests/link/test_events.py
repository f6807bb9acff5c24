"""Rings of events: what is noted is read, what was overwritten is counted, off is off."""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np
import pytest

from kraftfast.bench.profiling.event_collector import LAYOUT, NAMES
from kraftfast.errors import PeerGone
from kraftfast.link.stats import ROLES, Stats
from kraftfast.link.timed_events import FILE_BYTES, HEAD_BYTES, KINDS, Events, EventsView

CAPACITY = (FILE_BYTES - HEAD_BYTES) // 32


def read(view: EventsView) -> Any:
    pieces = []
    while piece := view.read():
        pieces.append(piece)
    return np.frombuffer(b"".join(pieces), LAYOUT)


def test_an_event_has_32_bytes() -> None:
    assert LAYOUT.itemsize == 32 and CAPACITY == 65536
    assert sorted(KINDS.values()) == list(range(1, len(KINDS) + 1)) and len(NAMES) == len(KINDS)


def test_nothing_is_noted_while_nobody_reads() -> None:
    events = Events()
    view = events.view()
    events.note("queue", 1, 2, 3, 4)
    assert not events.is_on and view.read() == b""
    events.begin()
    events.begin()
    events.note("queue", 1, 2, 3, 4)
    events.end()
    assert events.is_on, "one reader is left"
    events.end()
    events.note("queue", 9, 9, 9, 9)
    assert not events.is_on
    assert read(view).tolist() == [(4, 3, 1, KINDS["queue"], 2)]


def test_a_reader_begins_with_what_comes_next() -> None:
    events = Events()
    events.begin()
    events.note("append", 1, 1, 0, 1)
    view = events.view()
    assert view.read() == b"" and view.lost == 0
    events.note("append", 2, 1, 0, 2)
    assert read(view)["offset"].tolist() == [2]


def test_what_was_overwritten_is_counted() -> None:
    events = Events()
    events.begin()
    view = events.view()
    written = CAPACITY + 1000
    for number in range(written):
        events.note("copy", number, 1, 0, number)
    found = read(view)
    assert len(found) + view.lost == written and view.lost == 1001
    assert found["offset"].tolist() == list(range(1001, written))


@pytest.mark.parametrize("damage", [(0, 1), (24, 4), (24, 1 << 60)])
def test_a_file_that_is_none_is_refused(damage: tuple[int, int]) -> None:
    whole = bytearray(Events().file.memory)
    struct.pack_into("<Q", whole, *damage)
    with pytest.raises(PeerGone):
        EventsView(bytes(whole))
    with pytest.raises(PeerGone):
        EventsView(mmap.mmap(-1, FILE_BYTES // 2))


def test_counters_note_roles_watermarks_and_flushes() -> None:
    stats = Stats()
    assert stats.recorder is None
    stats.put("role", ROLES.index("leader"))  # nobody reads
    events = stats.record()
    assert stats.record() is events and events.users == 2
    view = events.view()
    stats.put("role", ROLES.index("resigned"))
    stats.put("high_watermark", 77)
    stats.put("end_offset", 78)
    stats.flushed("leader_flush", 1000, 250, 76)
    found = [(NAMES[kind], offset) for _, _, offset, kind, _ in read(view).tolist()]
    assert found == [("role", ROLES.index("resigned")), ("high_watermark", 77), ("flush", 76)]
    assert stats.view()["high_watermark"] == 77
