"""The clients of a quorum, over rings on one host or over sockets.

``local`` finds the replicas of this host, ``remote`` servers, of which ``connect`` makes a quorum;
``producer``, ``consumer`` and ``admin`` are what a quorum gives.
"""
