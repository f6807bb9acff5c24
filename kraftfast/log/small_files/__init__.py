"""The files beside the log, each written whole: meta.properties, quorum-state, checkpoints."""
