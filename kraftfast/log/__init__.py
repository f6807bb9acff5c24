"""Remember: the log on disk and the small files beside it, in Kafka's formats and names.

``log`` and ``segment`` hold record batches, ``recovery`` brings a log back after a crash (D10),
``reader`` reads one from any process; ``at_rest`` and ``verify`` look at one as a start would.
``directory``, ``quorum_state``, ``epoch_checkpoint`` and ``properties`` are the files of a replica.
Every system call beneath this room goes through :class:`kraftfast.log.disk.Disk`, which the
simulator replaces to lose what was not flushed.
"""
