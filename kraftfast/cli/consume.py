"""``kraftfast consume``: committed records, as they are or as JSON lines."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any, BinaryIO

import click

from kraftfast.cli import options, reach, root
from kraftfast.record.shapes import key_bytes

FLUSH_RECORDS = 256


@click.command()
@reach.directory
@reach.bootstrap_server
@click.option(
    "--from",
    "from_offset",
    type=options.INT64,
    default=0,
    show_default=True,
    help="Offset.",
)
@click.option("--follow", is_flag=True, help="Wait for more, as long as there is a quorum.")
@click.option(
    "--count", type=click.IntRange(1, options.INT64_MAX), help="Stop after so many records."
)
@click.option(
    "--format",
    "shape",
    type=click.Choice(["value", "json"]),
    default="value",
    show_default=True,
    help="A record's value and a line feed, or a JSON object a line.",
)
@options.timeout
def consume(
    directory: str | None,
    servers: str | None,
    from_offset: int,
    follow: bool,
    count: int | None,
    shape: str,
    timeout: float,
) -> None:
    """Print the committed records of a running quorum.

    In JSON, bytes that are not UTF-8 are base64, in fields named key_base64, value_base64 and, of
    a header, name_base64.
    """
    line = json_line if shape == "json" else value_line
    if follow:
        root.end_with_reader()
    with reach.consumer(directory, servers, from_offset, follow, timeout) as consumer:
        if follow and 0 <= consumer.high_watermark < from_offset:
            what = f"the log ends at offset {consumer.high_watermark}; waiting for {from_offset}"
            click.echo(f"kraftfast: {what}", err=True)
        write(consumer, sys.stdout.buffer, line, count)


def write(consumer: Any, out: BinaryIO, line: Any, count: int | None) -> None:
    """Write records; what is there is always written before it waits for more."""
    written, follow = 0, consumer.follow
    consumer.follow = False  # it is here that is waited, with everything written
    while True:
        if follow:
            consumer.wait(None)  # also for the first record that is asked for
        for record in consumer:
            out.write(line(record))
            written += 1
            if written == count:
                out.flush()
                return
            if written % FLUSH_RECORDS == 0:
                out.flush()
        out.flush()
        if not follow:
            return


def value_line(record: Any) -> bytes:
    """Return the value alone."""
    return (record.value or b"") + b"\n"


def json_line(record: Any) -> bytes:
    """Return everything that a record has.

    >>> from kraftfast.record.shapes import Record
    >>> json_line(Record(7, 1000, None, b"x"))
    b'{"offset": 7, "timestamp": 1000, "key": null, "value": "x"}\\n'
    """
    shown = {"offset": record.offset, "timestamp": record.timestamp}
    shown |= text_or_base64("key", record.key) | text_or_base64("value", record.value)
    if record.headers:
        shown["headers"] = header_fields(record)
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def header_fields(record: Any) -> list[dict[str, str | None]]:
    """Return JSON fields for each header.

    >>> from kraftfast.record.shapes import Record
    >>> header_fields(Record(7, 1000, None, b"x", (("caf\\udce9", None),)))
    [{'name_base64': 'Y2Fm6Q==', 'value': None}]
    """
    return [
        text_or_base64("name", key_bytes(name)) | text_or_base64("value", value)
        for name, value in record.headers
    ]


def text_or_base64(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return a JSON field for bytes."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
