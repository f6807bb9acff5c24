"""Who leads: pre-votes, votes, epochs, what a leader announces, and how it steps down.

One file for each role that only asks or waits (``unattached``, ``prospective``, ``candidate``,
``resigned``), one ``on_...`` file for each message; ``campaigning`` asks for votes, ``election``
counts them.
Timers run out in ``core/on_tick.py``; each change of role is in ``core/transitions.py``. ``doubt``,
``leader_identity`` and ``superseded`` decide which replica may neither campaign nor be followed
(D10, D23), ``step_down`` acts on that.
"""
