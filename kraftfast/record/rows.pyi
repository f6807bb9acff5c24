from typing_extensions import Buffer

from kraftfast.record.columnar import SHARED as SHARED
from kraftfast.record.columnar import Rows as Rows

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
