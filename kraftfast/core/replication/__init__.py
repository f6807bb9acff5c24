"""How records reach a majority: Fetch, acknowledgements, flushes and the high watermark.

``serving`` is what a leader does for the others, ``fetching`` what the others do for themselves.
"""
