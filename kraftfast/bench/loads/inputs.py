"""Records to append, in pieces that a producer takes at once; and how to know them again.

Both kinds of input are read twice, never held whole: first to append them, then (by ``checker``)
against what came back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from kraftfast import limits
from kraftfast.errors import InputError, InvalidOption, RecordTooLarge

CHUNK_BYTES = 4 * 1024 * 1024
ROWS_BYTES = 1024 * 1024  # stays in a cache, as the value of the floor does
NUMBER_BYTES = 8
BLOCK_RECORDS = 1 << 16
RECORD_BYTES_MAX = limits.BATCH_BYTES_MAX - limits.BATCH_HEADER_BYTES - 64
"""A record that fills a whole batch of its own."""

DIFFER = "records {}-{} are not those that were appended"


class Chunk(NamedTuple):
    """Values one behind the other: ``count`` rows of a matrix, or a blob with n + 1 ``offsets``."""

    source: Any
    offsets: Any
    count: int  # type: ignore[assignment]  # and no method, as a tuple has
    value_bytes: int


class Checker:
    """Takes what was read back, in order; ``finish`` says what is wrong with it, "" if nothing."""

    def take(self, columns: Any) -> None:
        """Take the next records."""
        raise NotImplementedError

    def skip(self, records: int) -> None:
        """Drop so many of the first records; before any is taken."""
        raise NotImplementedError

    def finish(self) -> str:
        """End, after the last record."""
        raise NotImplementedError


class InputRows:
    """``count`` generated records of ``size`` bytes: random rows, in a cycle.

    ``numbered``: each record begins with its number, from ``first_number`` on. ``json``: rows look
    like JSON with random numbers, so that they can be compressed. ``count`` None: without end.
    Raises InvalidOption.
    """

    # rows: the cycle, (n, size) bytes. numbered: the first bytes of a row are its record's number.

    def __init__(
        self,
        count: int | None,
        size: int,
        *,
        numbered: bool = False,
        first_number: int = 0,
        json: bool = False,
    ) -> None:
        if not 1 <= size <= RECORD_BYTES_MAX:
            raise InvalidOption(f"a record has from 1 to {RECORD_BYTES_MAX} bytes, not {size}")
        if count is not None and count < 1:
            raise InvalidOption(f"at least 1 record, not {count}")
        self.count, self.size = count, size
        self.numbered = numbered and size >= NUMBER_BYTES
        self.first_number = first_number
        n = max(1, ROWS_BYTES // size)
        n = n if count is None else min(n, count)
        self.rows = np.random.default_rng(2026).integers(0, 256, (n, size), dtype=np.uint8)
        if json:
            self.rows = as_json(self.rows)

    @property
    def value_bytes(self) -> int | None:
        """Bytes of all values; None without end."""
        return None if self.count is None else self.count * self.size

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records in order. A chunk is valid until the next one is asked for."""
        first, n = 0, len(self.rows)
        while self.count is None or first < self.count:
            rows = self.rows if self.count is None else self.rows[: min(n, self.count - first)]
            self._number(rows, first)
            yield Chunk(rows, None, len(rows), rows.size)
            first += len(rows)

    def _number(self, rows: Any, first: int) -> None:
        if self.numbered:
            first += self.first_number
            numbers = np.arange(first, first + len(rows), dtype=">u8")
            rows[:, :NUMBER_BYTES] = numbers.view(np.uint8).reshape(-1, NUMBER_BYTES)

    def checker(self, count: int | None = None) -> Checker:
        """Return a checker for what came back, from the first on; ``count``: those appended."""
        return _RowsChecker(self, self.count if count is None else count)


def as_json(rows: Any) -> Any:
    """Return rows of the same size that look like JSON; their numbers are from the random bytes."""
    row = bytearray(b"{")
    while len(row) < rows.shape[1]:
        row += f'"field_{len(row):05d}": #######.##, "text_{len(row)}": "of a record", '.encode()
    template = np.frombuffer(bytes(row[: rows.shape[1]]), np.uint8)
    return np.where(template == ord("#"), ord("0") + rows % 10, template).astype(np.uint8)


