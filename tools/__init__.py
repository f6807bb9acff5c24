"""What makes sources from sources: ``python -m tools.generate`` writes them, a test compares."""
