"""``kraftfast profile``: where the processors' time goes, and where a commit's time goes."""

from __future__ import annotations

from kraftfast.cli.lazy import lazy_group

COMMANDS = {
    "cpu": (
        "profile.profile_cpu:cpu",
        "Run a benchmark under py-spy: a flame graph and a speedscope file for each process.",
    ),
    "timeline": (
        "profile.profile_timeline:timeline",
        "Record what each process does to each batch: a trace to be opened in ui.perfetto.dev.",
    ),
}


@lazy_group(COMMANDS)
def profile() -> None:
    """Show where time goes: in each process, and in a commit."""
