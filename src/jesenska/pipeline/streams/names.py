"""Names as Kafka Streams gives them: a prefix and a number of ten digits, from one counter for the whole topology.

The counter moves on for every name that is asked for, also where the program gives a name of its own, so that naming
one operation does not rename the others. Internal topics and stores are named after these, and an application that
was written for Kafka Streams finds its topics again only if the numbers agree.
"""

from __future__ import annotations

import re

from jesenska.pipeline.streams.locations import refused

STORE = "STATE-STORE-"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_MAX_CHARS = 249


class NameCounter:
    """Gives the names of one topology."""

    def __init__(self) -> None:
        self._next = 0

    def processor(self, prefix: str) -> str:
        number = self._next
        self._next += 1
        return f"{prefix}{number:010d}"

    def store(self, prefix: str) -> str:
        return self.processor(prefix + STORE)

    def named(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """Returns the given name with the suffix, else a generated one. The counter moves on in either case."""
        generated = self.processor(prefix)
        return generated if name is None else checked(name + suffix)


def checked(name: str) -> str:
    """Returns the name, if Kafka takes it for processors, stores and topics."""
    if not isinstance(name, str) or not name or name in (".", "..") or len(name) > _MAX_CHARS or not _LEGAL.match(name):
        raise refused(f"{name!r} cannot be a name: use 1 to {_MAX_CHARS} ASCII letters, digits, '.', '_' and '-'.")
    return name
