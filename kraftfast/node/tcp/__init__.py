"""Peers and clients of other hosts: connections, sessions, and what each Kafka request does."""
