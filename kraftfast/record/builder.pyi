from collections.abc import Sequence
from typing import Any

from typing_extensions import Buffer

from kraftfast.record.batch import RecordsMode
from kraftfast.record.compression import Compressor
from kraftfast.record.shapes import Codec, Header

class Settings:
    timestamp: int
    base_sequence: int
    def __init__(
        self,
        timestamp: int,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        records: RecordsMode = "any",
    ) -> None: ...

class Values:
    # An Arrow array has no type here: pyarrow is optional.
    def __init__(
        self,
        source: Sequence[Buffer | None] | Buffer | Any,
        offsets: Buffer | None = None,
        *,
        size: int | None = None,
        keys: Values | Sequence[Buffer | None] | Any | None = None,
        headers: Any | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def encode_into(
        self,
        target: Buffer,
        settings: Settings,
        *,
        start: int = 0,
        position: int = 0,
        capacity: int | None = None,
        keys: Values | None = None,
        timestamps: Buffer | None = None,
    ) -> tuple[int, int]: ...

class BatchBuilder:
    def __init__(
        self,
        target: Buffer,
        settings: Settings,
        *,
        position: int = 0,
        capacity: int | None = None,
    ) -> None: ...
    @property
    def record_count(self) -> int: ...
    @property
    def size(self) -> int: ...
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Sequence[Header] | None = None,
        timestamp: int | None = None,
    ) -> bool: ...
    def finish(self) -> int: ...

def compressed(batch: Buffer, compressor: Compressor | None) -> bytes: ...
def compress_batch(batch: Buffer, codec: Codec = ..., *, level: int | None = None) -> bytes: ...
