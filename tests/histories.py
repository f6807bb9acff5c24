"""What clients saw, and what must hold of it: history checkers (I23, I24).

A log's offsets give the order of versions, so every check is linear or a sort; nothing is searched.
Each checker returns the violations that it found, as text. ``tests/test_histories.py`` plants bad
histories and has each checker find its own kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

COMMITTED, FAILED, UNKNOWN = "committed", "failed", "unknown"


@dataclass(slots=True)
class Append:
    """One append of one producer. ``value`` is unique in the history; times are seconds.

    ``outcome``: ``committed`` with ``offset`` and ``acked``; ``failed``: reported as not appended;
    ``unknown``: it may or may not be in the log.
    """

    producer: str
    sequence: int
    value: bytes
    invoked: float
    outcome: str = UNKNOWN
    acked: float = -1.0
    offset: int = -1


@dataclass(slots=True)
class Poll:
    """Records that one consumer got in one go, in order: (offset, value)."""

    consumer: str
    invoked: float
    returned: float
    records: list[tuple[int, bytes]] = field(default_factory=list)


Log = Sequence[tuple[int, bytes]]
"""The data records of the log in the end, (offset, value), in order."""


def lost_writes(appends: Iterable[Append], log: Log) -> list[str]:
    """I23: an acknowledged record is in the log, where its acknowledgement said."""
    at = dict(log)
    found = []
    for append in appends:
        if append.outcome == COMMITTED and at.get(append.offset) != append.value:
            found.append(
                f"lost: {append.value!r} was acknowledged at {append.offset}, where "
                f"{at.get(append.offset)!r} is"
            )
    return found


def unasked_writes(appends: Iterable[Append], log: Log) -> list[str]:
    """I23, I24: what is in the log was appended, unchanged, and not reported as failed."""
    known = {append.value: append for append in appends}
    found = []
    for offset, value in log:
        append = known.get(value)
        if append is None:
            found.append(f"from nowhere: {value!r} at {offset}")
        elif append.outcome == FAILED:
            found.append(f"after failure: {value!r} at {offset} was reported as not appended")
    return found


def duplicates(log: Log) -> list[str]:
    """I23: no record is there twice."""
    seen: dict[bytes, int] = {}
    found = []
    for offset, value in log:
        if value in seen:
            found.append(f"twice: {value!r} at {seen[value]} and {offset}")
        seen[value] = offset
    return found


def falling(log: Log) -> list[str]:
    """Offsets of a log rise: no two records have one."""
    return [
        f"falling: {value!r} at {offset} stands behind offset {before}"
        for (before, _), (offset, value) in zip(log, log[1:])
        if offset <= before
    ]


def alike(appends: Iterable[Append]) -> list[str]:
    """Values are unique: what is known of a record in the log is found by its value."""
    seen: set[bytes] = set()
    found = []
    for append in appends:
        if append.value in seen:
            found.append(f"alike: {append.value!r} was handed over twice")
        seen.add(append.value)
    return found


def reordered(appends: Iterable[Append], log: Log) -> list[str]:
    """I23: the records of one producer stand in the order in which it handed them over."""
    known = {append.value: append for append in appends}
    last: dict[str, int] = {}
    found = []
    for offset, value in log:
        append = known.get(value)
        if append is None:
            continue
        before = last.get(append.producer, -1)
        if append.sequence < before:
            found.append(
                f"reordered: {value!r} at {offset} stands behind number {before} of "
                f"{append.producer}"
            )
        last[append.producer] = max(before, append.sequence)
    return found


def unreal_time(appends: Iterable[Append], log: Log = ()) -> list[str]:
    """Linearizable: a record acknowledged before another was handed over has the lower offset.

    The other needs no acknowledgement to be in the log.
    """
    appends, at = list(appends), {value: offset for offset, value in log}
    done = sorted((a for a in appends if a.outcome == COMMITTED), key=lambda a: a.acked)
    other = [
        replace(a, offset=at[a.value]) for a in appends if a.outcome != COMMITTED and a.value in at
    ]
    begun = sorted(done + other, key=lambda a: a.invoked)
    found: list[str] = []
    highest: Append | None = None
    index = 0
    for append in begun:
        while index < len(done) and done[index].acked < append.invoked:
            if highest is None or done[index].offset > highest.offset:
                highest = done[index]
            index += 1
        if highest is not None and highest.offset >= append.offset:
            found.append(
                f"out of time: {append.value!r} got offset {append.offset}, below "
                f"{highest.offset} of {highest.value!r}, which had been acknowledged before"
            )
    return found


def inconsistent_reads(polls: Iterable[Poll], log: Log) -> list[str]:
    """Whatever a consumer got stands there in the end too: nothing uncommitted was handed out."""
    at = dict(log)
    return [
        f"read and gone: {poll.consumer} got {value!r} at {offset}, where {at.get(offset)!r} is"
        for poll in polls
        for offset, value in poll.records
        if at.get(offset) != value
    ]


def skips(polls: Iterable[Poll], log: Log) -> list[str]:
    """Each consumer's offsets rise and leave out no record (poll-skip, nonmonotonic-poll)."""
    offsets = [offset for offset, _ in log]
    places = {offset: index for index, offset in enumerate(offsets)}
    last: dict[str, int] = {}
    found = []
    for poll in sorted(polls, key=lambda poll: poll.invoked):
        for offset, _ in poll.records:
            before = last.get(poll.consumer)
            if before is not None:
                if offset <= before:
                    found.append(f"went back: {poll.consumer} got {offset} after {before}")
                elif places.get(offset, 0) != places.get(before, 0) + 1:
                    found.append(f"skipped: {poll.consumer} got {offset} right after {before}")
            last[poll.consumer] = offset
    return found


def late_reads(appends: Iterable[Append], polls: Iterable[Poll]) -> list[str]:
    """No record was read before it was handed over."""
    known = {append.value: append for append in appends}
    return [
        f"too early: {poll.consumer} got {value!r} before it was handed over"
        for poll in polls
        for _, value in poll.records
        if value in known and known[value].invoked > poll.returned
    ]


def check(appends: Sequence[Append], log: Log, polls: Sequence[Poll] = ()) -> list[str]:
    """Everything above; empty if the history is a good one."""
    return [
        *lost_writes(appends, log),
        *unasked_writes(appends, log),
        *duplicates(log),
        *falling(log),
        *alike(appends),
        *reordered(appends, log),
        *unreal_time(appends, log),
        *inconsistent_reads(polls, log),
        *skips(polls, log),
        *late_reads(appends, polls),
    ]
