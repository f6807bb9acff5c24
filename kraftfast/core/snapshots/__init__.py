"""Logs that do not begin at offset 0: snapshots made, kept, sent and fetched (KIP-630)."""
