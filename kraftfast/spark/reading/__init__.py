"""Read logs, snapshots and running quorums as tables: sources, splits, rows and their schemas."""
