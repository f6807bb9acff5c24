"""Settings of this room's property tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing on a machine that others share.
settings.register_profile("record", deadline=None)
settings.load_profile("record")
