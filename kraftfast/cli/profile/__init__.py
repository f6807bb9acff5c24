"""``kraftfast profile``: a command a file."""
