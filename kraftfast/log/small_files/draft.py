"""Write a small file ahead of its change, so that the change itself needs no space (D25)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import FlushFailed, StorageError
from kraftfast.log.disk import TMP_SUFFIX

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk


class Draft:
    """The next content of a small file, on disk under another name; a start removes it.

    For a change whose first step cannot be undone: what may fail is done before it (D25), and
    :meth:`publish` only renames. Raises DiskFull, StorageError, FlushFailed (D9).
    """

    def __init__(self, disk: Disk, path: str, data: bytes) -> None:
        self._disk, self._path = disk, path
        disk.unlink(path + TMP_SUFFIX)
        file = disk.create_file(path + TMP_SUFFIX)
        try:
            file.write(data)
            file.sync()
        except FlushFailed:
            raise  # D9
        except StorageError:
            self.drop()
            raise
        finally:
            file.close()

    def publish(self) -> None:
        """Replace the file by this content; durable once its directory is synced."""
        self._disk.rename(self._path + TMP_SUFFIX, self._path)

    def drop(self) -> None:
        """Remove the draft; the file stays as it is."""
        self._disk.unlink(self._path + TMP_SUFFIX)
