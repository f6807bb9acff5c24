import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraftfast.record.columns import BytesColumn

SHARED: np.dtype[np.void]

class Rows:
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    shared: NDArray[np.void]
    keys: BytesColumn | None
    values: BytesColumn | None
    header_ends: NDArray[np.int64] | None
    header_keys: BytesColumn | None
    header_values: BytesColumn | None
    position: int
    def __len__(self) -> int: ...
    def spread(self, name: str) -> NDArray[np.generic]: ...
    def sequences(self) -> NDArray[np.int32]: ...

def decode_rows(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    first_offset: int = 0,
    end_offset: int = ...,
    records_max: int | None = None,
    bytes_max: int | None = None,
    contents: bool = True,
    control: bool = False,
    verify_crc: bool = True,
) -> Rows: ...
