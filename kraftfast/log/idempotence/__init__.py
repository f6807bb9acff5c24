"""The state of producers (KIP-98): rebuilt from the log and snapshots, and forgotten in time."""
