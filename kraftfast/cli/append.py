"""``kraftfast append``: lines become records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options, reach

if TYPE_CHECKING:
    from kraftfast.bench.load import Settling

LOOK_RECORDS = 4096  # of so many, each a batch, the outcomes are known still


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
    from kraftfast.bench.inputs import open_input, read_lines
    from kraftfast.bench.load import Settling, append_all

    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    name = "stdin" if file == "-" else file
    made = reach.producer(directory, servers, timeout, **compression)
    with open_input(file) as lines, made as producer:
        chunks, settling = read_lines(lines, name), Settling(producer)
        with telling_committed(settling, timeout):
            if key_separator is None:
                append_all(producer, chunks, timeout=timeout, settling=settling)
            else:
                separator = os.fsencode(key_separator)
                append_keyed(producer, chunks, separator, name, timeout, settling)
        outcomes = producer.outcomes
        if outcomes.next_ticket == 0:
            from kraftfast.errors import InputError

            raise InputError(f"{name} is empty: there is nothing to append")
        first, last = settling.first_offset, outcomes.offset_of(outcomes.next_ticket - 1)
    told = {"records": outcomes.next_ticket, "first_offset": first, "last_offset": last}
    text = f"{outcomes.next_ticket} records committed, offsets {first} to {last}"
    try:
        click.echo(json.dumps(told) if as_json else text)
    except OSError:  # a caller that tries again would append them twice
        click.echo(f"kraftfast: {text}", err=True)
        raise


@contextmanager
def telling_committed(settling: Settling, timeout: float) -> Iterator[None]:
    """Let a failure say how many lines are committed all the same.

    A caller that tries again with the whole input would append them twice.
    """
    from kraftfast.errors import InputError, KraftfastError, RecordTooLarge

    try:
        try:
            yield
        except (InputError, RecordTooLarge):  # of the input: the lines before it are under way
            settling.finish(timeout)
            raise
    except KraftfastError as error:
        settling.look()
        if settling.committed:
            told_later = error is settling.failure  # by a leader, which has those behind it, too
            by_input = isinstance(error, InputError | RecordTooLarge) and not told_later
            how = "before it were appended" if by_input else "are committed all the same"
            where = f"offsets {settling.first_offset} to {settling.last_offset}"
            error.args = (f"{error}; {settling.committed} lines {how}, {where}",)
        raise


def append_keyed(
    producer: Any, chunks: Any, separator: bytes, name: str, timeout: float, settling: Settling
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
                settling.look()
    settling.finish(timeout)
