"""The codecs of record batches: gzip, snappy, lz4 and zstd. What is read is bounded (S9).

What comes out is bounded by ``limits.DECOMPRESSED_BYTES_MAX`` and, above 1 MiB, by
``limits.DECOMPRESSION_RATIO_MAX`` times what went in, whatever sizes the data declares; no codec is
asked for more than a piece at a time. One stream a batch, as every known writer makes it.

Sources: Kafka's ``org.apache.kafka.common.compress``; RFC 1952, 8878, 9659; the frame formats of
lz4, snappy and of xerial's snappy-java.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from kraftfast import arguments, errors, limits
from kraftfast.record.shapes import Codec

_PIECE_BYTES: Final = 1 << 20  # asked of a codec at a time; also where the ratio begins to count
_INPUT_BYTES: Final = 1 << 16  # given to a codec at a time, as some copy what they leave over

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16  # the magic, a version and the oldest compatible version
_SNAPPY_RATIO_MAX: Final = 32  # a copy element makes at most 64 bytes of at least 2

_PACKAGES: Final = {"zstandard": "zstandard", "lz4.frame": "lz4", "snappy": "python-snappy"}


def corrupt(reason: str) -> errors.CorruptBatch:
    """Return a fault of the compressed block; the caller adds where its batch is."""
    return errors.CorruptBatch(reason, reason=reason)


class _Output:
    """Gathers what a codec gives, and stops it at the bounds."""

    def __init__(self, compressed_bytes: int) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        # S9. The ratio allows every batch that expands to no more than a piece.
        by_ratio = compressed_bytes * limits.DECOMPRESSION_RATIO_MAX
        self._size_max = min(limits.DECOMPRESSED_BYTES_MAX, max(by_ratio, _PIECE_BYTES))

    @property
    def room(self) -> int:
        """Bytes that may still come."""
        return self._size_max - self._size

    def add(self, piece: bytes) -> None:
        """Add a piece. Raises :class:`~kraftfast.errors.CorruptBatch` beyond the bounds."""
        if len(piece) > self.room:
            raise corrupt(f"expands to more than {self._size_max} bytes")
        self._size += len(piece)
        self._pieces.append(piece)

    def result(self) -> bytes:
        """Return everything that was added."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = _PACKAGES[module]
        raise errors.UnsupportedCodec(
            f"a batch is compressed with a codec that needs the package {name}: pip install {name}"
        ) from None


def _drain(stream: Any, give: Callable[[bytes], bytes], data: memoryview, output: _Output) -> None:
    """Feed ``data`` to a stream that has ``eof``; ``give`` asks for at most a piece at a time."""
    for at in range(0, len(data), _INPUT_BYTES):
        output.add(give(bytes(data[at : at + _INPUT_BYTES])))
        while not stream.eof:
            more = give(b"")
            if not more:
                break
            output.add(more)
        if stream.eof:
            if stream.unused_data or at + _INPUT_BYTES < len(data):
                raise corrupt("bytes behind the compressed stream")
            return
    raise corrupt("compressed stream is cut off")


def _gunzip(data: memoryview, output: _Output) -> None:
    stream = zlib.decompressobj(wbits=31)

    def give(fresh: bytes) -> bytes:
        return stream.decompress(stream.unconsumed_tail + fresh, _PIECE_BYTES)

    try:
        _drain(stream, give, data, output)
    except zlib.error as error:
        raise corrupt(f"gzip: {error}") from None


def _unlz4(data: memoryview, output: _Output) -> None:
    stream = _package("lz4.frame").LZ4FrameDecompressor()
    try:
        _drain(stream, lambda fresh: stream.decompress(fresh, _PIECE_BYTES), data, output)
    except (RuntimeError, ValueError, EOFError) as error:
        raise corrupt(f"lz4: {error}") from None


def _unzstd(data: memoryview, output: _Output) -> None:
    zstandard = _package("zstandard")
    decompressor = zstandard.ZstdDecompressor(max_window_size=limits.ZSTD_WINDOW_BYTES_MAX)
    try:
        with decompressor.stream_reader(data, read_across_frames=False) as reader:
            while piece := reader.read(_PIECE_BYTES):
                output.add(piece)
    except zstandard.ZstdError as error:
        raise corrupt(f"zstd: {error}") from None


