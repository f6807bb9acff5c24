"""What control records say of producers: a name in the log, the whole state in a snapshot's footer.

Both are tagged fields of a SnapshotFooter. Kafka's readers skip them; in the log they skip the
record, too, while they refuse a type of control record that they do not know.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kraftfast import limits
from kraftfast.errors import CorruptBatch
from kraftfast.record.batch import batch_at
from kraftfast.record.control import SnapshotFooter, control_batch, decode_control
from kraftfast.types import Tags

NAME_TAG = 10004
"""Our own field of a footer in the log: a name, and the producer that it stands for."""
STATE_TAG = 10100
"""The first of our own fields of a snapshot's footer that hold the state, a piece each."""
PIECES_MAX = 56
NAME_FIELDS = struct.Struct(">qh?")

assert PIECES_MAX < limits.TAGGED_FIELDS_MAX


class ProducerName(NamedTuple):
    """A name, and its producer from here on. ``resumes``: its sequences go on, or begin at 0."""

    id: int
    epoch: int
    resumes: bool
    name: str


def name_batch(name: ProducerName, *, timestamp: int, leader_epoch: int) -> bytes:
    """Return the control batch that says so; ``timestamp`` in ms. Raises InvalidOption."""
    value = NAME_FIELDS.pack(*name[:3]) + name.name.encode()
    footer = SnapshotFooter(((NAME_TAG, value),))
    return control_batch([footer], timestamp=timestamp, leader_epoch=leader_epoch)


def names_in(batch: bytes) -> list[ProducerName]:
    """Return what a control batch says of names. Raises CorruptBatch, UnsupportedVersion."""
    controls = [decode_control(record) for record in batch_at(batch).records()]
    footers = [control for control in controls if isinstance(control, SnapshotFooter)]
    return [_decode(value) for each in footers for tag, value in each.tags if tag == NAME_TAG]


def _decode(value: bytes) -> ProducerName:
    try:
        id, epoch, resumes = NAME_FIELDS.unpack_from(value)
        name = value[NAME_FIELDS.size :].decode()
    except (struct.error, ValueError):
        raise CorruptBatch("no name of a producer") from None
    size = len(value) - NAME_FIELDS.size
    if id < 0 or epoch < 0 or not 0 < size <= limits.PRODUCER_NAME_BYTES_MAX:
        raise CorruptBatch("an impossible name of a producer")
    return ProducerName(id, epoch, resumes, name)


def to_tags(state: bytes) -> Tags:
    """Return the state of producers (``Producers.encode``) as tagged fields of a footer."""
    size = limits.TAGGED_FIELD_BYTES_MAX
    pieces = [state[at : at + size] for at in range(0, len(state), size)]
    assert len(pieces) <= PIECES_MAX
    return tuple((STATE_TAG + number, piece) for number, piece in enumerate(pieces))


def from_tags(tags: Tags) -> bytes:
    """Return what :func:`to_tags` was given, out of the tagged fields of a footer, or b""."""
    last = STATE_TAG + PIECES_MAX
    return b"".join(piece for tag, piece in sorted(tags) if STATE_TAG <= tag < last)
