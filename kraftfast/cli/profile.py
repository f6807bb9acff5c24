"""``kraftfast profile``: where the processors' time goes, and where a commit's time goes."""

from __future__ import annotations

from kraftfast.cli.lazy import lazy_group

COMMANDS = {
    "cpu": ("profile_cpu:cpu", "Draw a flame graph of each process while a benchmark runs."),
    "timeline": (
        "profile_timeline:timeline",
        "Record where each commit's time goes, as a trace for Perfetto.",
    ),
}


@lazy_group(COMMANDS)
def profile() -> None:
    """Show where time goes: in the code of each process, and in a commit."""
