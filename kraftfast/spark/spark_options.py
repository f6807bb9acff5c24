"""The options of sources and sinks, by name; Spark hands them over as text, in any case."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from kraftfast.errors import InvalidOption
from kraftfast.types import METADATA_TOPIC, address_from_text

SPLIT_BYTES = 64 * 1024 * 1024
BATCH_ROWS = 64 * 1024
BATCH_BYTES = 1024 * 1024  # as it passes through a processor's cache; profiles/README.md
SINK_BATCH_BYTES = 256 * 1024
TIMEOUT_S = 30.0

WHERE = ("path", "bootstrap.servers", "topic", "timeout")
READING = (
    "columns", "startOffset", "endOffset", "verifyCrc", "onCorrupt", "splitBytes", "batchRows",
    "controlRecords", "pushFilters", "includeUncommitted", "compacted",
    "isolationLevel",
)  # fmt: skip
FOLLOWING = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss")
WRITING = ("batchBytes", "compression", "producerName", "writeMode", "stagingDir", "neverRun")
SPARKS = (
    "checkpointLocation", "queryName", "outputMode", "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
)  # fmt: skip
"""Options of a query that Spark hands to its sink too."""
MAY_BE_EMPTY = {"path", "bootstrap.servers", *map(str.lower, SPARKS)}
"""By their lower-case names."""
LOG_OPTIONS = WHERE + READING + FOLLOWING + WRITING + SPARKS
SINK_OPTIONS = WHERE + WRITING + SPARKS
BATCHES_OPTIONS = ("path", "splitBytes", "verifyCrc")
SNAPSHOT_OPTIONS = ("path", "columns", "verifyCrc", "batchRows", "controlRecords")

WRITE_MODES = ("staged", "direct")
CODECS = ("none", "zstd", "lz4", "gzip", "snappy")
ON_CORRUPT = ("fail", "skip", "report")
COLUMNS = ("full", "meta")
ISOLATION = ("read_committed", "read_uncommitted")
WORDS = {"auto": None, "true": True, "false": False}
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
OF_TABLES = frozenset(
    {"owner", "provider", "comment", "collation", "external", "is_managed_location"}
)
"""What the catalog adds to the options of a table: it is not for us."""


class Given:
    """Options as they were given, asked for one by one. Raises InvalidOption for one not known."""

    # values: text by lower-case name.

    def __init__(self, options: Mapping[str, Any], known: Iterable[str], source: str) -> None:
        names = {name.lower(): name for name in known}
        self.values: dict[str, str] = {}
        for name, value in options_of_a_table(dict(options)).items():
            if name.lower() not in names:
                near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
                hint = f"; did you mean {names[near[0]]}?" if near else ""
                raise InvalidOption(f"{source} has no option {name!r}{hint}")
            if "\0" in str(value):
                raise InvalidOption(f"{name}={str(value)!r} has a zero byte")
            if value is not None:
                if not str(value).strip() and name.lower() not in MAY_BE_EMPTY:
                    raise InvalidOption(f"{name} is empty")
                self.values[name.lower()] = str(value).strip()

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name.lower(), default)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of some words, in any case; the first is the default."""
        value = self.text(name, allowed[0]).lower()
        if value not in allowed:
            raise InvalidOption(f"{name}={value!r}: it is one of {', '.join(allowed)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise InvalidOption(f"{name}={value!r}: it is true or false")
        return value == "true"

    def number(self, name: str, default: int | None, least: int, most: int = 2**63 - 1) -> Any:
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            raise InvalidOption(f"{name}={text!r} is no whole number") from None
        if not least <= value <= most:
            raise InvalidOption(f"{name}={value}: it is from {least} to {most}")
        return value

    def check_topic(self, path: str) -> None:
        if path and "topic" in self.values:
            raise InvalidOption("topic goes with bootstrap.servers: a path names its one log")

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e6:
            raise InvalidOption(f"{name}={text!r} is no number of seconds")
        return value


def options_of_a_table(options: dict[str, Any]) -> dict[str, Any]:
    """Drop what the catalog adds to a table's options; its location is the path.

    It has them a second time as ``option.NAME``. A location that the catalog chose by itself is a
    directory in its warehouse, and says nothing.
    """
    kept = {
        name: value
        for name, value in options.items()
        if name.lower() not in OF_TABLES and not name.lower().startswith("option.")
    }
    location = next((kept.pop(name) for name in list(kept) if name.lower() == "location"), None)
    managed = str(options.get("is_managed_location", "false")).lower() == "true"
    servers = any(name.lower() == "bootstrap.servers" for name in kept)
    elsewhere = managed or servers or any(name.lower() == "path" for name in kept)
    if location is not None and not elsewhere:
        kept["path"] = location
    return kept


@dataclass(frozen=True, slots=True)
class SparkLogOptions:
    """What is read, from where, and how."""

    path: str
    """A replica's directory, a log's, a segment, a quorum's on this host, a glob of any; or ""."""
    servers: str
    """``host:port,...`` of a running quorum; or ""."""
    topic: str
    timeout: float
    """Seconds that a quorum is waited for."""
    contents: bool
    """Keys, values and headers too (``columns=full``)."""
    start_offset: int | None
    """None: from the earliest. -1: from the latest (a stream's only)."""
    end_offset: int | None
    verify_crc: bool
    on_corrupt: str
    split_bytes: int
    batch_rows: int
    control: bool
    """Records of control batches too."""
    push_filters: bool
    """Let Spark push filters down: only for a data frame that one query is made of."""
    records_per_trigger: int | None
    bytes_per_trigger: int | None
    fail_on_data_loss: bool
    uncommitted: bool
    """Of directories that no process runs, what may never have been committed too."""
    compacted: bool | None
    """Whether offsets may be missing; None: where a Kafka broker says so."""
    aborted: bool
    """Records of transactions that were aborted, or have not ended, too."""

    @classmethod
    def of(cls, options: Mapping[str, Any], known: Iterable[str], source: str) -> SparkLogOptions:
        """Raises InvalidOption."""
        given = Given(options, known, source)
        path, servers = local_path(given.text("path")), given.text("bootstrap.servers")
        if bool(path) == bool(servers):
            both = "bootstrap.servers" in known
            wanted = "either a path or bootstrap.servers" if both else "a path"
            raise InvalidOption(f"{source} wants {wanted}")
        if servers:
            check_servers(servers)
        given.check_topic(path)
        start, end = _start(given), _end(given)
        if start is not None and end is not None and start > end:
            raise InvalidOption(f"startOffset={start} is beyond endOffset={end}")
        return cls(
            path=path,
            servers=servers,
            topic=given.text("topic", METADATA_TOPIC),
            timeout=given.seconds("timeout", TIMEOUT_S),
            contents=given.choice("columns", COLUMNS) == "full",
            start_offset=start,
            end_offset=end,
            verify_crc=given.flag("verifyCrc", True),
            on_corrupt=given.choice("onCorrupt", ON_CORRUPT),
            split_bytes=given.number("splitBytes", SPLIT_BYTES, 4096),
            batch_rows=given.number("batchRows", BATCH_ROWS, 1, 1 << 22),
            control=given.flag("controlRecords", False),
            push_filters=given.flag("pushFilters", False),
            records_per_trigger=given.number("maxRecordsPerTrigger", None, 1),
            bytes_per_trigger=given.number("maxBytesPerTrigger", None, 1),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            uncommitted=given.flag("includeUncommitted", False),
            compacted=WORDS[given.choice("compacted", tuple(WORDS))],
            aborted=given.choice("isolationLevel", ISOLATION) == "read_uncommitted",
        )


def local_path(text: str) -> str:
    """Return a path, of a URI of the scheme ``file`` too. Raises InvalidOption for any other
    scheme.

    >>> local_path("file:///srv/log"), local_path("quorum/1")
    ('/srv/log', 'quorum/1')
    """
    found = SCHEME.match(text)
    if found is None:
        return text
    parts = urlsplit(text)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
        raise InvalidOption(
            f"{text} is not on this file system: logs are read, and Parquet is written, where "
            "every executor has a path to it, as a mounted folder"
        )
    return unquote(parts.path)


def check_servers(text: str) -> None:
    """Check the addresses of ``bootstrap.servers`` before anything starts. Raises InvalidOption.

    >>> check_servers("localhost")
    Traceback (most recent call last):
    kraftfast.errors.InvalidOption: bootstrap.servers: 'localhost' is not host:port, with a port \
from 1 to 65535
    """
    for part in text.split(","):
        try:
            address_from_text(part.strip())
        except ValueError as error:
            raise InvalidOption(f"bootstrap.servers: {error}") from None


def _start(given: Given) -> int | None:
    text = given.text("startOffset", "earliest").lower()
    if text == "latest":
        return -1
    start: int | None = None if text == "earliest" else given.number("startOffset", None, 0)
    return start


def _end(given: Given) -> int | None:
    if given.text("endOffset", "latest").lower() == "latest":
        return None
    end: int = given.number("endOffset", None, 0)
    return end
