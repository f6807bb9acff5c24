"""Logs that do not begin at offset 0: snapshots made, kept, sent and fetched (KIP-630).

``on_snapshot_created`` notes those that this replica makes, ``on_retention_due`` lets the log begin
at one, ``on_fetch_snapshot`` sends slices, ``leases`` keeps what is being fetched. Elsewhere
``begin_download`` begins, ``download`` asks for slices, ``on_fetch_snapshot_response`` handles the
answers, ``on_slice_written`` and ``on_snapshot_installed`` the rest.

That a follower is too far behind is found by the leader: ``judge`` in ``replication/on_fetch.py``.
Outside the core ``node/snapshots/replica_snapshots.py`` reads, writes and installs; the log begins
again in ``log/snapshots/log_start.pyx``.
"""
