"""Read a log that grows as a stream, and go on where a checkpoint says."""
