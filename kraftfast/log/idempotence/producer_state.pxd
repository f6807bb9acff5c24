"""The state of producers as bytes, for compiled code. See ``producer_state.pyx``."""

# `forgotten`: (id, id, epoch), as Producers.forgotten. `producers`: by touched_offset.
cdef bytes encode_state(list producers, forgotten)
# (producers by touched_offset, forgotten). Raises CorruptBatch, UnsupportedVersion.
cdef tuple decode_state(bytes state)
