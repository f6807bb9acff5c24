"""Rings of messages in shared memory between two processes: layout and algorithm only.

Each ring has one producer and one consumer (R1): no claim of a third that could be lost.
``cext/ring.h`` documents the layout; ``link/`` makes, passes and watches the memory.
"""
