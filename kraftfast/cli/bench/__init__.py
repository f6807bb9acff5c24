"""``kraftfast bench``: a command a file, or a few that belong together."""
