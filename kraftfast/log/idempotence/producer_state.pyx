"""What a log knows of producers, as bytes: in snapshots, and where a cut is undone from.

All numbers are unsigned varints. Version 1::

    version=1, count, producer * count

From version 2 on, so that a reader can skip what a later version adds::

    version, oldest, size, head (of size bytes), count, (size, producer of size bytes) * count

The rule for versions: a reader takes every version up to its own, and a later one whose ``oldest``
is not above its own version. Of that it reads the fields that it knows, and skips what follows them
in the head, in each producer and behind the last one. It refuses everything else
(UnsupportedVersion): what it cannot read it must not replace a log by. A change by a field that
an older reader must not ignore must raise ``oldest``.

Version 3 says more in its head of the producers that were forgotten (``forgotten.py``).

A state is written in version 1 while it holds nothing else than version 1 has a place for.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from kraftfast import limits
from kraftfast.errors import CorruptBatch, UnsupportedVersion
from kraftfast.log.idempotence.forgotten import APART_MAX, EPOCHS_MAX, Forgotten
from kraftfast.log.small_files.id_ranges import KINDS, kind_of

from kraftfast.log.idempotence.producer_entry cimport (
    SEQUENCE_MASK, STRETCH_RECORDS_MAX, STRETCHES_MAX, ProducerEntry,
)

cdef extern from "varint.h" nogil:
    enum:
        KF_VARLONG_MAX
    uint8_t *kf_uvarint64_put(uint8_t *p, uint64_t v)
    const uint8_t *kf_uvarint64_get(const uint8_t *p, const uint8_t *end, uint64_t *value)

STATE_VERSION = 3
OLDEST = 2
"""The oldest version whose reader may take what is written here with a head."""
FORGOTTEN_NUMBERS = 3  # of version 2
HEAD_BYTES_MAX = 4096
PRODUCER_BYTES_MAX = 4096


def check_producer_state(bytes state not None):
    """Raise CorruptBatch or UnsupportedVersion for a state that cannot be read."""
    decode_state(state)


cdef bytes encode_state(list producers, forgotten):
    cdef ProducerEntry producer
    cdef bytearray out = bytearray(), one
    cdef int64_t before = 0
    cdef bint framed = bool(forgotten)
    if not producers and not framed:
        return b""
    if framed:
        one = bytearray()
        for number in forgotten.to_numbers():
            put(one, number + 1)
        put(out, STATE_VERSION)
        put(out, OLDEST)
        put(out, len(one))
        out += one
    else:
        put(out, 1)
    put(out, len(producers))
    for producer in producers:
        one = encode_one(producer, before)
        before = producer.touched_offset
        if framed:
            put(out, len(one))
        out += one
    return bytes(out)


cdef bytearray encode_one(ProducerEntry producer, int64_t before):
    """Encode one producer, which was touched after the one at ``before``."""
    cdef bytearray out = bytearray()
    cdef int64_t base
    put(out, producer.id)
    put(out, producer.epoch)
    put(out, producer.touched_offset - before)
    name = b"" if producer.name is None else producer.name.encode()
    put(out, len(name))
    out += name
    put(out, producer.records)
    if producer.records:
        put(out, producer.last_sequence)
        put(out, producer.touched_offset - producer.last_offset)
        put(out, producer.count)
        base = producer.last_offset + 1
        for base_offset, _, records in reversed(producer.remembered()):
            put(out, records)
            put(out, base - base_offset - records)
            base = base_offset
    return out


cdef put(bytearray out, uint64_t value):
    cdef uint8_t data[KF_VARLONG_MAX]
    out += data[:kf_uvarint64_put(data, value) - data]


cdef class Taker:
    """A cursor over an encoded state; what does not fit is CorruptBatch (S7)."""

    cdef bytes data
    cdef Py_ssize_t position

    def __init__(self, bytes data):
        self.data = data

    cdef int64_t take(self, int64_t most=0x7FFFFFFFFFFFFFFF) except -1:
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(self.data)
        cdef uint64_t value = 0
        cdef const uint8_t *behind = kf_uvarint64_get(
            data + self.position, data + len(self.data), &value
        )
        if behind == NULL or value > <uint64_t>most:
            raise corrupt(f"a number at byte {self.position}")
        self.position = behind - data
        return <int64_t>value

    cdef bytes take_bytes(self, int64_t most):
        """Return as many bytes as the number before them says."""
        cdef int64_t size = self.take(most)
        if size > len(self.data) - self.position:
            raise corrupt(f"{size} bytes at byte {self.position}")
        self.position += size
        return self.data[self.position - size:self.position]

    cdef str text(self):
        data = self.take_bytes(limits.PRODUCER_NAME_BYTES_MAX)
        try:
            return data.decode() if data else None
        except ValueError:
            raise corrupt(f"a name at byte {self.position}") from None


cdef corrupt(str what):
    return CorruptBatch(f"state of producers: {what}", reason=f"state of producers: {what}")


cdef tuple decode_state(bytes state):
    cdef Taker taker = Taker(state), one
    cdef ProducerEntry producer
    cdef int64_t before = 0, version, oldest
    forgotten, found, seen = Forgotten(), [], set()
    if not state:
        return found, forgotten
    version = oldest = taker.take()
    if version >= 2:
        oldest = taker.take()
    if not 1 <= oldest <= version:
        raise corrupt(f"version {version} for readers from version {oldest} on")
    if oldest > STATE_VERSION:
        raise UnsupportedVersion(
            f"state of producers: version {version} wants a reader of version {oldest}, this one "
            f"has {STATE_VERSION}: install a newer kraftfast")
    if version >= 2:
        one = Taker(taker.take_bytes(HEAD_BYTES_MAX))
        forgotten = take_forgotten(one, version)
    for _ in range(taker.take(limits.PRODUCERS_MAX)):
        one = taker if version == 1 else Taker(taker.take_bytes(PRODUCER_BYTES_MAX))
        producer = take_one(one, before)
        before = producer.touched_offset
        marks = {producer.id, producer.name} - {None}
        if seen & marks:
            raise corrupt(f"producer {producer.id} is listed twice")
        seen |= marks
        found.append(producer)
    if version <= STATE_VERSION and taker.position != len(state):
        raise corrupt("bytes behind it")
    return found, forgotten


cdef object take_forgotten(Taker taker, int64_t version):
    """Take what the head says: see ``Forgotten.to_numbers``."""
    cdef int64_t leaders = taker.take() - 1, clocks = taker.take() - 1, id, epoch
    cdef int64_t highest = taker.take(EPOCHS_MAX + 1) - 1
    found = Forgotten.of_version_2(leaders, clocks, highest)
    if version == 2:
        return found
    for kind in KINDS:
        found.ids[kind], found.epochs[kind] = taker.take() - 1, taker.take(EPOCHS_MAX + 1) - 1
        for _ in range(taker.take(APART_MAX + 1) - 1):
            id, epoch = taker.take() - 1, taker.take(EPOCHS_MAX + 1) - 1
            if kind_of(id) != kind or not found.epochs[kind] < epoch or id in found.apart[kind]:
                raise corrupt(f"the epoch of producer {id}, which was forgotten")
            found.apart[kind][id] = epoch
    if found.to_numbers()[:FORGOTTEN_NUMBERS] != [leaders, clocks, highest]:
        raise corrupt("two accounts of what was forgotten")
    return found


cdef ProducerEntry take_one(Taker taker, int64_t before):
    cdef ProducerEntry producer = ProducerEntry.__new__(ProducerEntry)
    producer.id, producer.epoch = taker.take(), <int16_t>taker.take(0x7FFF)
    producer.touched_offset = before + taker.take(0x7FFFFFFFFFFFFFFF - before)
    producer.name = taker.text()
    take_records(producer, taker)
    return producer


cdef int take_records(ProducerEntry producer, Taker taker) except -1:
    cdef int64_t records = taker.take(), sequence, base, count, gap
    cdef list stretches = []
    if not records:
        return 0
    sequence = taker.take(SEQUENCE_MASK)
    producer.last_offset = producer.touched_offset - taker.take(producer.touched_offset)
    base = producer.last_offset + 1
    for _ in range(taker.take(STRETCHES_MAX)):
        count = taker.take(min(records, STRETCH_RECORDS_MAX))
        gap = taker.take(max(base - count, 0))
        base -= count + gap
        if base < 0 or not count:
            raise corrupt(f"records of producer {producer.id} below offset 0")
        stretches.append((base, count))
    remembered = sum([count for _, count in stretches])
    if not 0 < remembered <= records or base_end(stretches[0]) != producer.last_offset + 1:
        raise corrupt(f"the last records of producer {producer.id}")
    sequence -= remembered - 1  # of the first one remembered
    for base, count in reversed(stretches):
        producer.extend(sequence & SEQUENCE_MASK, <int32_t>count, base)
        sequence += count
    producer.records = records
    return 0


cdef int64_t base_end(tuple stretch) except -1:
    base, records = stretch
    return base + records