class _RowsChecker(Checker):
    # done: records taken, of `count`. problem: the first one met.

    def __init__(self, rows: InputRows, count: int | None) -> None:
        self.rows, self.count, self.done, self.problem = rows, count, 0, ""

    def take(self, columns: Any) -> None:
        if self.problem:
            return
        count, size = len(columns), self.rows.size
        offsets = columns.values.offsets
        fits = columns.values.null_count == 0 and bool((np.diff(offsets) == size).all())
        if fits:
            data = np.asarray(columns.values.data)[offsets[0] : offsets[-1]].reshape(count, size)
            fits = self._same(data)
        if not fits:
            self.problem = DIFFER.format(self.done, self.done + count - 1)
        self.done += count

    def skip(self, records: int) -> None:
        assert not self.done
        self.done = records

    def _same(self, data: Any) -> bool:
        cycle, at = self.rows.rows, self.done
        while len(data):
            start = at % len(cycle)
            part, data = data[: len(cycle) - start], data[len(cycle) - start :]
            expected = cycle[start : start + len(part)]
            skip = NUMBER_BYTES if self.rows.numbered else 0
            if not np.array_equal(part[:, skip:], expected[:, skip:]):
                return False
            if skip:
                numbers = np.arange(at, at + len(part), dtype=">u8").view(np.uint8)
                if not np.array_equal(part[:, :skip], numbers.reshape(-1, skip)):
                    return False
            at += len(part)
        return True

    def finish(self) -> str:
        if not self.problem and self.done != self.count:
            return f"{self.done} records came back of {self.count}"
        return self.problem


