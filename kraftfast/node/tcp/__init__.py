"""Peers and clients of other hosts: connections, sessions, Produce and Fetch of consumers."""
