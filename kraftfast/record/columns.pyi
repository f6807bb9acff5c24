from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class BytesColumn:
    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    valid: NDArray[np.uint8] | None
    null_count: int
    def __len__(self) -> int: ...
    def to_pylist(self) -> list[bytes | None]: ...
    def to_arrow(self) -> Any: ...

class Columns:
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: BytesColumn | None
    values: BytesColumn
    position: int
    def __len__(self) -> int: ...
    def to_arrow(self) -> Any: ...

def decode_columns(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    first_offset: int = 0,
    records_max: int | None = None,
    bytes_max: int | None = None,
    keys: bool = True,
    control: bool = False,
    partial: bool = False,
) -> Columns: ...
def decode_values(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    first_offset: int = 0,
    records_max: int | None = None,
    bytes_max: int | None = None,
    control: bool = False,
    partial: bool = False,
) -> list[bytes | None]: ...
