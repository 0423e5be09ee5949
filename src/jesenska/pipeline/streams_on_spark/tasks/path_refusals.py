"""The error that a path raises when it cannot process records. A path raises it when it is created, if it does not
support the sub-topology, and when it runs, if it cannot process a micro-batch. The message is the reason."""

from __future__ import annotations


class OtherWayError(Exception):
    """The error when the sub-topology, or this micro-batch, must be processed on another path."""
