"""The replica that decides and touches nothing: ``Replica.step(event, now_ms) -> [effects]``.

Read in this order: ``events``, ``effects`` and ``messages`` (what goes in and comes out), ``roles``
(the table of legal transitions), ``state`` (what a replica remembers, and how it changes role),
``replica`` (which function handles which event). Then by subject: ``elections``, ``replication``,
``membership``, ``snapshots``, and ``read_barrier`` for reads that miss nothing. What only one role
knows has a file in ``elections`` or ``replication``; an ``on_...`` file handles a message, or those
of one matter, and the tables of ``replica`` say where each goes.

Nothing here reads a clock, draws chance, or knows files, sockets and threads: time is an argument,
chance a seeded ``Random``, the log an epoch trail and two end offsets (``log_view``).
"""
