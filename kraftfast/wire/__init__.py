"""Kafka's framing and messages: bytes from and to Python objects, and nothing else.

* ``notation``: the field tables' notation, parsed. ``primitives``: each type, read and written.
* ``schema``: the codec that the tables drive, flat plans of primitives by message and version.
* ``messages``: the tables of every request and response that we speak, as classes.
* ``versions``: which versions we serve, how two sides agree on one, the rules of ApiVersions.
* ``frame``: length framing, request and response headers.
* ``fetch``, ``produce``: the two messages that carry records, without copying the records.

What comes from the other side either decodes or is an ``errors.MalformedFrame``, within the
bounds of ``limits`` (S6, S7). Sources: KIP-482 (flexible versions), KIP-511 (ApiVersions), and
Kafka's message definitions (``clients/src/main/resources/common/message``).
"""
