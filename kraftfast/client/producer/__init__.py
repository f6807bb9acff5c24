"""Append records: the producers, the window of batches under way, and what becomes of each.

``producer`` and ``aio`` are what a program calls. ``sender`` encodes batches and resolves them,
``ring_sender`` and ``socket_sender`` carry them; ``outcomes`` keeps those under way, ``tickets``
tells a program what became of its records. ``init_producer_id`` asks for the id of a named producer
(KIP-98).
"""
