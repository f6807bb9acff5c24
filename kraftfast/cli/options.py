"""Options that several commands have, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from kraftfast.core.config import Durability, FlushPolicy

UNITS = {
    "": 1,
    "B": 1,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
SIZE = re.compile(r"(\d+)\s*([A-Za-z]*)")


class Size(click.ParamType):
    """A number of bytes: ``4096``, ``64KiB``, ``1MB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = SIZE.fullmatch(value.strip())
        if match is None or match[2].upper() not in UNITS:
            self.fail(f"{value!r} is no size; try 100, 64KiB or 1MiB", param, ctx)
        return int(match[1]) * UNITS[match[2].upper()]


class Voters(click.ParamType):
    """How many voters."""

    name = "1|3|5"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value) not in ("1", "3", "5"):
            self.fail(f"{value!r} is not 1, 3 or 5", param, ctx)
        return int(value)


class Processors(click.ParamType):
    """``auto``: None; ``none``: empty; ``0,1``: these."""

    name = "auto|none|LIST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto" or not isinstance(value, str):
            return None
        if value == "none":
            return ()
        if not re.fullmatch(r"\d+(,\d+)*", value):
            self.fail(f"{value!r} is neither auto, none nor a list such as 0,1", param, ctx)
        return tuple(map(int, value.split(",")))


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

DIRECTORY = click.Path(file_okay=False, path_type=str)


def voters(help: str, default: int | None = None) -> Decorator:
    """``--voters 1|3|5``"""
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
    type=Size(),
    default="64KiB",
    show_default=True,
    help="A batch is closed at about this size.",
)


def window(default: int) -> Decorator:
    """``--window W``"""
    return click.option(
        "--window",
        type=click.IntRange(1, 32767),
        default=default,
        show_default=True,
        help="Batches under way at once.",
    )


timeout = click.option(
    "--timeout",
    type=click.FloatRange(min=0.001),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the quorum.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
