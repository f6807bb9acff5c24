"""The searches: some that must find nothing, and one for each rule that is taken away.

A search is small because it leaves out events that it does not need.
"""

from __future__ import annotations

from tests.formal.quorum.tlc import Search

QUICK = (
    "high watermarks",
    "standing down",
    "partial flushes",
    "appends",  # beyond those that every epoch begins with
)
LEAN = (*QUICK, "pre-votes", "kills", "resignations")

KAFKA_VOTES = ("D21.compare", "D21.flush", "D21.resume")
"""Kafka's rules, which rest on logs that are flushed at every append: a vote is given again without
comparing, a candidate asks with what it has not flushed, and asks again after a restart."""

SOUND = (
    Search("power cuts and damage", damaged=1, without=LEAN),
    Search("pre-votes", without=(*QUICK, "kills", "resignations")),
    Search(
        "high watermarks and partial flushes",
        restarts=0,
        without=("pre-votes", "kills", "resignations", "standing down"),
    ),
)

DEEP = (
    Search("two restarts", restarts=2, damaged=1, without=LEAN),
    Search("killed processes", damaged=1, without=QUICK),
    Search("a new quorum", damaged=1, from_start=True, without=QUICK),
    Search("three epochs", epochs=3, length=3, without=LEAN),
    Search("every event", damaged=1),
    Search("D21: that votes are compared is enough", broken=KAFKA_VOTES[1:], without=LEAN),
    Search(
        "D21: that tails are flushed is enough",
        broken=(KAFKA_VOTES[0], KAFKA_VOTES[2]),
        without=LEAN,
    ),
    Search(
        "five voters, by chance",
        epochs=3,
        length=3,
        restarts=2,
        damaged=2,
        voters=5,
        without=LEAN,
        walks=50_000,
    ),
)


def _mutant(name: str, broken: tuple[str, ...], violates: str, **bounds: int) -> Search:
    return Search(name, without=LEAN, broken=broken, must_hold=(violates,), **bounds)


MUTANTS = (
    _mutant("D1: leaders count what they have not flushed", ("D1",), "LeaderCompleteness"),
    _mutant("D2: stale flushes are heeded", ("D2",), "Durability", restarts=0),
    _mutant("D3: followers acknowledge what they have not flushed", ("D3",), "LeaderCompleteness"),
    _mutant("D4: leaders go on in their epoch after a restart", ("D4",), "LeaderCompleteness"),
    _mutant("D5: votes are not persisted", ("D5",), "ElectionSafety"),
    Search(
        "D6: records of earlier epochs are counted",
        epochs=4,
        restarts=0,
        broken=("D6",),
        without=(*LEAN, "higher epochs"),
        must_hold=("LeaderCompleteness",),
        hurried=True,
    ),
    _mutant("D8: what is cut off stays flushed", ("D8",), "Durability", restarts=0),
    _mutant("D10: no mark of what may be lost", ("D10",), "LeaderCompleteness", damaged=1),
    _mutant("D10: voters in doubt elect any log", ("D10.vote",), "LeaderCompleteness", damaged=1),
    _mutant("D10: replicas in doubt campaign", ("D10.campaign",), "LeaderCompleteness", damaged=1),
    _mutant("D21: tails are neither flushed nor compared", KAFKA_VOTES[:2], "LeaderCompleteness"),
    _mutant("D21: votes as Kafka grants and asks for them", KAFKA_VOTES, "LeaderCompleteness"),
)

PLANTED = (
    Search(
        "logs are not compared at a Fetch",
        restarts=0,
        broken=("I3",),
        hurried=True,
        without=("pre-votes", "kills", "resignations", "high watermarks"),
        must_hold=("LogMatching",),
    ),
    _mutant("a leader goes on with a shorter log", ("D4",), "LeaderHasItsEpoch"),
    _mutant("another record is committed at an offset", ("D1",), "KnownIsCommitted"),
    _mutant("a leader asks for a cut of committed records", KAFKA_VOTES, "NoCutBelowCommitted"),
    _mutant("more is flushed than is on disk", ("D8",), "FlushedIsOnDisk", restarts=0),
    _mutant("a campaign outlives its role", ("I18",), "TypeOK", restarts=0),
    _mutant("a replica in doubt campaigns", ("D10.campaign",), "DoubtIsHeeded", damaged=1),
    Search(
        "the high watermark falls",
        epochs=1,
        restarts=0,
        without=LEAN[:3],
        broken=("I6",),
        must_hold=("HighWatermarkMonotone",),
    ),
)
"""For each invariant that no mutant is held against, one that violates it."""
