"""Reach: non-blocking ways to another process, by rings on one host and by sockets between hosts.

A link carries messages (a kind and bytes) and knows nothing of what they mean.
"""