class Lines:
    """The lines of a file, without their line feeds; ``-`` is ``stdin``.

    A file is read once at the start to count its records; of stdin, fingerprints are kept while it
    is read. Raises InputError (unreadable or empty), RecordTooLarge.
    """

    # count, value_bytes: what the file holds; None of stdin, whose end is unknown yet.
    # fingerprints: of what was read; None until it was.

    def __init__(self, path: str, stdin: IO[bytes] | None = None) -> None:
        self.path, self.stdin = path, stdin
        self.count: int | None = None
        self.value_bytes: int | None = None
        self.fingerprints: Fingerprints | None = None
        if stdin is None:
            for _ in self.chunks():
                pass
            assert self.fingerprints is not None
            self.count, self.value_bytes = self.fingerprints.count, self.fingerprints.value_bytes

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records in order."""
        fresh = None if self.fingerprints is not None else Fingerprints()
        found = 0
        try:
            file = self.stdin or open(self.path, "rb")
            with file:
                for chunk in read_lines(file, self.path):
                    found += chunk.count
                    if fresh is not None:
                        fresh.add(chunk.source, chunk.offsets)
                    yield chunk
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror or error}") from None
        if not found:
            raise InputError(f"{self.path} is empty: there is nothing to append")
        if self.count not in (None, found):
            raise InputError(f"{self.path} changed while it was read")
        if fresh is not None:
            fresh.finish()
            self.fingerprints = fresh

    def checker(self) -> Checker:
        """Return a checker for what came back, once all of it was read."""
        assert self.fingerprints is not None, "the input was not read to its end"
        return _LinesChecker(self.fingerprints)


class Fingerprints:
    """One hash for every 65,536 records: over their values and over their lengths."""

    # hashes: of whole blocks. count, value_bytes: so far.

    def __init__(self) -> None:
        self.hashes: list[bytes] = []
        self.count = self.value_bytes = 0
        self._start()

    def _start(self) -> None:
        self._values, self._lengths = (
            hashlib.blake2b(digest_size=16),
            hashlib.blake2b(digest_size=16),
        )

    def add(self, data: Any, offsets: Any) -> None:
        """Add the values ``data[offsets[i]:offsets[i + 1]]``."""
        view, offsets = memoryview(data), np.asarray(offsets, dtype=np.int64)
        first, end = 0, len(offsets) - 1
        while first < end:
            count = min(end - first, BLOCK_RECORDS - self.count % BLOCK_RECORDS)
            part = offsets[first : first + count + 1]
            self._values.update(view[int(part[0]) : int(part[-1])])
            self._lengths.update(np.diff(part).astype("<i8").tobytes())
            self.count += count
            self.value_bytes += int(part[-1] - part[0])
            first += count
            if self.count % BLOCK_RECORDS == 0:
                self._close()

    def _close(self) -> None:
        self.hashes.append(self._values.digest() + self._lengths.digest())
        self._start()

    def finish(self) -> None:
        """End, after the last record."""
        if self.count % BLOCK_RECORDS:
            self._close()


class _LinesChecker(Checker):
    def __init__(self, expected: Fingerprints) -> None:
        self.expected, self.found, self.problem = expected, Fingerprints(), ""

    def take(self, columns: Any) -> None:
        if columns.values.null_count and not self.problem:
            self.problem = f"a record without a value behind record {self.found.count}"
        self.found.add(columns.values.data, columns.values.offsets)

    def finish(self) -> str:
        self.found.finish()
        if self.problem:
            return self.problem
        for block, pair in enumerate(zip(self.expected.hashes, self.found.hashes)):
            if pair[0] != pair[1]:
                first = block * BLOCK_RECORDS
                return DIFFER.format(first, min(first + BLOCK_RECORDS, self.expected.count) - 1)
        if self.found.count != self.expected.count:
            return f"{self.found.count} records came back of {self.expected.count}"
        return ""


def read_lines(
    file: IO[bytes], name: str, record_bytes_max: int = RECORD_BYTES_MAX
) -> Iterator[Chunk]:
    """Yield lines as they come, about 4 MiB at once; the last one may lack its line feed.

    ``file`` is unbuffered or has ``read1``. Raises RecordTooLarge with the line's number.
    """
    read = getattr(file, "read1", file.read)
    rest, lines = b"", 0
    while True:
        try:
            data = read(CHUNK_BYTES)
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror or error}") from None
        if not data:
            break
        end = data.rfind(b"\n") + 1
        if end:
            chunk = _cut(rest + data[:end], name, lines, record_bytes_max)
            lines += chunk.count
            yield chunk
            rest = data[end:]
        else:
            rest += data
        if len(rest) > record_bytes_max:
            raise _too_large(name, lines + 1, len(rest), record_bytes_max)
    if rest:
        yield _cut(rest + b"\n", name, lines, record_bytes_max)


def _cut(block: bytes, name: str, lines: int, record_bytes_max: int) -> Chunk:
    """Return whole lines as values and offsets."""
    feeds = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
    offsets = np.zeros(len(feeds) + 1, dtype=np.int64)
    offsets[1:] = feeds - np.arange(len(feeds))
    lengths = np.diff(offsets)
    longest = int(lengths.argmax())
    if lengths[longest] > record_bytes_max:
        raise _too_large(name, lines + longest + 1, int(lengths[longest]), record_bytes_max)
    return Chunk(block.replace(b"\n", b""), offsets, len(feeds), int(offsets[-1]))


def _too_large(name: str, line: int, size: int, record_bytes_max: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"line {line} of {name} has {size} bytes or more; a record has {record_bytes_max} at most"
    )


def open_input(path: str) -> IO[bytes]:
    """Open a file, or stdin for ``-``. Raises InputError."""
    try:
        if path == "-":
            return os.fdopen(os.dup(0), "rb", buffering=0)
        return open(path, "rb")
    except OSError as error:
        name = "stdin" if path == "-" else path
        raise InputError(f"cannot read {name}: {error.strerror or error}") from None
