"""The replica that decides and touches nothing: ``Replica.step(event, now_ms) -> [effects]``.

Read in this order: ``events``, ``effects`` and ``messages`` (what goes in and comes out), ``roles``
(the table of legal transitions), ``state`` (what a replica remembers, and how it changes role),
then one file per role for what only that role knows, and one ``on_...`` file per thing that
arrives. ``serving`` is what a leader does for others, ``fetching`` what the others do for
themselves, ``campaigning`` how votes are asked for.

Who votes is told by the log (``control``, ``voter_history``, ``on_controls``) and changed by the
leader, one change at a time (``voter_change``, ``membership``), also on the way to a target
(``reassignment``); ``joining`` is what a follower asks about itself. ``snapshots`` and
``downloading`` are about logs that do not begin at 0, ``read_barrier`` about reads that miss
nothing, ``transfer`` about leaders that go.

Nothing here reads a clock, draws chance, or knows files, sockets and threads: time is an argument,
chance a seeded ``Random``, the log an epoch trail and two end offsets (``log_view``).
"""
