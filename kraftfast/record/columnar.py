"""What many batches decode to, by ``columns`` and ``rows`` or in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SEQUENCES: Final = 0x7FFFFFFF
"""The last of a producer's numbers; behind it comes 0 (Kafka's DefaultRecordBatch)."""

SHARED: Final = np.dtype(
    [
        ("base_offset", "i8"), ("producer_id", "i8"), ("epoch", "i4"), ("base_sequence", "i4"),
        ("producer_epoch", "i2"), ("attributes", "i2"), ("rows", "i8"),
    ]
)  # fmt: skip


@dataclass(slots=True, eq=False)
class BytesColumn:
    """Byte strings as Arrow's ``binary`` keeps them; ``len()`` of them.

    * ``offsets``: n + 1 of them; value i is ``data[offsets[i]:offsets[i + 1]]``
    * ``valid``: a bit for each value, lowest first, 0 for null; ``None`` if none is
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    valid: NDArray[np.uint8] | None
    null_count: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to_pylist(self) -> list[bytes | None]:
        """Return the values as Python objects."""
        data, ends = self.data.tobytes(), self.offsets.tolist()
        values: list[bytes | None] = [data[begin:end] for begin, end in zip(ends, ends[1:])]
        if self.valid is not None:
            present = np.unpackbits(self.valid, count=len(values), bitorder="little").tolist()
            values = [value if there else None for value, there in zip(values, present)]
        return values

    def to_arrow(self) -> Any:
        """Return the same memory as a ``pyarrow.BinaryArray``; needs pyarrow."""
        import pyarrow

        buffers = [
            None if self.valid is None else pyarrow.py_buffer(self.valid),
            pyarrow.py_buffer(self.offsets),
            pyarrow.py_buffer(self.data),
        ]
        return pyarrow.Array.from_buffers(pyarrow.binary(), len(self), buffers, self.null_count)


@dataclass(slots=True, eq=False)
class Columns:
    """Records as columns; ``len()`` of them.

    * ``timestamps``: milliseconds
    * ``keys``: ``None`` if they were not asked for
    * ``position``: where in the buffer the first batch begins that was not looked at
    """

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: BytesColumn | None
    values: BytesColumn
    position: int

    def __len__(self) -> int:
        return len(self.offsets)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.RecordBatch`` of offset, timestamp (ms), key and value."""
        import pyarrow

        count = len(self)
        stamps = [None, pyarrow.py_buffer(self.timestamps)]
        if self.keys is None or self.keys.null_count == count:
            keys = pyarrow.nulls(count, pyarrow.binary())
        else:
            keys = self.keys.to_arrow()
        return pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.Array.from_buffers(
                    pyarrow.int64(), count, [None, pyarrow.py_buffer(self.offsets)]
                ),
                pyarrow.Array.from_buffers(pyarrow.timestamp("ms", "UTC"), count, stamps),
                keys,
                self.values.to_arrow(),
            ],
            names=["offset", "timestamp", "key", "value"],
        )


@dataclass(slots=True, eq=False)
class Rows:
    """Records with all that is known of them; ``len()`` of them.

    * ``timestamps``: milliseconds; -1: the record has none
    * ``shared``: a row a batch, of dtype :data:`SHARED`; its ``rows`` says how many of ours
      are the batch's
    * ``position``: where in the buffer the first batch begins that was not looked at
    * ``keys``, ``values``: ``None`` if the contents were not asked for
    * ``header_ends``: the exclusive end of each row's headers among ``header_keys`` and
      ``header_values``; the three are ``None`` where no record has a header
    """

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    shared: NDArray[np.void]
    position: int
    keys: BytesColumn | None = None
    values: BytesColumn | None = None
    header_ends: NDArray[np.int64] | None = None
    header_keys: BytesColumn | None = None
    header_values: BytesColumn | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def spread(self, name: str) -> NDArray[Any]:
        """Return a field of ``shared``, once a row."""
        return np.repeat(self.shared[name], self.shared["rows"])

    def sequences(self) -> NDArray[np.int32]:
        """Return the producer's number of each record, -1 without a producer."""
        if (self.shared["base_sequence"] < 0).all():
            return np.full(len(self), -1, np.int32)
        base, first = self.spread("base_sequence"), self.spread("base_offset")
        numbers = (base + (self.offsets - first)) & SEQUENCES
        return np.where(base < 0, -1, numbers).astype(np.int32)
