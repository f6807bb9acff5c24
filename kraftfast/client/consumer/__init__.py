"""Read committed records over rings or sockets, and ask how far they reach (read barriers)."""
