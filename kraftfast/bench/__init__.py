"""What ``kraftfast demo`` and ``kraftfast bench`` share: inputs, runs, reports, verification.

``inputs`` are records to append, ``load`` appends them and watches the clock, ``report`` tells
where the time went, ``verify`` holds the replicas against each other and against the input,
``disk`` measures the disk alone.
"""
