"""Read committed records: from segment files on this host, or by Fetch over TCP."""
