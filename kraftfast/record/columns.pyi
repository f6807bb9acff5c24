from typing_extensions import Buffer

from kraftfast.record.columnar import BytesColumn as BytesColumn
from kraftfast.record.columnar import Columns as Columns

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
