"""Whether a replica can do its work now: what ``/readyz`` answers."""

from __future__ import annotations

from kraftfast.live.pages import Sample

BEHIND_RECORDS_MAX = 10_000
WHY = {
    "in_doubt": "it is in doubt about the end of its log",
    "refuses_leader": "it refuses its leader",
    "no_room": "its disk is full",
}


def why_not_ready(sample: Sample, behind_max: int = BEHIND_RECORDS_MAX) -> str:
    """Return why a replica is not ready, "" if it is. ``behind_max``: records."""
    if not sample.up:
        return f"it does not run: {sample.error}"
    if sample.loop_age_s is None:
        return "it has not told yet how it is"
    if sample.hangs:
        return f"its loop has not turned for {sample.loop_age_s:.0f} s"
    if sample.role not in ("leader", "follower", "observer"):
        return f"it is {sample.role}: it follows no leader"
    if sample.leader_id < 0:
        return "it knows no leader"
    if sample.troubles:
        return "; ".join(WHY[name] for name in sample.troubles)
    if sample.lag_records is None:
        return "its leader has not told it what is committed"
    if sample.lag_records > behind_max:
        return f"it is {sample.lag_records} records behind, more than {behind_max}"
    return ""


def readiness(samples: list[Sample], behind_max: int = BEHIND_RECORDS_MAX) -> tuple[bool, str]:
    """Return whether more than half of these replicas are ready, and a line about each."""
    reasons = {sample.id: why_not_ready(sample, behind_max) for sample in samples}
    ready = sum(not reason for reason in reasons.values())
    lines = [f"replica {id}: {reason or 'ready'}\n" for id, reason in reasons.items()]
    return 2 * ready > len(reasons), "".join(lines)
