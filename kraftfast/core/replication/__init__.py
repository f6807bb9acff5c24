"""How records reach a majority: Fetch, acknowledgements, flushes and the high watermark.

``high_watermark`` counts what is on disks, and commits; ``fetch_answers`` answers followers, and
``fetching`` is what those do for themselves.
"""
