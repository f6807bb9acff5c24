"""The loads of benchmarks: what is asked of a quorum while the clock runs."""
