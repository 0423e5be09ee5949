"""Generates the names that Kafka Streams gives to operations: a prefix and a number of ten digits. One counter numbers
all names of a topology.

The counter advances for every operation, even if the program gives the operation a name. So naming one operation does
not change the generated names of other operations. The names of internal topics and stores contain these numbers. An
application that was written for Kafka Streams finds its existing topics only if the numbers are the same."""

from __future__ import annotations

import re

from jesenska.pipeline.streams.locations import refused

STORE = "STATE-STORE-"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_MAX_CHARS = 249


class NameCounter:
    """Generates the names of the operations of one topology."""

    def __init__(self) -> None:
        self._next = 0

    def processor(self, prefix: str) -> str:
        number = self._next
        self._next += 1
        return f"{prefix}{number:010d}"

    def store(self, prefix: str) -> str:
        return self.processor(prefix + STORE)

    def named(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """Returns the given name with the suffix, or a generated name if `name` is None. The counter advances in both
        cases."""
        generated = self.processor(prefix)
        return generated if name is None else checked(name + suffix)


def checked(name: str) -> str:
    """Returns the name if Kafka accepts it for processors, stores and topics. Raises TopologyError otherwise."""
    if not isinstance(name, str) or not name or name in (".", "..") or len(name) > _MAX_CHARS or not _LEGAL.match(name):
        raise refused(f"{name!r} cannot be a name: use 1 to {_MAX_CHARS} ASCII letters, digits, '.', '_' and '-'.")
    return name
