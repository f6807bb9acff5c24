"""A running quorum, looked at: for Prometheus (``/metrics``), for probes, and for people (``top``).

All of it reads the statistics pages that replicas share (``link/stats``), and ``/proc``, from a
process of its own. A replica is asked nothing but for its page, once.
"""
