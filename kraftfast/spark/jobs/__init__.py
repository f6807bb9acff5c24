"""Jobs over whole logs: audit, convert, compact, percentiles, sweeps."""
