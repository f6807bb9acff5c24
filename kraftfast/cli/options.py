"""Options that several commands have, and the types of their values."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from kraftfast import limits
from kraftfast.core.config import Durability, FlushPolicy
from kraftfast.errors import InvalidOption, UnsupportedCodec
from kraftfast.node.event_log import FORMATS
from kraftfast.types import Address, address_from_text

UNITS = {
    "": 1,
    "B": 1,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
SIZE = re.compile(r"([0-9]{1,19})\s*([A-Za-z]*)")
INT64_MAX = 2**63 - 1
IDLE_CONNECTIONS_MAX = 20_000
"""A client has about 28,000 ports for connections to one address, by Linux's defaults."""
SECONDS_MAX = 1_000_000
"""Eleven days: longer than a caller waits, and within what every system call takes."""


class Size(click.ParamType[Any]):
    """A number of bytes within bounds: ``4096``, ``64KiB``, ``1MB``."""

    name = "size"

    def __init__(self, least: int = 0, most: int = INT64_MAX) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = SIZE.fullmatch(value.strip())
        if match is None or match[2].upper() not in UNITS:
            self.fail(f"{value!r} is no size; try 100, 64KiB or 1MiB", param, ctx)
        size = int(match[1]) * UNITS[match[2].upper()]
        if not self.least <= size <= self.most:
            self.fail(f"{value!r} is not from {self.least} to {self.most} bytes", param, ctx)
        return size


class Number(click.FloatRange):
    """A finite number within bounds: ``nan`` passes every comparison of a plain FloatRange."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return float(found)


SECONDS = Number(0.001, SECONDS_MAX)
MIB = Number(0, INT64_MAX >> 20)
TOTAL_MIB = Number(0, INT64_MAX >> 20, min_open=True)
INT64 = click.IntRange(0, INT64_MAX)
MILLISECONDS = click.IntRange(1, SECONDS_MAX * 1000)


class Existing(click.Path):
    """A path that is there. One that this user cannot reach is not told to be missing."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(exists=True, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        with suppress(OSError, ValueError):
            try:
                os.stat(value)
            except PermissionError:
                self.fail(f"{value!r} cannot be reached: Permission denied", param, ctx)
        return super().convert(value, param, ctx)


class PlacePath(click.Path):
    """A path, of which an empty variable of a shell makes none: it would be the directory here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


class Directory(PlacePath):
    """A path that can stand in the configuration of a worker, which is UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        try:
            str(path).encode()
        except UnicodeEncodeError:
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            self.fail(
                f"{shown!r} is not UTF-8, or the locale is not: try LC_ALL=C.UTF-8", param, ctx
            )
        return path


class Voters(click.ParamType[Any]):
    """How many voters."""

    name = "1|3|5|7"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value) not in ("1", "3", "5", "7"):
            self.fail(f"{value!r} is not 1, 3, 5 or 7", param, ctx)
        return int(value)


LOOPBACK = "127.0.0.1"


def listen_address(text: str) -> Address:
    """Return host and port of ``HOST:PORT``, or of ``PORT`` on 127.0.0.1. Raises ValueError."""
    if text.isascii() and text.isdecimal():
        text = f"{LOOPBACK}:{text}"
    if text.startswith(":"):
        raise ValueError(f"{text!r} names no host: {text[1:]} for this one, 0.0.0.0{text} for all")
    return address_from_text(text, 0, any_host=True)


