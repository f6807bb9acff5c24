"""Append records: the producers, the window of batches under way, and what becomes of each.

``producer`` and ``aio`` are what a program calls, with ``append`` in ``appender``. ``sender``
encodes batches and keeps those under way, ``ring_sender`` and ``socket_sender`` carry them;
``outcomes`` keeps what is resolved, ``tickets`` tells a program what became of its records.
``init_producer_id`` asks for the id of a named producer (KIP-98).
"""
