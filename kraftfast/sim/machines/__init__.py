"""The simulated host: disks and power cuts, streams, rings, descriptors, threads and time."""
