"""Append rows to a quorum, each once, whatever Spark tries again."""
