"""Record batches (Kafka's format v2) as bytes: built, checked, taken apart. No I/O.

===================  ===========================================================================
``shapes``           the record, the bits of a batch's attributes, why a batch is refused
``checksum``         CRC-32C, and the copy that computes it on the way
``judge``            of batches and records, on raw pointers (``cimport`` only)
``batch``            the same for Python: views of batches in a buffer, records one by one
``encode``           batches from values on raw pointers (``cimport`` only)
``builder``          the same for Python: columns of values in one go, or record by record
``columnar``         what many batches decode to: columns (numpy, Arrow), rows
``columns``          many batches to columns, or to a list of values
``rows``             many batches to rows with all that is known of each record
``headers``          the headers of many batches as one numpy array
``digest``           of many records, in whatever order: whether two runs had the same
``compression``      the codecs, bounded
``control``          control records: leader change, snapshot header and footer, voters
``pure``             the plain-Python twin, which needs none of the compiled modules
``pure_crc``         its checksum where neither ``checksum`` nor PyPI's ``crc32c`` is
===================  ===========================================================================

Values become a batch in a buffer of the caller's, and come back one by one or as columns:

>>> from kraftfast.record import batch, builder, columns
>>> buffer = bytearray(1024)
>>> settings = builder.Settings(timestamp=1_700_000_000_000)
>>> size, count = builder.Values([b"one", b"two"]).encode_into(buffer, settings)
>>> size, count
(81, 2)
>>> found = batch.check_batch(buffer, end=size)
>>> [(record.offset, record.value) for record in found.records()]
[(0, b'one'), (1, b'two')]
>>> columns.decode_values(buffer, end=size)
[b'one', b'two']

Its leader stamps what lies outside the CRC; what does not check is refused with its place:

>>> batch.stamp(buffer, base_offset=40, leader_epoch=3)
>>> batch.batch_at(buffer).last_offset
41
>>> buffer[70] ^= 1
>>> batch.check_batch(buffer, end=size)
Traceback (most recent call last):
kraftfast.errors.CorruptBatch: batch at byte 0: CRC-32C does not match
"""
