"""Record batches (Kafka's format v2) as bytes: built, checked, taken apart. No I/O.

===================  ===========================================================================
``shapes``           the record, the bits of a batch's attributes, why a batch is refused
``checksum``         CRC-32C, and the copy that computes it on the way
``parse``            headers, records and the deep check on raw pointers (``cimport`` only)
``batch``            the same for Python: views of batches in a buffer, records one by one
``encode``           batches from values on raw pointers (``cimport`` only)
``builder``          the same for Python: columns of values in one go, or record by record
``columns``          many batches to columns (numpy, Arrow), or to a list of values
``compression``      the codecs, bounded
``control``          control records: leader change, snapshot header and footer, voters
``pure``             the plain-Python twin, which needs none of the compiled modules
===================  ===========================================================================
"""