class Listen(click.ParamType[Any]):
    """An address to listen on: as :func:`listen_address`."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        if not isinstance(value, str):
            return tuple(value)
        try:
            return listen_address(value)
        except ValueError as error:
            self.fail(str(error)[:200], param, ctx)


class Checked(click.Command):
    """A command whose options are checked together where they are read: also by a plan."""

    def __init__(
        self, *args: Any, check: Callable[[dict[str, Any]], None], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.check = check

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        try:
            self.check(ctx.params)
            if "compression" in ctx.params:
                check_compression(**ctx.params)
        except click.UsageError as error:
            error.ctx = ctx
            raise
        return rest


class Processors(click.ParamType[Any]):
    """``auto``: None; ``none``: empty; ``0,1``: these."""

    name = "auto|none|LIST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto" or not isinstance(value, str):
            return None
        if value == "none":
            return ()
        if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", value):
            self.fail(f"{value!r} is neither auto, none nor a list such as 0,1", param, ctx)
        return tuple(map(int, value.split(",")))


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

DIRECTORY = Directory(file_okay=False, path_type=str)
EXISTING = Directory(exists=True, path_type=str)


def voters(help: str, default: int | None = None) -> Decorator:
    """``--voters 1|3|5|7``"""
    return click.option("--voters", type=Voters(), default=default, help=help)


durability = click.option(
    "--durability",
    type=click.Choice([each.value for each in Durability]),
    help="What an acknowledged record has survived: the disks of a majority (default) or of all, "
    "or their memory only. Decided when the quorum is made.",
)
records = click.option(
    "--records",
    "records_mode",
    type=click.Choice(["any", "kafka-raft"]),
    help="What the log takes: any record (default), or only those of Kafka's own controllers: then "
    "the replica is a witness of theirs, that votes and acknowledges but never leads. "
    "Decided when the quorum is made.",
)
flush = click.option(
    "--flush",
    type=click.Choice([each.value for each in FlushPolicy]),
    default=FlushPolicy.ADAPTIVE.value,
    show_default=True,
    help="When the leader flushes its own log.",
)
transport = click.option(
    "--transport",
    type=click.Choice(["ring", "socket"]),
    default="ring",
    show_default=True,
    help="How replicas, and the producer, reach each other: shared memory or TCP on 127.0.0.1.",
)
idle = click.option(
    "--idle",
    type=click.Choice(["block", "hybrid", "spin", "poll"]),
    default="hybrid",
    show_default=True,
    help="How long a replica looks around before it sleeps; poll also keeps CPUs awake.",
)
processors = click.option(
    "--processors",
    type=Processors(),
    help="Which processors the voters share out, one each: all of them, if there are no more than "
    "voters (auto, the default), none: the kernel decides, or a list such as 0,1.",
)
batch_bytes = click.option(
    "--batch-bytes",
    type=Size(limits.BATCH_BYTES_LEAST, limits.BATCH_BYTES_MAX),
    default="64KiB",
    show_default=True,
    help="A batch is closed at about this size.",
)


def check_compression(compression: str, compression_level: int | None, **_others: Any) -> None:
    """Raise UsageError for a level that the codec does not have."""
    from kraftfast.record.compression import compressor_of

    try:
        compressor_of(compression, compression_level)
    except InvalidOption as error:
        raise click.UsageError(f"--compression-level: {error}") from None
    except UnsupportedCodec:
        pass  # what is measured may run where the package is


def compression(command: Any) -> Any:
    """``--compression NAME --compression-level N``"""
    named = click.option(
        "--compression",
        type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        default="none",
        show_default=True,
        help="How batches are compressed, in this process.",
    )
    level = click.option(
        "--compression-level",
        type=int,
        help="Of zstd -131072 (fastest) to 22 (3 by default), lz4 0 to 16 (0), gzip 1 to 9 (6).",
    )
    return named(level(command))


RECORD_BYTES = Size(1, limits.BATCH_BYTES_MAX - limits.BATCH_HEADER_BYTES - 64)
"""The bounds of ``kraftfast.bench.loads.inputs.InputRows``."""
SEGMENT_BYTES = Size(limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX)


def window(default: int) -> Decorator:
    """``--window W``"""
    return click.option(
        "--window",
        type=click.IntRange(1, limits.WINDOW_BATCHES_MAX),
        default=default,
        show_default=True,
        help="Batches under way at once.",
    )


def seconds(help: str, default: float) -> Decorator:
    """``--seconds S``"""
    return click.option("--seconds", type=SECONDS, default=default, show_default=True, help=help)


observers = click.option(
    "--observers",
    type=click.IntRange(0, limits.OBSERVERS_MAX),
    default=0,
    show_default=True,
    help="So many replicas without a vote fetch all records over TCP meanwhile.",
)
connections = click.option(
    "--connections",
    type=click.IntRange(0, IDLE_CONNECTIONS_MAX),
    default=0,
    show_default=True,
    help="So many TCP connections to the leader send nothing meanwhile.",
)
retained_producers = click.option(
    "--retained-producers",
    type=click.IntRange(0, limits.PRODUCERS_MAX),
    default=0,
    show_default=True,
    help="So many idempotent producers have appended before, and the replicas remember each.",
)


metrics_listen = click.option(
    "--metrics-listen",
    "metrics",
    type=Listen(),
    metavar="[HOST:]PORT",
    help="Serve /metrics for Prometheus, /healthz and /readyz there [off; HOST 127.0.0.1].",
)


def tell_not_pushed(tell: Callable[..., None]) -> None:
    """Tell that metrics are not pushed without --metrics-listen, where the environment asks for it.

    ``tell`` takes events, as ``tell(event, **fields)``.
    """
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return  # most starts need not load what reads them
    from kraftfast.live.otlp import NEEDS_LISTENER, endpoint

    if endpoint(os.environ):
        tell("otlp_off", why=NEEDS_LISTENER)


log_format = click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    help="Events on stderr, one a line, as text or JSON [text].",
)
flushes = click.option(
    "--durability",
    type=click.Choice(["majority", "memory"]),
    default="majority",
    show_default=True,
    help="With flushes before an acknowledgement, or without any.",
)
below = click.option(
    "--dir", "directory", type=DIRECTORY, help="Measure below this directory [/var/tmp]."
)
record_size = click.option(
    "--record-size",
    type=RECORD_BYTES,
    default=100,
    show_default=True,
    help="Bytes of a value.",
)
timeout = click.option(
    "--timeout",
    type=SECONDS,
    default=30.0,
    show_default=True,
    help="Seconds to wait for the quorum.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
