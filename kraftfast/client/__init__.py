"""The clients of a quorum, over rings on one host or over sockets.

``connect`` reaches a quorum that runs; ``producer``, ``consumer`` and ``admin`` are what it gives.
"""
