"""The clients of a quorum, over rings on one host or over sockets.

``local`` reaches the replicas of this host; ``cluster`` finds the servers of a quorum and their
leader, ``remote_quorum`` is the quorum made of them; ``producer``, ``consumer`` and ``admin`` are
what a quorum gives.
"""
