"""A replica as a process: the loop that owns core, log and links, and the threads beside it.

``executor`` carries the core's decisions out, on what ``node`` has; ``loop`` turns. ``rings``
reaches peers and clients of this host, ``tcp`` those of others; ``translation`` stands between
their messages and the core's. ``snapshots`` makes and sends snapshots, ``storage`` opens and
rebuilds directories, ``processes`` starts and watches workers; ``applier`` runs what a user embeds
(``state_machine``).
"""
