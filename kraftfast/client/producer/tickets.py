"""Runs of tickets: what a callback is given, and the offsets of records appended together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from kraftfast.arguments import header_pairs
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import Closed, KraftfastError, UnknownOutcome

if TYPE_CHECKING:
    from typing_extensions import Buffer


Value: TypeAlias = "Buffer | None"
"""What a value, a key or a header's value is made of; None is null."""


class RecordFields(TypedDict, total=False):
    """What a record may have beside its value, as :meth:`Producer.append` takes it."""

    key: Value
    headers: Iterable[tuple[str, Value]]
    timestamp: int | None


FIELDS = frozenset(RecordFields.__annotations__)


class TicketedBatch:
    """Records that were resolved together: tickets from ``first_ticket`` up to ``end_ticket``.

    ``base_offset`` is the offset of the first, the others follow; -1 if they failed: then ``error``
    says why.
    """

    __slots__ = ("first_ticket", "end_ticket", "base_offset", "error")

    def __init__(
        self, first_ticket: int, end_ticket: int, base_offset: int, error: Exception | None
    ) -> None:
        self.first_ticket, self.end_ticket = first_ticket, end_ticket
        self.base_offset, self.error = base_offset, error

    def __repr__(self) -> str:
        return (
            f"TicketedBatch(first_ticket={self.first_ticket}, end_ticket={self.end_ticket}, "
            f"base_offset={self.base_offset}, error={self.error!r})"
        )


def resolved_batches(outcomes: Outcomes, first: int) -> list[TicketedBatch]:
    """Return what became of the resolved tickets from ``first`` on."""
    try:
        return [TicketedBatch(*run) for run in outcomes.runs(first, outcomes.resolved)]
    except UnknownOutcome:
        late = UnknownOutcome("called back too late: what became of them is forgotten")
        return [TicketedBatch(first, outcomes.first_known, -1, late)]


def raise_left(outcomes: Outcomes, left_from: int | None, last: int) -> None:
    """Raise what became of records that a close found without an answer: UnknownOutcome, or Closed
    if none of them ever left.

    ``left_from``: the first of them, None without a close; ``last``: no later ticket counts.
    """
    if left_from is None:
        return
    left = resolved_batches(outcomes, left_from)
    errors = [each.error for each in left if each.first_ticket <= last]
    for kind in (UnknownOutcome, Closed):
        for error in errors:
            if isinstance(error, kind):
                raise error


def check_fields(fields: RecordFields) -> None:
    """Look at what a record has beside its value, before it is tried more than once.

    Headers become a tuple: an iterator would be used up by the first try. Raises InvalidOption,
    TypeError for an unknown name.
    """
    if not fields:
        return
    if unknown := fields.keys() - FIELDS:
        raise TypeError(f"append() got an unexpected keyword argument {min(unknown)!r}")
    if "headers" in fields:
        fields["headers"] = header_pairs(fields["headers"])


def add_tickets(tickets: list[range], first: int, count: int) -> None:
    """Add tickets to ranges of them, the last of which may grow."""
    if not count:
        return
    if tickets and tickets[-1].stop == first:
        tickets[-1] = range(tickets[-1].start, first + count)
    else:
        tickets.append(range(first, first + count))


def cut_short(tickets: list[range], count: int, error: KraftfastError) -> UnknownOutcome:
    """Return what to raise where ``error`` came after some of ``count`` records were handed out."""
    done = sum(map(len, tickets))
    return unknown_of(tickets, f"{done} of {count} records were handed over: {error}")


def unknown_of(tickets: list[range], text: str) -> UnknownOutcome:
    """Return the error for records of which each ticket has an outcome of its own."""
    unknown = UnknownOutcome(text)
    unknown.handed_over, unknown.tickets = sum(map(len, tickets)), tickets
    return unknown


@contextmanager
def naming(tickets: list[range]) -> Iterator[None]:
    """Have an UnknownOutcome that is raised meanwhile name these: all were handed over (D24)."""
    try:
        yield
    except UnknownOutcome as error:
        raise unknown_of(tickets, str(error)) from None


def offsets_of(outcomes: Outcomes, tickets: list[range]) -> range | list[int]:
    """Return the offsets of resolved tickets, in order.

    Raises the failure of the first that failed if none of them is in the log, else UnknownOutcome:
    a failure of one says nothing of the others (D24).
    """
    try:
        runs = [run for each in tickets for run in outcomes.runs(each.start, each.stop)]
    except UnknownOutcome as error:  # so many that the first ones are forgotten
        raise unknown_of(tickets, str(error)) from None
    failures = [failure for _, _, _, failure in runs if failure is not None]
    if failures:
        certain = not any(isinstance(failure, UnknownOutcome) for failure in failures)
        if certain and len(failures) == len(runs):
            raise failures[0]
        count = sum(map(len, tickets))
        raise unknown_of(tickets, f"not all of {count} records were acknowledged: {failures[0]}")
    parts = [range(base, base + end - first) for first, end, base, _ in runs]
    if all(one.stop == other.start for one, other in zip(parts, parts[1:])):
        return range(parts[0].start, parts[-1].stop) if parts else range(0)
    return [offset for part in parts for offset in part]
