"""Those who append, read and operate a simulated quorum."""
