"""Results of benchmarks: plans of what is measured, and how two results differ."""
