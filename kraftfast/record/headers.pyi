import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

HEADER: np.dtype[np.void]

class Headers:
    rows: NDArray[np.void]
    position: int
    fault: str
    def __init__(self, rows: NDArray[np.void], position: int, fault: str) -> None: ...

def decode_headers(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    batches_max: int = ...,
    verify_crc: bool = False,
) -> Headers: ...
def read_headers(
    fd: int,
    position: int,
    end: int,
    *,
    batches_max: int = ...,
    verify_crc: bool = False,
    until_offset: int = -1,
) -> Headers: ...
