from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

WHOLE: int
END: int
INCOMPLETE: int
OFFSET: int

Mark = tuple[int, int]

def fault_text(fault: int) -> str: ...
def walk(
    buffer: Buffer,
    position: int,
    limit: int,
    offset: int,
    epoch: int = -1,
    *,
    end_offset: int = ...,
    bytes_max: int = ...,
    epoch_max: int = ...,
    verify_crc: bool = False,
) -> tuple[int, int, int, int]: ...
def note_batches(
    segment: Any,
    expected: int,
    limit: int,
    producers: Any,
    epochs: list[tuple[int, int]],
    stored_epoch: Callable[[int], tuple[int, int]],
) -> int: ...
def data_end(buffer: Buffer, position: int, limit: int) -> int: ...
def page_words(page: Buffer) -> tuple[int, int | None, Mark | None, Mark | None] | None: ...
def control_batches(
    log: Any, from_offset: int, place: tuple[Any, int] | None = None
) -> list[bytes]: ...
def batch_from_timestamp(
    segment: Any, timestamp: int, offset: int, headers_max: int
) -> tuple[int, int, int]: ...
def batch_of_max_timestamp(
    segment: Any, offset: int, end_offset: int, headers_max: int
) -> tuple[int, int, int, int]: ...
