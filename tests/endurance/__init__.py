"""Hours of a real quorum under load and faults: ``python -m tests.endurance --minutes 60``."""
