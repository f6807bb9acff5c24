"""The clients of a quorum, over rings on one host or over sockets.

``local`` asks the replicas of this host, and ``watch`` shows how far one is; ``cluster`` finds the
servers of a quorum and their leader. Producers find it by ``local_connector`` (rings) or
``remote_connector`` (sockets). ``remote_quorum`` is the quorum made of servers; ``producer``,
``consumer`` and ``admin`` are what a quorum gives.
"""
