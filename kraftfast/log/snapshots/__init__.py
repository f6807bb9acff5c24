"""Snapshots on disk (KIP-630): names, footer, reading and writing."""
