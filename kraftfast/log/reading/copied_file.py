"""A file of batches that another process may change, read by private copies of its bytes.

A map of such a file would end the reader with SIGBUS once the file is cut short, or at a sector
that cannot be read (R10), and its bytes may differ each time they are looked at (D20). The kernel
copies (``pread``): what is judged is what is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.log import scan
from kraftfast.log.disk import DISK, Disk, storage_error
from kraftfast.record.batch import BatchView, batch_at

if TYPE_CHECKING:
    from kraftfast.record.headers import Headers

SPAN_BYTES = 1024 * 1024
FIRST_READ_BYTES = 64 * 1024  # of a place where it is not known that much follows
OPEN_END = 2**63 - 1
LENGTH_AT, LENGTH_END = 8, 12


class CopiedFile:
    """An open file. Not thread-safe; what was copied stays valid after :meth:`close`.

    ``path`` is opened if no ``fd`` of ``disk`` is given; that is taken over. ``end``: where batches
    end, the file's end if not given. All methods raise StorageError for what cannot be read, and
    take a file that ends early for what it is: damage, or an end.
    """

    # path: its name. fd: -1 when closed. size: when it was opened.
    # ahead: how many bytes the next walk copies at first.

    def __init__(self, path: str, fd: int = -1, end: int | None = None, disk: Disk = DISK) -> None:
        self.path, self.fd, self.disk = path, fd, disk
        if fd < 0:
            self.fd = disk.open_to_read(path)
        try:
            self.size = disk.identity(self.fd)[1]
        except OSError as error:
            self.close()
            raise storage_error("cannot read", path, error) from None
        self.end = end
        self.ahead = FIRST_READ_BYTES

    @property
    def limit(self) -> int:
        """Where batches end at the latest."""
        return self.size if self.end is None else self.end

    def close(self) -> None:
        """Let the file go."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self.disk.close(fd)

    def __del__(self) -> None:
        self.close()

    def lost_end(self) -> int:
        """Return where the file ends by now, if before its end when it was opened; else -1."""
        try:
            _, size = self.disk.identity(self.fd)
        except OSError as error:
            raise storage_error("cannot read", self.path, error) from None
        return size if size < self.size else -1

    # --- bytes ------------------------------------------------------------------------------------

    def read(self, position: int, size: int) -> bytes:
        """Copy ``size`` bytes from ``position`` on, fewer if the file ends."""
        try:
            data = self.disk.pread(self.fd, size, position)
            while len(data) < size:  # a second call tells an end from what cannot be read
                more = self.disk.pread(self.fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_error("cannot read", self.path, error) from None
        return data

    def data_end(self, position: int, limit: int) -> int:
        """Return the end of the last byte of [position, limit) that is not zero, or the start."""
        end = limit
        while end > position:
            begin = max(position, end - SPAN_BYTES)
            data = self.read(begin, end - begin)
            found = scan.data_end(data, 0, len(data))
            if found:
                return begin + found
            end = begin
        return position

    # --- batches ----------------------------------------------------------------------------------

    def walk(
        self,
        position: int,
        offset: int,
        epoch: int = -1,
        *,
        end_offset: int = OPEN_END,
        bytes_max: int = 0,
        verify_crc: bool = False,
    ) -> tuple[bytes, int, int, int, int]:
        """Return (copy, position, offset, epoch, fault): as ``scan.walk``, over a copy of the
        bytes.

        The copy begins at the ``position`` given and holds the batches that were walked over, of
        about ``bytes_max`` bytes. Behind them, ``WHOLE`` says that more may follow.
        """
        bytes_max = bytes_max or SPAN_BYTES
        rest = max(self.limit - position, 0)
        size = min(self.ahead, bytes_max)
        while True:
            data = self.read(position, min(size, rest))
            end, reached, last_epoch, fault = scan.walk(
                data, 0, len(data), offset, epoch,
                end_offset=end_offset, bytes_max=bytes_max, verify_crc=verify_crc,
            )  # fmt: skip
            cut = fault == scan.INCOMPLETE or (
                fault == scan.END and len(data) - end < limits.BATCH_HEADER_BYTES
            )
            if not cut or len(data) < size or size >= rest:
                break
            if end > 0 and size >= bytes_max:
                fault = scan.WHOLE
                break
            size = min(4 * size, bytes_max) if size < bytes_max else 4 * size
        self.ahead = SPAN_BYTES if end >= FIRST_READ_BYTES else FIRST_READ_BYTES
        return data, position + end, reached, last_epoch, fault

    def spans(
        self, position: int, offset: int, epoch: int = -1, *, verify_crc: bool = False
    ) -> Iterator[tuple[bytes, int, int, int, int]]:
        """Walk to where no batch follows: each walk's result, the last one's fault says why."""
        fault = scan.WHOLE
        while fault == scan.WHOLE:
            found = self.walk(position, offset, epoch, verify_crc=verify_crc)
            _, position, offset, epoch, fault = found
            yield found

    def sound_end(self, position: int, offset: int, epoch: int = -1) -> tuple[int, int, int, int]:
        """Return (position, offset, epoch, fault) behind the last valid batch in a row."""
        *_, last = self.spans(position, offset, epoch, verify_crc=True)
        return last[1:]

    def whole(self, position: int, end: int) -> tuple[bytes, int]:
        """Return (copy, up to where it holds whole batches) of [position, end), about a mebibyte.

        Offsets are not looked at. Where no whole batch stands, that is the length of the copy:
        its decoder finds out why.
        """
        from kraftfast.record.headers import decode_headers  # with numpy, which few readers need

        for size in (SPAN_BYTES, limits.BATCH_BYTES_MAX):
            data = self.read(position, min(size, end - position))
            if whole := decode_headers(data).position:
                return data, whole
            if len(data) < size or size >= end - position:
                break
        return data, len(data)

    def headers(
        self,
        position: int,
        end: int,
        *,
        batches_max: int = 1 << 20,
        verify_crc: bool = False,
        until_offset: int = -1,
    ) -> Headers:
        """Return the headers in [position, end), as ``read_headers``; positions are the file's."""
        from kraftfast.record.headers import read_headers

        try:
            return read_headers(
                self.fd, position, max(position, end), batches_max=batches_max,
                verify_crc=verify_crc, until_offset=until_offset,
            )  # fmt: skip
        except OSError as error:
            raise storage_error("cannot read", self.path, error) from None

    def batch(self, position: int, end: int) -> BatchView:
        """Return a copy of the batch at ``position``; its own is 0. Raises CorruptBatch."""
        if end - position < limits.BATCH_HEADER_BYTES:
            return batch_at(self.read(position, max(0, end - position)))
        head = self.read(position, limits.BATCH_HEADER_BYTES)
        length = int.from_bytes(head[LENGTH_AT:LENGTH_END], "big") + LENGTH_END
        if length > limits.BATCH_BYTES_MAX:
            return batch_at(head)  # which says why it is none
        return batch_at(self.read(position, min(length, end - position)))
