"""What runs beside the loop of a replica: flushes, the state machine, waiting for the disk."""