def _unsnappy_block(snappy: Any, block: memoryview, output: _Output) -> None:
    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise corrupt("snappy: no length")
    # The library allocates what is declared, so that must be possible and allowed first.
    if declared > _SNAPPY_RATIO_MAX * len(block):
        raise corrupt("snappy: declares more than its bytes can hold")
    if declared > output.room:
        raise corrupt("snappy: expands beyond the bound")
    try:
        output.add(snappy.uncompress(bytes(block)))
    except snappy.UncompressError:
        raise corrupt("snappy: malformed block") from None


def _unsnappy(data: memoryview, output: _Output) -> None:
    snappy = _package("snappy")
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        _unsnappy_block(snappy, data, output)
        return
    data = data[_XERIAL_HEADER_BYTES:]
    while data:
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 or size > len(data) - 4:
            raise corrupt("snappy: block is cut off")
        _unsnappy_block(snappy, data[4 : 4 + size], output)
        data = data[4 + size :]


_READERS: Final[dict[int, Callable[[memoryview, _Output], None]]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}


def decompress(codec: int, data: memoryview) -> bytes:
    """Return the records of a batch from their compressed block.

    Raises :class:`~kraftfast.errors.CorruptBatch` if the block is malformed or expands beyond the
    bounds, ``UnsupportedCodec`` if the codec's package is not installed.
    """
    output = _Output(len(data))
    _READERS[codec](data, output)
    return output.result()


LEVELS: Final = {Codec.GZIP: range(1, 10), Codec.LZ4: range(17), Codec.ZSTD: range(-131072, 23)}
"""The levels that a codec has, as in Kafka (KIP-390); snappy has none. Below 0 zstd is faster."""
_DEFAULT_LEVELS: Final = {Codec.GZIP: 6, Codec.LZ4: 0, Codec.ZSTD: 3}


class Compressor(NamedTuple):
    """How a producer compresses its batches: ``compress`` is for one thread at a time."""

    codec: Codec
    compress: Callable[[bytes], bytes]


def compressor_of(name: str | None, level: int | None = None) -> Compressor | None:
    """Return the compressor of this name, as Kafka's ``compression.type``; None for no compression.

    ``level``: None is Kafka's own: 6 for gzip, 3 for zstd; the fastest for lz4.
    Raises :class:`~kraftfast.errors.InvalidOption` for an unknown name, or a level that the codec
    does not have; ``UnsupportedCodec`` if its package is not installed.
    """
    codecs = {codec.name.lower(): codec for codec in Codec}
    codec = codecs.get("none" if name is None else name) if isinstance(name, str | None) else None
    if codec is None:
        raise errors.InvalidOption(f"compression is {', '.join(codecs)}, not {name!r}")
    if level is not None:
        levels = LEVELS.get(codec)
        if levels is None:
            raise errors.InvalidOption(f"compression {name or 'none'} has no levels")
        level = arguments.whole_number("compression_level", level, levels[0], levels[-1])
    return None if codec == Codec.NONE else Compressor(codec, _writer(codec, level))


def _writer(codec: Codec, level: int | None) -> Callable[[bytes], bytes]:
    """Return what makes a block of a batch's records. Raises UnsupportedCodec."""
    level = _DEFAULT_LEVELS.get(codec) if level is None else level
    write: Callable[[bytes], bytes]
    if codec == Codec.ZSTD:
        write = _package("zstandard").ZstdCompressor(level=level).compress
    elif codec == Codec.LZ4:  # Kafka's readers take no blocks that depend on each other
        write = partial(
            _package("lz4.frame").compress,
            compression_level=level, block_linked=False, store_size=False,
        )  # fmt: skip
    elif codec == Codec.SNAPPY:
        write = _package("snappy").compress
    else:
        write = partial(zlib.compress, level=-1 if level is None else level, wbits=31)
    return write


def compress(codec: int, data: memoryview, level: int | None = None) -> bytes:
    """Return the block of a batch's records. Raises as :func:`compressor_of`."""
    made = compressor_of(Codec(codec).name.lower(), level)
    return bytes(data) if made is None else made.compress(bytes(data))


def worth_storing(compressed_bytes: int, bytes_before: int) -> bool:
    """Return whether the compressed form is smaller, but not so small as to be refused (S9)."""
    if compressed_bytes >= bytes_before:
        return False
    within_ratio = bytes_before <= compressed_bytes * limits.DECOMPRESSION_RATIO_MAX
    return within_ratio or bytes_before <= _PIECE_BYTES
