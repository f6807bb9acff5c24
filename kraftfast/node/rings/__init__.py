"""Peers and clients of the same host: rings in shared memory, and the UNIX sockets beside them."""
