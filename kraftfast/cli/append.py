"""``kraftfast append``: lines become records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options, reach
from kraftfast.cli.root import Terminated

if TYPE_CHECKING:
    from kraftfast.bench.loads.load import LoadSettling

LOOK_RECORDS = 4096  # of so many, each a batch, the outcomes are known still
LAST_WAIT_S = 1.0  # for the lines under way, once a command is to end
COMMITTED = "are committed all the same"
NOTHING = "; nothing was appended"  # says a failure, of its own lines


@click.command()
@click.argument("file", default="-")
@reach.directory
@reach.bootstrap_server
@click.option(
    "--key-separator", metavar="TEXT", help="The text before it in a line is the record's key."
)
@options.compression
@options.timeout
@options.as_json
def append(
    file: str,
    directory: str | None,
    servers: str | None,
    key_separator: str | None,
    timeout: float,
    as_json: bool,
    **compression: Any,
) -> None:
    """Append the lines of a file to a running quorum.

    Each line of FILE (stdin if it is - or not given) becomes a record, without its line feed.
    Prints their offsets once all of them are committed.
    """
    from kraftfast.bench.loads.inputs import open_input, read_lines
    from kraftfast.bench.loads.load import LoadSettling, append_all

    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    name = "stdin" if file == "-" else file
    with open_input(file) as lines:
        producer = reach.producer(directory, servers, timeout, **compression)
        chunks, settling = read_lines(lines, name), LoadSettling(producer)
        with telling_committed(settling, timeout), letting_go(producer, timeout):
            if key_separator is None:
                append_all(producer, chunks, timeout=timeout, settling=settling)
            else:
                separator = os.fsencode(key_separator)
                append_keyed(producer, chunks, separator, name, timeout, settling)
    if settling.handed_over == 0:
        from kraftfast.errors import InputError

        raise InputError(f"{name} is empty: there is nothing to append")
    records, first, last = settling.committed, settling.first_offset, settling.last_offset
    told = {"records": records, "first_offset": first, "last_offset": last}
    text = f"{records} records committed, offsets {first} to {last}"
    if records == 1:
        text = f"1 record committed, offset {first}"
    try:
        click.echo(json.dumps(told) if as_json else text)
    except OSError:  # a caller that tries again would append them twice
        click.echo(f"kraftfast: {text}", err=True)
        raise


@contextmanager
def letting_go(producer: Any, timeout: float) -> Iterator[None]:
    """Close the producer at the end, so that every line that it took has an outcome.

    After a line that cannot be appended those before it are waited for; after a failure of the
    quorum, which had its time, and after Ctrl-C not for long.
    """
    from kraftfast.errors import NoQuorum, TimedOut, UnknownOutcome

    left = LAST_WAIT_S
    try:
        yield
        left = timeout
    except Exception as error:
        if not isinstance(error, (NoQuorum, TimedOut, UnknownOutcome)):
            left = timeout
        raise
    finally:
        producer.close(timeout=left)


@contextmanager
def telling_committed(settling: LoadSettling, timeout: float) -> Iterator[None]:
    """Let a failure, or Ctrl-C, say what became of the lines that were handed over.

    A caller that tries again with the whole input would append the committed ones twice. Raises
    UnknownOutcome instead of another failure of the quorum if some of them are in doubt.
    """
    from kraftfast.errors import InputError, KraftfastError, RecordTooLarge, UnknownOutcome

    try:
        try:
            yield
        except (InputError, RecordTooLarge):  # of the input: the lines before it are under way
            settling.finish(timeout)
            raise
    except KraftfastError as error:
        settling.look()
        told_later = error is settling.failure  # by a leader, which has those behind it, too
        by_input = isinstance(error, InputError | RecordTooLarge) and not told_later
        parts = outcomes_of(settling, "before it were appended" if by_input else COMMITTED)
        text = str(error).removesuffix(NOTHING) if parts else str(error)
        error.args = ("; ".join((text, *parts)),)
        if in_doubt(settling) and not (by_input or isinstance(error, UnknownOutcome)):
            raise UnknownOutcome(*error.args) from error
        raise
    except (KeyboardInterrupt, Terminated) as error:
        settling.look()
        how = "interrupted" if isinstance(error, KeyboardInterrupt) else "told to end"
        parts = outcomes_of(settling, COMMITTED) or ["nothing is appended"]
        click.echo(f"kraftfast: {'; '.join((how, *parts))}", err=True)
        raise


def in_doubt(settling: LoadSettling) -> int:
    """Return how many lines may be committed or not."""
    return settling.in_doubt.count + len(settling.unresolved)


def outcomes_of(settling: LoadSettling, how: str) -> list[str]:
    """Say what became of the lines, nothing if none of them is or may be committed.

    ``how``: of those that are committed.
    """
    doubtful = [*settling.in_doubt.runs, *filter(None, (settling.unresolved,))]
    if not settling.committed and not doubtful:
        return []
    parts = []
    if settling.refused.count:
        parts.append(f"not appended: {lines_of(settling.refused.runs, settling.refused.count)}")
    if doubtful:
        parts.append(f"committed or not: {lines_of(doubtful, in_doubt(settling))}")
    if settling.failure is not None or not settling.committed:
        parts.append(f"nothing behind line {settling.handed_over} was handed over")
    if settling.committed:
        where = f"offsets {settling.first_offset} to {settling.last_offset}"
        parts.append(f"{settling.committed} lines {how}, {where}")
    return parts


def lines_of(runs: list[range], count: int) -> str:
    """Return the numbers of lines, from 1, as they are told.

    >>> lines_of([range(0, 1), range(4, 9)], 6), lines_of([range(3)], 5)
    ('lines 1, 5 to 9', 'lines 1 to 3 and 2 more')
    """
    spans = [f"{run[0] + 1} to {run[-1] + 1}" if len(run) > 1 else f"{run[0] + 1}" for run in runs]
    more = count - sum(map(len, runs))
    return f"lines {', '.join(spans)}" + (f" and {more} more" if more else "")


def append_keyed(
    producer: Any, chunks: Any, separator: bytes, name: str, timeout: float, settling: LoadSettling
) -> None:
    """Append lines that have a key each. Raises InputError at the first that has none."""
    from kraftfast.errors import InputError

    number = 0
    for chunk in chunks:
        for start, end in zip(chunk.offsets[:-1].tolist(), chunk.offsets[1:].tolist()):
            key, found, value = chunk.source[start:end].partition(separator)
            if not found:
                raise InputError(f"line {number + 1} of {name} has no {os.fsdecode(separator)!r}")
            producer.append(value, key=key, timeout=timeout)
            number += 1
            if number % LOOK_RECORDS == 0:
                settling.check()
    settling.finish(timeout)
