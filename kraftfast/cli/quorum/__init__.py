"""``kraftfast quorum``, a file for each of its commands."""
