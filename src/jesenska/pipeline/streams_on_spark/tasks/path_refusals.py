"""The error that a path raises when it cannot process the records: of a sub-topology, when the path is created, or of
one micro-batch, when it runs. The message is the reason."""

from __future__ import annotations


class OtherWayError(Exception):
    """The error when the sub-topology, or this micro-batch, must be processed on another path."""
