"""``kraftfast log``."""
