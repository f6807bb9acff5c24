"""Where the time of a benchmark went: events, sampled stacks, pictures and traces of them."""
