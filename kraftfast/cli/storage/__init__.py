"""``kraftfast storage``, a file for each of its commands."""
