"""Remember: the log on disk and the small files beside it, in Kafka's formats and names.

``log`` and ``segment`` hold record batches, ``recovery`` brings a log back after a crash (D10),
``reading`` reads one from any process, and looks at one as a start would. ``small_files`` has the
files beside it, ``snapshots`` what it begins with, ``idempotence`` the state of its producers.
Every system call beneath this room goes through :class:`kraftfast.log.disk.Disk`, which the
simulator replaces to lose what was not flushed.
"""
