"""The error of a path of the records that does not fit: for a sub-topology when the path is made, or for a micro-batch
when it runs. The text is the reason."""

from __future__ import annotations


class OtherWayError(Exception):
    """The sub-topology, or this micro-batch, needs another path."""
