"""What a way of the records raises where it is not the one: for a sub-topology when it is made, or for a micro-batch
when it runs. The text is the reason."""

from __future__ import annotations


class OtherWayError(Exception):
    """The sub-topology, or this micro-batch, has to go another way."""
