"""Kafka Streams' own names in Java are answered with ours: `stream.groupByKey()` says that it is group_by_key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING


class SaysOurName:
    """Answers for a method that is written as in Java."""

    # Not for type checkers: they are to find such names themselves.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            ours = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
            known = type(self).__name__
            if ours != name and hasattr(type(self), ours):
                raise AttributeError(f"{known} has no {name}: it is written {ours} here.", name=ours, obj=self)
            raise AttributeError(f"{known!r} object has no attribute {name!r}", name=name, obj=self)
