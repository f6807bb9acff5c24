"""Read a log from any process, while it is written or at rest, and verify it."""
