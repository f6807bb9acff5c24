"""Make, take, serve and remove snapshots, and give up the log that they cover."""
