"""Look at this host and say what kraftfast needs of it: ``kraftfast doctor``.

Nothing that may be missing is imported by these modules: neither compiled code nor packages.
"""

from __future__ import annotations

from kraftfast.doctor.findings import Fact, examine

__all__ = ["Fact", "examine"]
