"""Clients that ask for what few ask, and for what must be refused."""
