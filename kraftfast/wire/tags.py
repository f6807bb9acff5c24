"""Our own tagged fields (KIP-482) in Kafka's messages and records: Kafka skips them.

What is asked by one is answered by one, so that the client knows whether it was understood.
"""

from __future__ import annotations

DURABILITY = 10000
"""Fetch: how the replica that asks acknowledges.

0: what it acknowledges is on its disk; 1: in its memory only.
"""

UNANIMOUS = 10001
"""A Vote request: its sender leads only if every voter grants."""

IN_DOUBT = 10002
"""A Vote response: the voter's log has an uncertain end."""

# 10003 is taken: TARGET of record/control.py.

OBSERVER_ENDPOINTS = 10004
"""Fetch: where an observer could be reached, were it a voter."""

OBSERVER_VERSIONS = 10005
"""Fetch: the least and the most of ``kraft.version`` that the observer speaks."""

READ_BARRIER = 10006
"""DescribeQuorum: up to where must a reader have read? Asked by a replica of its leader, or
by a client of any replica. Answered by the offset, or by the response's error."""

BARRIER_LEADER = 10026
"""DescribeQuorum, the answer to a question for a read barrier: the leader, as far as the replica
knows that gave it."""

TRANSFER = 10007
"""AlterPartitionReassignments that names no topic: hand over to this voter, -1: to the one with the
longest log. It changes the quorum, so it is in a request for which Kafka wants the right to ALTER
the cluster, as for every change of the voters. Echoed in the answer to it; the response's error
says why it could not be."""

TARGET_VOTERS = 10008
"""DescribeQuorum, the answer: where a reassignment goes (TargetVoters of KIP-642)."""

ENDED_TARGET = 10009
"""DescribeQuorum, the answer: the target of one that ended before it got there."""

LEADER_DIRECTORY = 10020
"""Where a message tells a leader's endpoint: the directory id of that leader."""

VOTERS_OFFSET = 10021
"""There, and in a Vote request: where the sender's voters record stands, -1: in no log. Without
this field, -2, the sender does not say."""

VOTERS_EPOCH = 10022
"""The epoch of that record."""

VOTERS_COMMITTED = 10025
"""Beside a leader's directory, and in a Vote response: the sender knows a voters record to be
committed."""

HAS_NO_LOG = 10024
"""A Vote response: refused for the doubt alone (``IN_DOUBT``), by a voter whose log is empty."""

UNCOMMITTED_VOTERS = 10023
"""DescribeQuorum, the answer: the voters or their target are not committed yet."""

TRIM = 10010
"""SnapshotHeader, the record: the snapshot holds no state, the log below its end was given up."""
