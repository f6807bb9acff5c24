"""A replica as a process: the loop that owns core, log and links, and the threads beside it."""
