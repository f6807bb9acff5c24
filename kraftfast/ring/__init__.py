"""Rings of messages in shared memory between two processes: layout and algorithm only.

``cext/ring.h`` documents the layout; who makes, passes and watches the memory is ``link/``.
"""
